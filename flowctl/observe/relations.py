"""What a table reads, as a relation for its source's connector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from flowctl.connectors.source import Relation, WatermarkRequest
from flowctl.model.position import Position, VersionPosition
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import DetectMissingKeys, ObjectSource, QuerySource, SqlSource, TableSpec, TopicSource


def relation(table: TableSpec) -> Relation:
    """Raises ``ValueError`` for a SQL table: it reads other tables of the flow."""
    match table.source:
        case TopicSource(_, parts):
            return Relation(ObjectName(parts), None, table.where, table.format, key_of(table))
        case ObjectSource(_, parts):
            return Relation(ObjectName(parts), None, table.where, table.format)
        case QuerySource(_, query):
            return Relation(None, query, table.where, table.format)
        case SqlSource():
            raise ValueError(f"{table.id} reads no connection")
        case _:
            assert_never(table.source)


def key_of(table: TableSpec) -> tuple[str, ...]:
    """The names in the source of the key's columns, if rows are replaced by it and all of them are read from there."""
    if table.mode not in ("merge", "scd2") or not {*table.key}.isdisjoint(table.columns.add):
        return ()
    names = {target: source for source, target in table.columns.rename.items()}
    return tuple(names.get(name, name) for name in table.key)


def reports_deletes(table: TableSpec) -> bool:
    """Whether the changes of a table that is read by versions have to report deletions."""
    return isinstance(table.deletes, DetectMissingKeys)


def is_net(table: TableSpec) -> bool:
    """Whether rows that are as before must not be read as changes."""
    return table.mode == "append" or reports_deletes(table)


def without_cursor(table: TableSpec, request: WatermarkRequest, recorded: Position | None) -> WatermarkRequest:
    """The request of a table without a cursor, or whose cursor does not exist, that continues from ``recorded``."""
    start = table.source.start if isinstance(table.source, TopicSource) else ""
    return replace(
        request,
        delay=table.cursor.delay if table.cursor else None,
        start=start if isinstance(start, str) else "",
        since=recorded if isinstance(recorded, VersionPosition) else None,
        net=is_net(table),
    )


def objects_of(tables: Iterable[TableSpec]) -> list[ObjectName]:
    """The objects that these tables read, each once."""
    return list(dict.fromkeys(object for table in tables if (object := relation(table).object) is not None))
