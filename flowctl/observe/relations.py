"""What a table reads, as a relation for its source's connector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from flowctl.connectors.source import Relation
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import ObjectSource, QuerySource, SqlSource, TableSpec, TopicSource


def relation(table: TableSpec) -> Relation:
    """Raises ``ValueError`` for a SQL table: it reads other tables of the flow."""
    match table.source:
        case TopicSource(_, parts):
            return Relation(ObjectName(parts), None, table.where, table.format, _key(table))
        case ObjectSource(_, parts):
            return Relation(ObjectName(parts), None, table.where, table.format)
        case QuerySource(_, query):
            return Relation(None, query, table.where, table.format)
        case SqlSource():
            raise ValueError(f"{table.id} reads no connection")
        case _:
            assert_never(table.source)


def _key(table: TableSpec) -> tuple[str, ...]:
    """The names in the source of the key's columns, if rows are replaced by it."""
    if table.mode not in ("merge", "scd2"):
        return ()
    names = {target: source for source, target in table.columns.rename.items()}
    return tuple(names.get(name, name) for name in table.key)


def objects_of(tables: Iterable[TableSpec]) -> list[ObjectName]:
    """The objects that these tables read, each once."""
    return list(dict.fromkeys(object for table in tables if (object := relation(table).object) is not None))
