"""`flowctl runs`: the run history, from the records in the state store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flowctl import text
from flowctl.cli import output, result
from flowctl.cli.arguments import spec_argument
from flowctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flowctl.spec.spec import Spec
    from flowctl.state.runs import BegunRun, RunRecord
    from flowctl.storage.blobs import BlobStore

#: The version of the JSON list; one run is the document of `schemas/run.schema.json`.
FORMAT = 1
_HEADER = ("run", "started (UTC)", "seconds", "read", "written", "tables")
_LEFT = ("run", "started (UTC)", "tables")


@click.command("runs")
@spec_argument
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs to list.")
def command(spec: Spec, run_id: str | None, limit: int) -> int:
    """List the newest runs, or show one RUN in full. A run without an end is active or was killed."""
    from flowctl.state.location import open_flow
    from flowctl.state.runs import list_begun, list_runs

    blobs = open_flow(spec)
    begun = {run.id: (run, _state_of(blobs, run)) for run in list_begun(blobs)}
    if run_id is not None:
        if run_id in begun:
            _show_begun(*begun[run_id])
        else:
            _show(_get_run(blobs, run_id))
        return ExitCode.OK
    records = {record.id: record for record in list_runs(blobs, limit)}
    newest = sorted({*records, *begun}, reverse=True)[:limit]
    if output.settings().format == "json":
        runs = [{**records[id].to_json(), "plan": None} for id in newest if id in records]
        unfinished = [{**begun[id][0].to_json(), "state": begun[id][1]} for id in newest if id in begun]
        output.write_json({"format": FORMAT, "flow": spec.flow, "runs": runs, "unfinished": unfinished})
    elif newest:
        rows = [_row(records[id]) if id in records else _begun_row(*begun[id]) for id in newest]
        output.write_result("\n".join(text.table(_HEADER, rows, output.width(), left=_LEFT)))
    else:
        output.write_result(f"{spec.flow}  no run is recorded yet")
    return ExitCode.OK


def _state_of(blobs: BlobStore, run: BegunRun) -> str:
    """``running`` if the run holds the lease and is not known to have ended, otherwise ``interrupted``."""
    from flowctl.state import lease

    held = lease.current(blobs)
    is_held = held is not None and held.run_id == run.id and not held.released and not held.holder.is_gone()
    return "running" if is_held else "interrupted"


def _row(record: RunRecord) -> tuple[str, ...]:
    return (
        record.id,
        _time(record.started_at),
        f"{result.seconds(record):,.1f}",
        f"{result.rows_read(record):,}",
        f"{result.rows_written(record):,}",
        result.outcomes(record),
    )


def _begun_row(run: BegunRun, state: str) -> tuple[str, ...]:
    return (run.id, _time(run.started_at), "", "", "", f"{state}, {text.counted(len(run.tables), 'table')} begun")


def _time(at: str) -> str:
    """RFC 3339 shortened to the minute."""
    return f"{at[:10]} {at[11:16]}"


def _show_begun(run: BegunRun, state: str) -> None:
    if output.settings().format == "json":
        output.write_json({**run.to_json(), "state": state})
        return
    output.write_result("\n".join(text.table(_HEADER, [_begun_row(run, state)], output.width(), left=_LEFT)))
    output.write_lines(text.labelled("tables", ", ".join(run.tables), output.width()))
    if state == "interrupted":
        output.write_lines(text.labelled("next step", "Run again to complete what it began", output.width()))


def _get_run(blobs: BlobStore, run_id: str) -> RunRecord:
    from flowctl.state.runs import get_run

    record = get_run(blobs, run_id)
    if record is None:
        raise UsageError(f"there is no run {run_id!r}", hint="List them with `flowctl runs SPEC`")
    return record


def _show(record: RunRecord) -> None:
    if output.settings().format == "json":
        output.write_json(record.to_json())
        return
    serials = f"serial {record.serial_before} → {record.serial_after}"
    output.write_result(f"{record.flow}  started {_time(record.started_at)} UTC  exit {record.exit_code}  {serials}")
    result.show(record)
