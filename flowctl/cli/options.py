"""Options that `plan` and `apply` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def plan_options(command: Command) -> Command:
    """``--select``, ``--exclude``, ``--full-refresh``, ``--estimate``; :func:`chosen` gathers them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(given: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of ``PlanOptions``, taken out of a command's own arguments."""
    return {name: given.pop(name) for name in ("select", "exclude", "full_refresh", "estimate")}


_OPTIONS = (
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
