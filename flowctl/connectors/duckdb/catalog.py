"""A DuckDB file's metadata: its own catalog functions, and the types that it gives to a query without rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.connectors.duckdb.conditions import DuckdbComparisons
from flowctl.connectors.duckdb.types import data_type, is_plain_text, note_of
from flowctl.connectors.source import Relation
from flowctl.connectors.sql.creator import creator_in
from flowctl.connectors.survey import Details, Index
from flowctl.connectors.target import Fill
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo, view_digest

if TYPE_CHECKING:
    import duckdb

#: What flowctl keeps in the file for itself.
_OWN = "_flowctl_"


@dataclass(frozen=True)
class Found:
    """A table or view, named as in the file. ``rows`` is DuckDB's own estimate, None for a view; ``sql`` creates it.
    ``comment`` is what its owner or flowctl says about it; None for nothing."""

    schema: str
    name: str
    is_table: bool
    rows: int | None
    sql: str
    comment: str | None


def catalog_name(connection: duckdb.DuckDBPyConnection) -> str:
    """The name of the file inside DuckDB."""
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    return str(name)


def comparisons(connection: duckdb.DuckDBPyConnection) -> DuckdbComparisons:
    return DuckdbComparisons(catalog_name(connection))


def table_names(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """Schemas and names of all tables, without DuckDB's and flowctl's own."""
    rows = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables()"
        " WHERE database_name = current_database() AND NOT internal AND NOT temporary"
    ).fetchall()
    return [(schema, name) for schema, name in rows if not name.startswith(_OWN)]


def view_names(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT schema_name, view_name FROM duckdb_views()"
        " WHERE database_name = current_database() AND NOT internal AND NOT temporary"
    ).fetchall()


def details(connection: duckdb.DuckDBPyConnection, objects: Sequence[ObjectName]) -> dict[ObjectName, Details]:
    """Unique constraints and indexes, and columns that a sequence fills; one query each, for all tables."""
    indexes: dict[tuple[str, str], list[Index]] = {}
    for schema, table, columns in connection.execute(_UNIQUE).fetchall():
        indexes.setdefault((schema, table), []).append(Index(tuple(columns), is_unique=True))
    for schema, table, is_unique, parts in connection.execute(_INDEXES).fetchall():
        if not any(part.startswith("(") for part in parts):
            indexes.setdefault((schema, table), []).append(Index(part_names(parts), is_unique))
    numbered: dict[tuple[str, str], list[str]] = {}
    for schema, table, name in connection.execute(_NUMBERED).fetchall():
        numbered.setdefault((schema, table), []).append(name)
    found = {}
    for object in objects:
        schema, table = ("main", *object.parts)[-2:]
        of_table = tuple(indexes.get((schema, table), ()))
        found[object] = Details(of_table, tuple(numbered.get((schema, table), ())))
    return found


def part_names(parts: Sequence[str]) -> tuple[str, ...]:
    """The columns and expressions of an index as DuckDB's errors name them, without quotes. ``parts`` are
    :data:`INDEX_PARTS`."""
    return tuple(_QUOTED.sub(_unquoted, part[1:-1] if part.startswith("(") else part) for part in parts)


def _unquoted(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else found[1].replace('""', '"')


#: The columns of an index as a list of SQL: names, in quotes where they need them, and expressions in parentheses.
INDEX_PARTS = "expressions::VARCHAR[]"
#: A text, or a name in quotes.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")*)\"""")
_UNIQUE = """
    SELECT schema_name, table_name, constraint_column_names FROM duckdb_constraints()
    WHERE database_name = current_database() AND constraint_type IN ('UNIQUE', 'PRIMARY KEY')
"""
_INDEXES = f"""
    SELECT schema_name, table_name, is_unique, {INDEX_PARTS} FROM duckdb_indexes()
    WHERE database_name = current_database() AND expressions IS NOT NULL
"""
_NUMBERED = """
    SELECT schema_name, table_name, column_name FROM duckdb_columns()
    WHERE database_name = current_database() AND column_default LIKE 'nextval(%'
"""


def find(connection: duckdb.DuckDBPyConnection, object: ObjectName) -> Found | None:
    """Names are case-insensitive, as in DuckDB; a name without a schema is in ``main``."""
    wanted = tuple(map(_folded, ("main", *object.parts)[-2:]))
    rows = connection.execute(_FIND, [wanted[1]]).fetchall()
    return next((Found(*row) for row in rows if (_folded(row[0]), _folded(row[1])) == wanted), None)


def describe(
    connection: duckdb.DuckDBPyConnection, object: ObjectName, identity: str, system: str = ""
) -> TableInfo | None:
    found = find(connection, object)
    if found is None:
        return None
    return TableInfo(
        object=object,
        columns=columns(connection, found),
        identity=identity,
        primary_key=primary_key(connection, found) if found.is_table else (),
        rows=RowEstimate() if found.rows is None else RowEstimate(found.rows, "stats"),
        clock=dt.datetime.now(dt.UTC),
        extra={"is_table": found.is_table},
        system=system,
        created_by=creator_in(found.comment or ""),
        view="" if found.is_table else view_digest(found.sql, _version(connection)),
    )


def _version(connection: duckdb.DuckDBPyConnection) -> str:
    ((version,),) = connection.execute("SELECT version()").fetchall()
    return str(version)


def columns(connection: duckdb.DuckDBPyConnection, found: Found) -> tuple[Column, ...]:
    not_null = {name for name, is_nullable, _, _ in _facts(connection, found) if not is_nullable}
    return _columns(connection, f"FROM {_full_name(connection, found)}", not_null)


def _query_columns(connection: duckdb.DuckDBPyConnection, relation: Relation) -> tuple[Column, ...]:
    return _columns(connection, f"SELECT * FROM {comparisons(connection).from_clause(relation)}")


def relation_columns(connection: duckdb.DuckDBPyConnection, relation: Relation) -> tuple[Column, ...] | None:
    """The columns of the object or the query; None if the object does not exist."""
    if relation.object is None:
        return _query_columns(connection, relation)
    found = find(connection, relation.object)
    return columns(connection, found) if found else None


def primary_key(connection: duckdb.DuckDBPyConnection, found: Found) -> tuple[str, ...]:
    rows = connection.execute(
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = current_database()"
        " AND schema_name = ? AND table_name = ? AND constraint_type = 'PRIMARY KEY'",
        [found.schema, found.name],
    ).fetchall()
    return tuple(rows[0][0]) if rows else ()


def filled(connection: duckdb.DuckDBPyConnection, found: Found) -> dict[str, Fill]:
    """Columns that DuckDB fills if a write omits them. Only a table's SQL distinguishes computed ones."""
    fills = dict[str, Fill]()
    for name, _, kind, default in _facts(connection, found):
        if default is None or default.upper() == "NULL":
            continue
        is_computed = re.search(rf"{_declared(name, kind)}(?: COLLATE [^ ]+)? GENERATED ALWAYS AS", found.sql)
        fills[name] = "computed" if is_computed else "default"
    return fills


def collations(connection: duckdb.DuckDBPyConnection, found: Found) -> dict[str, str]:
    """The collations of columns that are declared with one; only a table's SQL has them."""
    declared = {
        name: re.search(rf"{_declared(name, kind)} COLLATE ([^ ,)]+)", found.sql)
        for name, _, kind, _ in _facts(connection, found)
    }
    return {name: named[1] for name, named in declared.items() if named}


def _declared(name: str, kind: str) -> str:
    """A pattern of the column's declaration in its table's SQL."""
    names = f'(?:{re.escape(name)}|"{re.escape(name.replace(chr(34), chr(34) * 2))}")'
    return rf"[(,] ?{names} {re.escape(kind)}"


def _facts(connection: duckdb.DuckDBPyConnection, found: Found) -> list[tuple[str, bool, str, str | None]]:
    """For each column: its name, whether it may be null, its type and its default."""
    return connection.execute(
        "SELECT column_name, is_nullable, data_type, column_default FROM duckdb_columns()"
        " WHERE database_name = current_database() AND schema_name = ? AND table_name = ? ORDER BY column_index",
        [found.schema, found.name],
    ).fetchall()


def _full_name(connection: duckdb.DuckDBPyConnection, found: Found) -> str:
    return comparisons(connection).table((found.schema, found.name))


def _columns(
    connection: duckdb.DuckDBPyConnection, query: str, not_null: frozenset[str] | set[str] = frozenset()
) -> tuple[Column, ...]:
    found = []
    for name, native, *_ in connection.execute(f"{query} LIMIT 0").description:
        kind = data_type(native)
        as_text = kind == types.STRING and not is_plain_text(native)
        note = note_of(native) if as_text else ""
        found.append(Column(name, kind, name not in not_null, str(native), as_text, note))
    return tuple(found)


def _folded(name: str) -> str:
    """As DuckDB compares names: only the letters A to Z have a case."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


_FIND = """
    SELECT schema_name, table_name, true, estimated_size, sql, comment FROM duckdb_tables()
    WHERE database_name = current_database() AND NOT temporary AND lower(table_name) = lower($1)
    UNION ALL
    SELECT schema_name, view_name, false, NULL, sql, comment FROM duckdb_views()
    WHERE database_name = current_database() AND NOT temporary AND lower(view_name) = lower($1)
"""
