"""`flowctl state list`, `show` and `history`: what the state store remembers, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flowctl import text
from flowctl.cli import output
from flowctl.cli.arguments import spec_argument
from flowctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flowctl.spec.spec import Spec
    from flowctl.state.document import StateDocument, TableState
    from flowctl.state.store import StateStore

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


@click.command("list")
@spec_argument
def list_tables(spec: Spec) -> int:
    """All tables: sequence number, position, last run, pending intent."""
    from flowctl.model.position import readable
    from flowctl.state import codec

    document = open_store(spec).read()
    if output.settings().format == "json":
        output.write_json(state_json(spec, document, tables=codec.to_json(document)["tables"]))
        return ExitCode.OK
    output.write_result(_header(spec, document))
    rows = [
        (id, f"{table.seq:,}", readable(table.position), _remark(table))
        for id, table in sorted(document.tables.items())
    ]
    if rows:
        header = ("table", "sequence number", "position", "last run")
        left = ("table", "position", "last run")
        output.write_result("\n".join(text.table(header, rows, output.width(), left=left)))
    return ExitCode.OK


@click.command("show")
@spec_argument
@click.argument("table_id", metavar="ID")
def show(spec: Spec, table_id: str) -> int:
    """Everything recorded about one table."""
    from flowctl.state import changes, codec

    document = open_store(spec).read()
    table = known_table(document, table_id)
    if output.settings().format == "json":
        output.write_json(state_json(spec, document, id=table_id, table=codec.table_to_json(table)))
        return ExitCode.OK
    output.write_result(f"{_header(spec, document)}\n{table_id}")
    for label, value in changes.describe(table):
        output.write_lines(text.labelled(label, value, output.width(), room=20))
    return ExitCode.OK


@click.command("history")
@spec_argument
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many versions to list.")
def history(spec: Spec, limit: int) -> int:
    """The kept versions of the state, newest first, with the changes of each."""
    from flowctl.state.changes import differences

    store = open_store(spec)
    kept = store.history()
    versions: list[dict[str, Any]] = []
    for version, older in list(zip(kept, [*kept[1:], None], strict=True))[:limit]:
        document = store.read_serial(version.serial)
        before = store.read_serial(older.serial) if older else None
        versions.append(
            {
                "serial": version.serial,
                "modified": version.modified.isoformat(timespec="seconds").replace("+00:00", "Z"),
                "bytes": version.size,
                "writer": document.write_id.rpartition("/")[0],
                "changed": sorted({found.table for found in differences(before, document)}) if before else None,
            }
        )
    if output.settings().format == "json":
        output.write_json({"format": FORMAT, "flow": spec.flow, "versions": versions})
    else:
        header = ("serial", "written", "by", "changed")
        rows = [
            (str(one["serial"]), one["modified"], one["writer"], ", ".join(one["changed"] or ())) for one in versions
        ]
        output.write_result("\n".join(text.table(header, rows, output.width(), left=header[1:])))
    return ExitCode.OK


def open_store(spec: Spec) -> StateStore:
    from flowctl.state.location import open_flow
    from flowctl.state.store import StateStore

    return StateStore(open_flow(spec))


def known_table(document: StateDocument, table_id: str) -> TableState:
    if table_id in document.tables:
        return document.tables[table_id]
    known = ", ".join(sorted(document.tables)[:10]) or "none"
    raise UsageError(f"state has no table {table_id!r}", hint=f"Choose one of {known}")


def state_json(spec: Spec, document: StateDocument, **more: Any) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "flow": spec.flow,
        "lineage": document.recorded_lineage,
        "serial": document.serial,
        **more,
    }


def _header(spec: Spec, document: StateDocument) -> str:
    return f"{spec.flow}  " + (
        f"serial {document.serial}  lineage {document.lineage}" if document.serial else "never ran"
    )


def _remark(table: TableState) -> str:
    if table.intent is not None:
        again = f", attempted by {table.intent.runs} runs" if table.intent.runs > 1 else ""
        fate = "to be given up" if table.given_up else f"begun by {table.intent.run_id}{again}"
        return f"{table.intent.seq} {fate}"
    return "forgotten" if table.forgotten else table.last_run or ""
