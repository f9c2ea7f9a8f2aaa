"""`flowctl state list`, `show` and `history`: what the state store remembers, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flowctl import text
from flowctl.cli import output
from flowctl.cli.arguments import spec_argument
from flowctl.cli.state_places import (
    StatePlace,
    all_places,
    known_table,
    place_of_stream,
    place_of_table,
    stream_option,
)
from flowctl.errors import ExitCode

if TYPE_CHECKING:
    from flowctl.spec.spec import Spec
    from flowctl.state.document import StateDocument, TableState

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


@click.command("list")
@spec_argument
def list_tables(spec: Spec) -> int:
    """All tables: sequence number, position, last run, pending intent."""
    from flowctl.model.position import readable
    from flowctl.state import codec

    own, *streams = [(place, place.store.read()) for place in all_places(spec)]
    document = own[1]
    if output.settings().format == "json":
        tables = codec.to_json(document)["tables"]
        of_streams = {place.stream: _stream_json(found) for place, found in streams}
        output.write_json(state_json(spec, document, tables=tables, **({"streams": of_streams} if streams else {})))
        return ExitCode.OK
    output.write_result(_header(spec, document))
    for place, found in streams:
        output.write_result(_stream_header(place, found))
    rows = [
        (id, f"{table.seq:,}", readable(table.position), _remark(table))
        for _, found in (own, *streams)
        for id, table in sorted(found.tables.items())
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

    place = place_of_table(spec, table_id)
    document = place.store.read()
    table = known_table(spec, document, table_id)
    if output.settings().format == "json":
        more = {"stream": place.stream} if place.stream else {}
        output.write_json(state_json(spec, document, id=table_id, **more, table=codec.table_to_json(table)))
        return ExitCode.OK
    header = _stream_header(place, document) if place.stream else _header(spec, document)
    output.write_result(f"{header}\n{table_id}")
    for label, value in changes.describe(table):
        output.write_lines(text.labelled(label, value, output.width(), room=20))
    return ExitCode.OK


@click.command("history")
@spec_argument
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many versions to list.")
@stream_option
def history(spec: Spec, limit: int, stream: str | None) -> int:
    """The kept versions of the state, newest first, with the changes of each."""
    from flowctl.state.changes import differences

    store = place_of_stream(spec, stream).store
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


def _stream_header(place: StatePlace, document: StateDocument) -> str:
    stream = document.stream
    if stream is None:
        return f"stream {place.stream}  never ran"
    lagging = [f"{id} at batch {batch}" for id, batch in stream.apart.items()]
    behind = f"  behind: {', '.join(lagging)}" if lagging else ""
    return f"stream {place.stream}  serial {document.serial}  batch {stream.applied}{behind}"


def _stream_json(document: StateDocument) -> dict[str, Any]:
    from flowctl.state import codec

    written = codec.to_json(document)
    return {
        "lineage": document.recorded_lineage,
        **{name: written.get(name) for name in ("serial", "stream", "tables")},
    }


def _remark(table: TableState) -> str:
    if table.intent is not None:
        again = f", attempted by {table.intent.runs} runs" if table.intent.runs > 1 else ""
        fate = "to be given up" if table.given_up else f"begun by {table.intent.run_id}{again}"
        return f"{table.intent.seq} {fate}"
    return "forgotten" if table.forgotten else table.last_run or ""
