"""What a table reads, as a relation for its source's connector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from flowctl.connectors.source import ReadRequest, Relation
from flowctl.errors import FlowctlError, StatementRefused
from flowctl.model.interval import Interval
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import (
    DetectMissingKeys,
    ObjectSource,
    QuerySource,
    SqlSource,
    TableSpec,
    TopicSource,
)


def relation(table: TableSpec) -> Relation:
    """Raises ``ValueError`` for a SQL table: it reads other tables of the flow."""
    match table.source:
        case TopicSource(_, parts):
            needs_times = table.mode == "scd2"
            return Relation(ObjectName(parts), None, table.where, table.format, key_of(table), needs_times)
        case ObjectSource(_, parts):
            return Relation(ObjectName(parts), None, table.where, table.format)
        case QuerySource(_, query):
            return Relation(None, query, table.where, table.format)
        case SqlSource():
            raise ValueError(f"{table.id} reads no connection")
        case _:
            assert_never(table.source)


def blame(table: TableSpec, error: FlowctlError | None) -> FlowctlError | None:
    """``error``, which describing or reading the table's relation has raised; if the source does not understand the
    statement, one that blames the SQL of the spec in it. A new one: tables with the same relation share the first."""
    written = {"from.query": isinstance(table.source, QuerySource), "where": table.where is not None}
    paths = [path for path, is_written in written.items() if is_written]
    if not paths or not isinstance(error, StatementRefused):
        return error
    hint = f"Correct {' or '.join(f'`{path}`' for path in paths)}"
    blamed = StatementRefused(error.message, hint=hint, mark=table.mark_of(paths[0]))
    blamed.__cause__ = error
    return blamed


def key_of(table: TableSpec) -> tuple[str, ...]:
    """The names in the source of the key's columns, if rows are replaced by it and all of them are read from there."""
    if table.mode not in ("merge", "scd2") or not {*table.key}.isdisjoint(table.columns.add):
        return ()
    names = {target: source for source, target in table.columns.rename.items()}
    return tuple(names.get(name, name) for name in table.key)


def reports_deletes(table: TableSpec) -> bool:
    """Whether the changes of a table that is read by versions have to report deletions."""
    return isinstance(table.deletes, DetectMissingKeys)


def read_request(
    table: TableSpec, columns: tuple[Column, ...], interval: Interval | None, masked: frozenset[str] = frozenset()
) -> ReadRequest:
    """One read of ``columns``. Of versions: rows that are as before must not be appended again, or hide deletions."""
    key = key_of(table) if reports_deletes(table) else ()
    net = table.mode == "append" or reports_deletes(table)
    return ReadRequest(columns, interval, masked=masked, net=net, key=key)


def objects_of(tables: Iterable[TableSpec]) -> list[ObjectName]:
    """The objects that these tables read, each once."""
    return list(dict.fromkeys(object for table in tables if (object := relation(table).object) is not None))
