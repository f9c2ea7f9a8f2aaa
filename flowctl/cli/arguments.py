"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from flowctl.model.backfill import Backfill

Command = Callable[..., Any]

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def spec_argument(command: Command) -> Command:
    """``SPEC``, the path of one spec file, and what :func:`spec_options` adds: ``command`` is called with the loaded
    ``spec``."""

    @wraps(command)
    def load(spec_path: str, variables: dict[str, str], connections: dict[str, str], **given: Any) -> Any:
        from flowctl.spec.load import load_spec

        return command(spec=load_spec([spec_path], variables, connections), **given)

    return click.argument("spec_path", metavar="SPEC", type=click.Path(dir_okay=False))(spec_options(load))


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


def spec_options(command: Command) -> Command:
    """``--var name=value`` and ``--connection name=url``, repeatable, as the maps ``variables`` and ``connections``."""
    return _variables_option(_connections_option(command))


def _connections(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """As :func:`pairs`; errors never repeat a text that may be a URL with a password."""
    split = [text.partition("=") for text in values]
    for name, equals, _ in split:
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
            raise click.BadParameter("write NAME=URL, with the name of a connection", context, parameter)
    return {name: url for name, _, url in split}


def pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """A click callback: repeated ``NAME=VALUE`` as a map."""
    split = [text.partition("=") for text in values]
    for name, equals, _ in split:
        if not equals or not name:
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", context, parameter)
    return {name: value for name, _, value in split}


_variables_option = click.option(
    "--var",
    "variables",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="A value for one of the spec's `vars`; repeatable.",
)
_connections_option = click.option(
    "--connection",
    "connections",
    metavar="NAME=URL",
    multiple=True,
    callback=_connections,
    help="The connection to use as NAME, instead of the spec's; repeatable.",
)


def plan_options(command: Command) -> Command:
    """``--select``, ``--exclude``, ``--full-refresh``, ``--from``, ``--to``, ``--estimate``: the keyword arguments of
    ``PlanOptions``."""

    @wraps(command)
    def with_backfill(range_from: str | None, range_to: str | None, **given: Any) -> Any:
        return command(backfill=_backfill(range_from, range_to, given), **given)

    found: Command = with_backfill
    for option in reversed(_PLAN_OPTIONS):
        found = option(found)
    return found


def _backfill(range_from: str | None, range_to: str | None, given: Mapping[str, Any]) -> Backfill | None:
    from flowctl.model.backfill import Backfill

    if range_from is None and range_to is None:
        return None
    if not given["select"]:
        raise click.UsageError("--from and --to require --select: name the tables that read the range again")
    if given["full_refresh"]:
        raise click.UsageError("--full-refresh reads all rows: run it without --from and --to")
    return Backfill(range_from, range_to)


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
        "--from",
        "range_from",
        metavar="VALUE",
        help="Read a range of the cursor again, from this value on; the position stays. Requires --select.",
    ),
    click.option("--to", "range_to", metavar="VALUE", help="The end of that range, which is not read itself."),
    click.option(
        "--estimate",
        type=click.Choice(["none", "stats", "count"]),
        default="stats",
        show_default=True,
        help="How rows are estimated: not at all, from the source's statistics, or by counting.",
    ),
)
