"""`flowctl runs`: the run history, from the records in the state store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from flowctl.cli import output
from flowctl.cli.arguments import spec_argument, variables_option
from flowctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flowctl.state.runs import BegunRun, RunError, RunRecord, TableRun
    from flowctl.storage.blobs import BlobStore

#: The version of the JSON list; one run is the document of `schemas/run.schema.json`.
FORMAT = 1


@click.command("runs")
@spec_argument
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The newest so many.")
@variables_option
def command(spec_path: str, run_id: str | None, limit: int, variables: Mapping[str, str]) -> int:
    """List the newest runs, or show all of one RUN. One without an end is under way, or was killed."""
    from flowctl.spec.load import load_spec
    from flowctl.state.location import open_flow
    from flowctl.state.runs import list_begun, list_runs

    spec = load_spec([spec_path], variables)
    blobs = open_flow(spec)
    begun = {run.id: (run, _state_of(blobs, run)) for run in list_begun(blobs)}
    if run_id is not None:
        if run_id in begun:
            _show_begun(*begun[run_id])
        else:
            _show(_found(blobs, run_id))
        return ExitCode.OK
    records = {record.id: record for record in list_runs(blobs, limit)}
    newest = sorted({*records, *begun}, reverse=True)[:limit]
    if output.settings().format == "json":
        runs = [{**records[id].to_json(), "plan": None} for id in newest if id in records]
        unfinished = [{**begun[id][0].to_json(), "state": begun[id][1]} for id in newest if id in begun]
        output.write_json({"format": FORMAT, "flow": spec.flow, "runs": runs, "unfinished": unfinished})
    else:
        for id in newest:
            output.write_result(_line(records[id]) if id in records else _begun_line(*begun[id]))
        if not newest:
            output.write_result(f"{spec.flow}  no run is recorded yet")
    return ExitCode.OK


def _state_of(blobs: BlobStore, run: BegunRun) -> str:
    """``running`` while it holds the lease and is not known to be gone, ``interrupted`` otherwise."""
    from flowctl.state import lease

    held = lease.current(blobs)
    is_held = held is not None and held.run_id == run.id and not held.released and not held.holder.is_gone()
    return "running" if is_held else "interrupted"


def _begun_line(run: BegunRun, state: str) -> str:
    tables = f"{len(run.tables)} table{'' if len(run.tables) == 1 else 's'} begun"
    then = "" if state == "running" else "; the next run finishes what it left"
    return f"{run.id}  {run.started_at}  {state}  {tables}{then}"


def _show_begun(run: BegunRun, state: str) -> None:
    if output.settings().format == "json":
        output.write_json({**run.to_json(), "state": state})
        return
    output.write_result(_begun_line(run, state))
    for table_id in run.tables:
        output.write_result(f"  {table_id}")


def _found(blobs: BlobStore, run_id: str) -> RunRecord:
    from flowctl.state.runs import get_run

    record = get_run(blobs, run_id)
    if record is None:
        raise UsageError(f"there is no run {run_id!r}", hint="List them with `flowctl runs SPEC`")
    return record


def _show(record: RunRecord) -> None:
    if output.settings().format == "json":
        output.write_json(record.to_json())
        return
    output.write_result(_line(record))
    for table in record.tables:
        output.write_result(_table_line(table))
        for warning in table.warnings:
            output.write_result(f"      warning: {warning}")
        if table.error:
            output.write_result(f"      {_error_text(table.error)}")
    if record.error:
        output.write_result(f"  {_error_text(record.error)}")


def _line(record: RunRecord) -> str:
    counts = {
        "committed": record.count("committed"),
        "unchanged": record.count("unchanged"),
        "failed": record.count("failed"),
        "stopped": record.count("stopped"),
        "skipped": record.count("skipped"),
    }
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "nothing to do"
    serial = f"serial {record.serial_before} → {record.serial_after}"
    return f"{record.id}  {record.started_at}  exit {record.exit_code}  {serial}  {told}"


def _table_line(table: TableRun) -> str:
    rows = ", ".join(f"{count:,} {name}" for name, count in table.rows.to_json().items() if count and name != "bytes")
    number = f"#{table.seq}" if table.seq else ""
    return f"  {table.id:<24} {table.outcome:<10} {table.mode:<9} {number:<7} {table.seconds:>8.1f} s  {rows}".rstrip()


def _error_text(error: RunError) -> str:
    where = f"{error.where}: " if error.where else ""
    return f"{where}error: {error.message}" + (f". {error.hint}" if error.hint else "")
