"""The streams of a spec: their checks, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowctl.diagnostics import Diagnostic
from flowctl.model.units import seconds, size
from flowctl.spec.build import below
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node, plain
from flowctl.spec.references import ConnectionTypes
from flowctl.spec.schema import check_stream, connector_types, role
from flowctl.spec.spec import StreamSpec, StreamTable, TableSpec
from flowctl.spec.suggest import suggest_connection
from flowctl.spec.topics import keeps_its_rows

#: The keys of every stream, also of one that has nothing in the source.
_OF_ALL = ("from", "landed", "snapshot", "on_lost_position", "on_table_error", "on_truncate", "batch", "buffer")
#: The keys that mean the same for every connector; all others belong to the connection's type.
_COMMON = (*_OF_ALL, "heartbeat")


def check_streams(root: Node, connections: ConnectionTypes, findings: Findings) -> Mapping[str, str | None]:
    """Name to the connection whose changes are captured; None for a stream with errors, reported here."""
    written = root.get("streams")
    return {
        name: _connection(name, node, connections, findings)
        for name, node in (written.entries if written else {}).items()
    }


def _connection(name: str, node: Node, connections: ConnectionTypes, findings: Findings) -> str | None:
    source = node.entries.get("from")
    if name in connections:
        what = f"`{name}` is the name of a connection and of a stream"
        findings.error(node.place, what, "Rename one of them: `name:object` reads either", "duplicate-name")
        return None
    if source is None or not isinstance(source.value, str):
        return None
    if source.text not in connections:
        hint = suggest_connection(source.text, connections)
        findings.error(source, f"there is no connection `{source.text}`", hint, "unknown-connection")
        return None
    type = connections[source.text]
    if type is None:
        return None
    if role(type, "stream") is None:
        able = ", ".join(other for other in connector_types() if role(other, "stream"))
        what = f"the changes of `{source.text}` ({type}) cannot be captured"
        findings.error(source, what, f"Use a connection of type {able}", "no-stream")
        return None
    before = len(findings.diagnostics)
    findings.extend(check_stream(node, type, f"streams.{name}"))
    _check_standby(node, type, connections, findings)
    if (landed := node.entries.get("landed")) is not None:
        for own in (entry for key, entry in node.entries.items() if key not in _OF_ALL):
            what = "a stream that reads what another flow has captured has nothing of its own in the source"
            findings.error(own, what, f"Remove it, or `landed` in line {landed.place.line}", "landed-option")
    return source.text if len(findings.diagnostics) == before else None


def _check_standby(node: Node, type: str, connections: ConnectionTypes, findings: Findings) -> None:
    """``snapshot.from``."""
    snapshot = node.entries.get("snapshot")
    named = snapshot.entries.get("from") if snapshot is not None else None
    if snapshot is None or named is None or not isinstance(named.value, str):
        return
    if named.text not in connections:
        hint = suggest_connection(named.text, connections)
        findings.error(named, f"there is no connection `{named.text}`", hint, "unknown-connection")
    elif connections[named.text] not in (type, None):
        what = f"`{named.text}` ({connections[named.text]}) is no standby of a connection of type {type}"
        findings.error(named, what, f"Name a connection of type {type}", "no-standby")
    elif (mode := snapshot.entries.get("mode")) is not None and mode.value == "never":
        findings.error(named, "`snapshot.mode: never` reads no table in full", "Remove `from`", "no-standby")


def stream(name: str, node: Node, flow: str) -> StreamSpec:
    """From an entry without errors."""
    given: dict[str, Any] = plain(node)
    snapshot: Any = given.get("snapshot", "initial")
    batch, buffer = given.get("batch", {}), given.get("buffer", {})
    return StreamSpec(
        name=name,
        flow=flow,
        connection=given["from"],
        mark=node.place,
        snapshot=snapshot.get("mode", "initial") if isinstance(snapshot, dict) else snapshot,
        landed=given.get("landed", ""),
        snapshot_from=snapshot.get("from", "") if isinstance(snapshot, dict) else "",
        on_lost_position=given.get("on_lost_position", "fail"),
        on_table_error=given.get("on_table_error", "stop"),
        on_truncate=given.get("on_truncate", "apply"),
        every=seconds(batch.get("every", "10s")),
        batch_rows=batch.get("rows", 500_000),
        batch_bytes=size(batch.get("bytes", "256MB")),
        keep=seconds(buffer.get("keep", "24h")),
        max_bytes=size(buffer.get("max_bytes", "20GB")),
        heartbeat=seconds(given["heartbeat"]) if "heartbeat" in given else None,
        options={key: value for key, value in given.items() if key not in _COMMON},
        marks={path: child.place for path, child in below(node, "")},
    )


def check_tables_of_streams(
    streams: Mapping[str, StreamSpec],
    tables: tuple[TableSpec, ...],
    unsafe_state: bool,
    connections: ConnectionTypes,
) -> Iterator[Diagnostic]:
    """What must hold between streams and the tables that read them."""
    readers: dict[str, list[TableSpec]] = {}
    for table in tables:
        if isinstance(table.source, StreamTable):
            readers.setdefault(table.source.stream, []).append(table)
    for name, one in streams.items():
        if name not in readers:
            what = f"no table reads the stream `{name}`"
            hint = f"Write `from: {name}:schema.table` in a table, or remove the stream"
            yield Diagnostic(what, hint, one.mark, "unread-stream")
        elif unsafe_state:
            what = f"the stream `{name}` needs a state whose store honours conditional writes"
            yield Diagnostic(what, "Remove `unsafe: true` from `state`", one.mark, "unsafe-state")
        if one.on_lost_position == "resnapshot" and one.snapshot == "never":
            what = "`on_lost_position: resnapshot` and `snapshot: never` contradict each other"
            hint = "Use `on_lost_position: fail`, or `snapshot: initial`"
            yield Diagnostic(what, hint, one.marks.get("on_lost_position", one.mark), "resnapshot-never")
        yield from _check_truncations(one, readers.get(name, ()), connections)
        appending = [table for table in readers.get(name, ()) if table.mode == "append"]
        if one.on_lost_position == "resnapshot" and appending:
            what = f"`on_lost_position: resnapshot` would append all rows of `{appending[0].id}` again"
            hint = "Use `on_lost_position: fail`, or give tables that append a stream of their own"
            yield Diagnostic(what, hint, one.marks.get("on_lost_position", one.mark), "resnapshot-appends")


def _check_truncations(
    stream: StreamSpec, readers: Sequence[TableSpec], connections: ConnectionTypes
) -> Iterator[Diagnostic]:
    for table in readers:
        what = keeps_its_rows(table, connections)
        if stream.on_truncate == "apply" and what:
            hint = f"Set `on_truncate: fail` or `ignore` in the stream; `{table.id}` is at {table.mark}"
            yield Diagnostic(what, hint, stream.marks.get("on_truncate", stream.mark), "truncate-topic")
            return
