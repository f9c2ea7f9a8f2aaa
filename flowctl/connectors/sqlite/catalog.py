"""An SQLite file's metadata: `sqlite_master`, the table pragmas, and ANALYZE's statistics."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from dataclasses import dataclass
from typing import Any

from flowctl.connectors.source import Relation
from flowctl.connectors.sql.creator import creator_in
from flowctl.connectors.sqlite.conditions import SqliteComparisons
from flowctl.connectors.sqlite.database import quoted
from flowctl.connectors.sqlite.types import data_type
from flowctl.connectors.survey import Details, Index
from flowctl.connectors.target import Fill
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo, view_digest

#: `hidden` of a generated column, virtual or stored. Source: SQLite's `PRAGMA table_xinfo`.
_GENERATED = (2, 3)


#: Key in ``extra`` of a target's info: whether the table is STRICT, where a column of type ANY changes nothing.
IS_STRICT = "is_strict"


@dataclass(frozen=True)
class Found:
    """A table or view, named as in the file. Only in tables with a rowid can a row be named. ``creator`` is the id of
    the intent that made it; empty if another has. ``sql`` creates it."""

    name: str
    is_table: bool
    has_rowid: bool
    creator: str
    sql: str


def table_names(connection: sqlite3.Connection) -> list[str]:
    """Tables, without SQLite's and flowctl's own, and without shadow tables, in which a virtual table (FTS5, R-Tree)
    keeps its rows. SQLite before 3.37 does not tell which these are."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if sqlite3.sqlite_version_info >= (3, 37):
        query += " AND name NOT IN (SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow')"
    names = [name for (name,) in connection.execute(query)]
    return [name for name in names if not name.lower().startswith(("sqlite_", "_flowctl_"))]


def view_names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]


def find(connection: sqlite3.Connection, object: ObjectName) -> Found | None:
    """Names are case-insensitive, as in SQLite."""
    row = connection.execute(
        "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = lower(?)",
        [object.parts[-1]],
    ).fetchone()
    if row is None:
        return None
    name, kind, sql = row
    without_rowid = re.search(r"\)[^)]*\bWITHOUT\s+ROWID\b[^)]*$", sql or "", re.IGNORECASE)
    return Found(name, kind == "table", kind == "table" and not without_rowid, creator_in(sql or ""), sql or "")


def describe(
    connection: sqlite3.Connection, object: ObjectName, identity: str, now: dt.datetime, system: str = ""
) -> TableInfo | None:
    found = find(connection, object)
    if found is None:
        return None
    return TableInfo(
        object=object,
        columns=columns(connection, found.name),
        identity=identity,
        primary_key=primary_key(connection, found.name),
        rows=statistics(connection, found),
        clock=now,
        extra={"is_table": found.is_table},
        system=system,
        created_by=found.creator,
        view="" if found.is_table else view_digest(found.sql),
    )


def is_strict(connection: sqlite3.Connection, object: ObjectName) -> bool:
    """SQLite before 3.37 opens no file that has such a table."""
    if sqlite3.sqlite_version_info < (3, 37):
        return False
    query = "SELECT strict FROM pragma_table_list(?) WHERE schema = 'main'"
    return any(strict for (strict,) in connection.execute(query, [object.parts[-1]]))


def columns(connection: sqlite3.Connection, name: str) -> tuple[Column, ...]:
    """Includes generated columns, but not the hidden ones of virtual tables (``hidden`` is 1)."""
    return tuple(_column(row) for row in _pragma(connection, name) if row[6] != 1)


def primary_key(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    keyed = [row for row in _pragma(connection, name) if row[5]]
    return tuple(row[1] for row in sorted(keyed, key=lambda row: row[5]))


def details(connection: sqlite3.Connection, object: ObjectName) -> Details:
    """Indexes that cover all rows, by columns alone; and the integer that is the rowid, if there is one."""
    found = find(connection, object)
    if found is None:
        return Details()
    indexes: dict[str, tuple[bool, list[str | None]]] = {}
    for index, is_unique, name in connection.execute(_INDEXES, [found.name]):
        indexes.setdefault(index, (bool(is_unique), []))[1].append(name)
    listed = [
        Index(tuple(name for name in names if name is not None), is_unique)
        for is_unique, names in indexes.values()
        if None not in names  # an expression
    ]
    numbered = [
        row[1] for row in _pragma(connection, found.name) if found.has_rowid and row[5] and row[2].upper() == "INTEGER"
    ]
    is_alone = len(primary_key(connection, found.name)) == 1
    return Details(tuple(listed), tuple(numbered) if is_alone else ())


_INDEXES = """
    SELECT l.name, l."unique", i.name
    FROM pragma_index_list(?) l JOIN pragma_index_info(l.name) i
    WHERE NOT l.partial ORDER BY l.seq, i.seqno
"""


def filled(connection: sqlite3.Connection, object: ObjectName) -> dict[str, Fill]:
    """Columns that SQLite fills if a write omits them. An integer that is the rowid counts as a default."""
    found = find(connection, object)
    if found is None:
        return {}
    rows, fills = _pragma(connection, found.name), dict[str, Fill]()
    keyed = [row[1] for row in rows if row[5]]
    for _, name, declared, _, default, _, hidden in rows:
        if hidden in _GENERATED:
            fills[name] = "computed"
        elif str(default or "NULL").upper() != "NULL" or (
            found.has_rowid and keyed == [name] and declared.upper() == "INTEGER"
        ):
            fills[name] = "default"
    return fills


def _query_columns(connection: sqlite3.Connection, relation: Relation) -> tuple[Column, ...]:
    """Uses a temporary view, which has the declared types of columns that the query passes on; it is kept in memory
    only."""
    view = "flowctl_described_query"
    connection.execute(f"CREATE TEMP VIEW {view} AS SELECT * FROM {SqliteComparisons().from_clause(relation)}")
    try:
        return tuple(_column(row) for row in _pragma(connection, view))
    finally:
        connection.execute(f"DROP VIEW temp.{view}")


def relation_columns(connection: sqlite3.Connection, relation: Relation) -> tuple[Column, ...] | None:
    """The columns of the object or the query; None if the object does not exist."""
    if relation.object is None:
        return _query_columns(connection, relation)
    found = find(connection, relation.object)
    return columns(connection, found.name) if found else None


def statistics(connection: sqlite3.Connection, found: Found) -> RowEstimate:
    """ANALYZE's count if there is one; else the greatest rowid, which is cheap and exact if no row was deleted."""
    if not found.is_table:
        return RowEstimate()
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'").fetchone():
        row = connection.execute("SELECT stat FROM sqlite_stat1 WHERE tbl = ? LIMIT 1", [found.name]).fetchone()
        if row:
            return RowEstimate(int(row[0].split()[0]), "stats")
    if not found.has_rowid:
        return RowEstimate()
    (greatest,) = connection.execute(f"SELECT max(rowid) FROM {quoted(found.name)}").fetchone()
    return RowEstimate(greatest or 0, "stats")


def _pragma(connection: sqlite3.Connection, name: str) -> list[tuple[Any, ...]]:
    """Rows of (cid, name, declared type, not null, default, position in the key, hidden)."""
    return connection.execute("SELECT * FROM pragma_table_xinfo(?)", [name]).fetchall()


def _column(row: tuple[Any, ...]) -> Column:
    """Only a rowid alias and NOT NULL columns exclude nulls: in SQLite, other key columns may hold them."""
    _, name, declared, not_null, _, key_position, _ = row
    kind = data_type(declared)
    rowid_alias = bool(key_position) and declared.upper() == "INTEGER"
    return Column(
        name=name,
        type=kind,
        nullable=not (not_null or rowid_alias),
        native=declared,
        as_text=kind == types.STRING and "DECIMAL" in declared.upper(),
        note="" if declared else "no declared type: read as text",
    )
