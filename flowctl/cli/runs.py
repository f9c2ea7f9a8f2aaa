"""`flowctl runs`: the run history, from the records in the state store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from flowctl.cli import output
from flowctl.cli.arguments import spec_argument, variables_option
from flowctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flowctl.state.blobs import BlobStore
    from flowctl.state.runs import RunError, RunRecord, TableRun

#: The version of the JSON list; one run is the document of `schemas/run.schema.json`.
FORMAT = 1


@click.command("runs")
@spec_argument
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The newest so many.")
@variables_option
def command(spec_path: str, run_id: str | None, limit: int, variables: Mapping[str, str]) -> int:
    """List the newest runs, or show all of one RUN. A run that was killed has left no record."""
    from flowctl.spec.load import load_spec
    from flowctl.state.location import open_flow
    from flowctl.state.runs import list_runs

    spec = load_spec([spec_path], variables)
    blobs = open_flow(spec)
    if run_id is not None:
        _show(_found(blobs, run_id))
        return ExitCode.OK
    records = list_runs(blobs, limit)
    if output.settings().format == "json":
        runs = [{**record.to_json(), "plan": None} for record in records]
        output.write_json({"format": FORMAT, "flow": spec.flow, "runs": runs})
    else:
        for record in records:
            output.write_result(_line(record))
        if not records:
            output.write_result(f"{spec.flow}  no run is recorded yet")
    return ExitCode.OK


def _found(blobs: BlobStore, run_id: str) -> RunRecord:
    from flowctl.state.runs import get_run

    record = get_run(blobs, run_id)
    if record is None:
        raise UsageError(f"there is no run {run_id!r}", hint="`flowctl runs SPEC` lists them")
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
