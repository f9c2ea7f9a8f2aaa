"""`flowctl restore`: shows what a table and its state would go back to, asks for confirmation, and does it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from flowctl import text
from flowctl.cli import output
from flowctl.cli.arguments import lock_timeout_option, spec_argument, yes_option
from flowctl.cli.state_places import place_of_table
from flowctl.errors import ExitCode
from flowctl.model import types
from flowctl.text import Line, Piece

if TYPE_CHECKING:
    from flowctl.connectors.restoration import Restoration
    from flowctl.run.restore import RestorePlan, RestoreResult
    from flowctl.spec.spec import Spec

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


def _number(context: click.Context, parameter: click.Parameter, text: str) -> int:
    """``41`` or ``#41``."""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and int(digits)):
        raise click.BadParameter(f"{text!r} is not a sequence number, such as 41", context, parameter)
    return int(digits)


@click.command("restore")
@spec_argument
@click.argument("table_id", metavar="ID")
@click.option("--to", "seq", required=True, metavar="N", callback=_number, help="The sequence number to go back to.")
@yes_option
@lock_timeout_option
def command(spec: Spec, table_id: str, seq: int, yes: bool, lock_timeout: float) -> int:
    """Bring a table in Delta or Iceberg, and its state, back to what they were after an earlier sequence number."""
    from flowctl.run.restore import restore

    settings = output.settings()

    def approve(plan: RestorePlan) -> bool:
        if settings.format == "text":
            output.write_lines(_plan_lines(plan, output.width()))
        output.require_consent("Restore this?", yes=yes)
        return True

    place = place_of_table(spec, table_id)
    result = restore(spec, table_id, seq, place.store, place.lease_prefix, lock_timeout, approve)
    if settings.format == "json":
        output.write_json({"format": FORMAT, "flow": spec.flow, **_to_json(result)})
    elif result.plan.is_done:
        output.write_result(f"{table_id} has the content of sequence number {seq} already.")
    else:
        after = result.plan.restoration.commit.seq
        output.write_result(f"{table_id} has the content of sequence number {seq} again, as number {after}.")
    return ExitCode.OK


def _plan_lines(plan: RestorePlan, width: int) -> Iterator[Line]:
    from flowctl.state.changes import render

    found = plan.restoration
    yield (Piece(f"~ {plan.table.target}", "bold"),)
    for label, said in (*_told(found), *([("definition", plan.definition)] if plan.definition else [])):
        yield from text.labelled(label, said, width)
    yield from ((Piece(line),) for line in render(list(plan.changes)))


def _told(found: Restoration) -> Iterator[tuple[str, str]]:
    if not found.changes:
        yield "content", "restored already; only the state is left"
        return
    if (main := found.table) is not None:
        moment = dt.datetime.fromtimestamp(found.at / 1000, dt.UTC) if found.at is not None else None
        when = f", committed {moment:%Y-%m-%d %H:%M} UTC" if moment else ""
        yield "content", f"of sequence number {found.commit.restored} (version {main.version}){when}"
        before, after = (f"{rows:,}" if rows is not None else "unknown" for rows in main.rows)
        yield "rows", f"{before} → {after}"
        yield from _columns(found)
        yield "undoes", _undone(found)
    yield from (("sidecar", f"{one.place} goes back to version {one.version}") for one in found.sidecars)


def _undone(found: Restoration) -> str:
    match found.undone:
        case ():
            own = "no commit of this flow"
        case (one,):
            own = f"sequence number {one}"
        case (first, *_, last):
            own = f"{len(found.undone):,} sequence numbers, {first} to {last}"
    return f"{own}; {text.counted(found.others, 'commit')} of others" if found.others else own


def _columns(found: Restoration) -> Iterator[tuple[str, str]]:
    before, after = ({one.name: one.type for one in info.columns} for info in (found.before, found.after))
    told = [
        *(f"without {name}" for name in before if name not in after),
        *(f"with {name} again" for name in after if name not in before),
        *(f"{name} as {types.short(kind)} again" for name, kind in after.items() if before.get(name, kind) != kind),
    ]
    if told:
        yield "columns", ", ".join(told)


def _to_json(result: RestoreResult) -> dict[str, Any]:
    found = result.plan.restoration
    return {
        "id": result.plan.table.id,
        "restored": result.approved,
        "to": found.commit.restored,
        "seq": found.commit.seq,
        "tables": [
            {"table": one.place, "newest": one.newest, "version": one.version, "rows": list(one.rows)}
            for one in found.changes
        ],
        "undone": list(found.undone),
        "commits_of_others": found.others,
        "serial_before": result.before.serial,
        "serial": result.document.serial,
        "changes": [one.to_json() for one in result.plan.changes],
    }
