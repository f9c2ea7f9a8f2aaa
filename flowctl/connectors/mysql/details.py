"""What `flowctl init` asks about many tables at once: indexes, numbered columns and privileges; and the views."""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.connectors.mysql.catalog import by_schema, find
from flowctl.connectors.mysql.client import MARKER, MysqlConnection
from flowctl.connectors.survey import Details, Index
from flowctl.model.table_info import ObjectName

Place = tuple[str, str]


def details(connection: MysqlConnection, objects: Sequence[ObjectName]) -> dict[ObjectName, Details]:
    """Two queries for each database of ``objects``. Tables that do not exist are left out."""
    places = {object: (found.schema, found.name) for object, found in find(connection, objects).items()}
    indexes: dict[Place, list[Index]] = {}
    numbered: dict[Place, list[str]] = {}
    readable: dict[Place, list[tuple[str, bool]]] = {}
    for schema, names in by_schema(places.values()):
        of_tables = f" WHERE TABLE_SCHEMA = {MARKER} AND TABLE_NAME IN ({', '.join([MARKER] * len(names))})"
        for place, index in _indexes(connection, of_tables, [schema, *names]):
            indexes.setdefault(place, []).append(index)
        for table, name, extra, rights in connection.fetch(
            f"SELECT TABLE_NAME, COLUMN_NAME, EXTRA, PRIVILEGES FROM information_schema.COLUMNS{of_tables}"
            " ORDER BY ORDINAL_POSITION",
            [schema, *names],
        ):
            readable.setdefault((schema, table), []).append((name, "select" in rights.lower()))
            if "auto_increment" in extra.lower():
                numbered.setdefault((schema, table), []).append(name)
    return {
        object: _details(indexes.get(place, ()), numbered.get(place, ()), readable.get(place, ()))
        for object, place in places.items()
    }


def views(connection: MysqlConnection) -> list[ObjectName]:
    """Those of the connection's database."""
    rows = connection.fetch("SELECT TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE()")
    return sorted(ObjectName((name,)) for (name,) in rows)


def _details(indexes: Sequence[Index], numbered: Sequence[str], columns: Sequence[tuple[str, bool]]) -> Details:
    unreadable = tuple(name for name, may_read in columns if not may_read)
    refused = "this user may not read it" if len(unreadable) == len(columns) else ""
    return Details(tuple(indexes), tuple(numbered), unreadable, refused)


def _indexes(connection: MysqlConnection, of_tables: str, names: Sequence[str]) -> list[tuple[Place, Index]]:
    """Only those over columns alone, and over all of their values."""
    found: dict[tuple[Place, str], list[tuple[str | None, bool]]] = {}
    for schema, table, index, column, length, not_unique in connection.fetch(
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NON_UNIQUE"
        f" FROM information_schema.STATISTICS{of_tables} AND INDEX_TYPE IN ('BTREE', 'HASH')"
        " ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
        names,
    ):
        part = (column if length is None else None, not not_unique)
        found.setdefault(((schema, table), index), []).append(part)
    return [
        (place, Index(tuple(str(column) for column, _ in parts), is_unique=parts[0][1]))
        for (place, _), parts in found.items()
        if all(column is not None for column, _ in parts)
    ]
