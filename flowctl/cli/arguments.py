"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

Command = Callable[..., Any]

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def spec_argument(command: Command) -> Command:
    """``SPEC``, the path of one spec file, and ``--var``: ``command`` is called with the loaded ``spec``."""

    @wraps(command)
    def load(spec_path: str, variables: dict[str, str], **given: Any) -> Any:
        from flowctl.spec.load import load_spec

        return command(spec=load_spec([spec_path], variables), **given)

    return click.argument("spec_path", metavar="SPEC", type=click.Path(dir_okay=False))(variables_option(load))


def lock_timeout_option(command: Command) -> Command:
    """``--lock-timeout``, in seconds."""
    return click.option(
        "--lock-timeout",
        default="0s",
        show_default=True,
        metavar="DURATION",
        callback=_in_seconds,
        help="How long to wait for another run.",
    )(command)


def _in_seconds(context: click.Context, parameter: click.Parameter, text: str) -> float:
    from flowctl.model.units import seconds

    try:
        return seconds(text)
    except (ValueError, KeyError) as error:
        raise click.BadParameter(f"{text!r} is not a duration such as 30s or 10m", context, parameter) from error


def variables_option(command: Command) -> Command:
    """``--var name=value``, repeatable, as the map ``variables``."""
    return click.option(
        "--var",
        "variables",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
        help="A value for one of the spec's `vars`; repeatable.",
    )(command)


def pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """A click callback: repeated ``NAME=VALUE`` as a map."""
    split = [text.partition("=") for text in values]
    for name, equals, _ in split:
        if not equals or not name:
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", context, parameter)
    return {name: value for name, _, value in split}


def plan_options(command: Command) -> Command:
    """``--select``, ``--exclude``, ``--full-refresh``, ``--estimate``: the keyword arguments of ``PlanOptions``."""
    for option in reversed(_PLAN_OPTIONS):
        command = option(command)
    return command


_PLAN_OPTIONS = (
    click.option(
        "--select",
        metavar="TERM",
        multiple=True,
        help="Only these tables: an id or a glob, `+id` with what it reads, `id+` with what reads it; repeatable.",
    ),
    click.option("--exclude", metavar="TERM", multiple=True, help="All but these tables; terms as for --select."),
    click.option(
        "--full-refresh",
        metavar="TERM",
        multiple=True,
        help="Read these tables again and replace their content (scd2 keeps its history); terms as for --select.",
    ),
    click.option(
        "--estimate",
        type=click.Choice(["none", "stats", "count"]),
        default="stats",
        show_default=True,
        help="How rows are estimated: not at all, from the source's statistics, or by counting.",
    ),
)
