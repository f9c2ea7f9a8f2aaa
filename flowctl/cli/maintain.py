"""`flowctl maintain`: shows what is due for the tables that a flow writes, asks for confirmation, and does it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from flowctl import text
from flowctl.cli import output
from flowctl.cli.arguments import lock_timeout_option, spec_argument, yes_option
from flowctl.text import Line, Piece

if TYPE_CHECKING:
    from flowctl.connectors.maintenance import Task
    from flowctl.errors import FlowctlError
    from flowctl.run.maintain import DueTable, MaintenancePlan, MaintenanceResult
    from flowctl.spec.spec import Spec

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


@click.command("maintain")
@spec_argument
@click.option(
    "--select",
    metavar="TERM",
    multiple=True,
    help="Only these tables, with their sidecars; terms as for `plan`; repeatable.",
)
@yes_option
@lock_timeout_option
def command(spec: Spec, select: tuple[str, ...], yes: bool, lock_timeout: float) -> int:
    """Compact tables in Delta or Iceberg, expire their versions and remove old files, where that is due."""
    from flowctl.run.maintain import MaintainOptions, maintain

    settings = output.settings()

    def approve(plan: MaintenancePlan) -> bool:
        if settings.format == "text":
            output.write_lines(_plan_lines(plan, output.width()))
        if not plan.runnable:
            return False
        output.require_consent("Do this?", yes=yes)
        return True

    options = MaintainOptions(select, lock_timeout, settings.verbose)
    result = maintain(spec, options, approve, output.write_line)
    if settings.format == "json":
        output.write_json({"format": FORMAT, "flow": spec.flow, **_to_json(result)})
    elif result.approved:
        output.write_lines(_result_lines(result, output.width()))
    return result.exit_code


def _plan_lines(plan: MaintenancePlan, width: int) -> Iterator[Line]:
    for one in plan.tables:
        yield (Piece(f"{'!' if one.error else '~'} {one.name}", "bold"),)
        for task in one.due.tasks if one.due and not one.error else ():
            yield from text.labelled(task.name, task.text, width)
        if one.due and one.due.left_out:
            yield from text.labelled("left out", one.due.left_out, width)
        if one.error:
            yield from _error(one.error, width)
    for error in plan.unlisted:
        yield from _error(error, width)
    due = len(plan.runnable)
    counts = {"due": due, "left out": len(plan.tables) - due, "with nothing due": plan.others}
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    yield (Piece(f"Tables: {told}." if told else "There are no tables in Delta or Iceberg.", "bold"),)


def _result_lines(result: MaintenanceResult, width: int) -> Iterator[Line]:
    for one in result.tables:
        if one.error:
            yield (Piece(f"! {one.table.name}", "bold red"),)
            yield from _error(one.error, width)
    failed = sum(one.error is not None for one in result.tables)
    told = f"{text.counted(len(result.tables) - failed, 'table')} maintained"
    yield (Piece(f"{told}, {failed:,} failed." if failed else f"{told}.", "bold"),)


def _error(error: FlowctlError, width: int) -> Iterator[Line]:
    place = f" ({error.mark})" if error.mark else ""
    yield from text.labelled("because", f"{error.message}{place}", width)
    if error.hint:
        yield from text.labelled("next step", error.hint, width)


def _to_json(result: MaintenanceResult) -> dict[str, Any]:
    done = {one.table.name: one for one in result.tables}

    def of_table(one: DueTable) -> dict[str, Any]:
        maintained = done.get(one.name)
        error = one.error or (maintained.error if maintained else None)
        return {
            "id": one.table.id,
            "table": one.name,
            "due": _tasks(one.due.tasks if one.due else ()),
            "done": _tasks(maintained.done if maintained else ()),
            "left_out": (one.due.left_out if one.due else "") or None,
            "error": {"message": error.message, "hint": error.hint} if error else None,
        }

    return {"nothing_due": result.plan.others, "tables": [of_table(one) for one in result.plan.tables]}


def _tasks(tasks: tuple[Task, ...]) -> list[dict[str, Any]]:
    return [{"task": task.name, "text": task.text, **task.figures} for task in tasks]
