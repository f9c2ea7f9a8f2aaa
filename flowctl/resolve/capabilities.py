"""What the connectors of a table can do, against what it asks for. Needs no driver and no connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from flowctl.connectors.base import Capabilities
from flowctl.diagnostics import Diagnostic
from flowctl.spec.spec import Connection, ObjectSource, QuerySource, TableSpec

CapabilitiesOf = Callable[[str], Capabilities]


def check(
    tables: Sequence[TableSpec], connections: Mapping[str, Connection], capabilities_of: CapabilitiesOf
) -> Iterator[Diagnostic]:
    """Everything a table asks of its connections that their types cannot do, with where to go instead."""
    for table in tables:
        source = table.source
        if isinstance(source, ObjectSource | QuerySource):
            yield from _source(table, source, capabilities_of(connections[source.connection].type), connections)
        yield from _target(table, connections, capabilities_of)


def _source(
    table: TableSpec,
    source: ObjectSource | QuerySource,
    capabilities: Capabilities,
    connections: Mapping[str, Connection],
) -> Iterator[Diagnostic]:
    name, kind = source.connection, connections[source.connection].type
    can = capabilities.source
    if can is None:
        yield _refused(table, "from", f"{name} is of type {kind}, which cannot be read from", "Read from another one")
        return
    if isinstance(source, QuerySource) and not can.queries:
        yield _refused(table, "from.query", f"{kind} takes no queries", "Name a table or a path")
    if table.cursor and can.position != "cursor":
        yield _refused(
            table, "cursor", f"{kind} has no cursor columns", "Leave `cursor` out: it keeps its own position"
        )
    if table.where and can.position == "files":
        yield _refused(
            table, "where", f"{kind} has no SQL of its own for `where`", "Use a SQL table over this one instead"
        )


def _target(
    table: TableSpec, connections: Mapping[str, Connection], capabilities_of: CapabilitiesOf
) -> Iterator[Diagnostic]:
    name, kind = table.target.connection, connections[table.target.connection].type
    can = capabilities_of(kind).target
    others = sorted(
        other.name
        for other in connections.values()
        if (target := capabilities_of(other.type).target) and table.mode in target.modes
    )
    instead = f"Use one that can: {', '.join(others)}" if others else "A connection of type delta can"
    if can is None:
        yield _refused(table, "to", f"{name} is of type {kind}, which cannot be written to", instead)
    elif table.mode not in can.modes:
        yield _refused(table, "mode", f"{kind} targets ({name}) cannot do mode {table.mode}", instead)


def _refused(table: TableSpec, path: str, message: str, hint: str) -> Diagnostic:
    return Diagnostic(f"{table.id}: {message}", hint, table.mark_of(path), "capability")
