"""Which changes of a table and which keys DuckDB does not support, and which unique constraint refuses a row. A change
is tested on a copy of the file's schema in memory: only DuckDB itself knows what its indexes, constraints and computed
columns use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.duckdb import MAIN, catalog
from flowctl.connectors.duckdb.database import SETTINGS, first_line
from flowctl.connectors.sql import hindrances
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.sql import dialects

if TYPE_CHECKING:
    import duckdb

#: Key in ``extra`` of a target's info: the statements that create the objects of the file.
SCHEMA = "schema"
#: Key in ``extra`` of a target's info: the collations of its columns, by name.
COLLATIONS = "collations"
#: Those that compare all of a text.
_EXACT = ("binary", "c", "posix")
_ANEW = "Drop the table and run it with --full-refresh"
_SCHEMA_OF = """
    SELECT 'CREATE SCHEMA IF NOT EXISTS "' || replace(schema_name, '"', '""') || '"' FROM duckdb_schemas()
    WHERE database_name = current_database() AND NOT internal
    UNION ALL SELECT sql FROM duckdb_sequences() WHERE database_name = current_database()
    UNION ALL SELECT sql FROM (
        SELECT sql FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal ORDER BY table_oid
    )
    UNION ALL SELECT sql FROM duckdb_indexes() WHERE database_name = current_database()
"""
_DUPLICATE = re.compile(r'(?i)duplicate key "(?P<key>.*)"(?: violates (?P<kind>primary key|unique))?', re.DOTALL)
_CONSTRAINTS = """
    SELECT constraint_type, constraint_column_names FROM duckdb_constraints()
    WHERE database_name = current_database() AND schema_name = ? AND table_name = ?
        AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')
"""
_INDEXES = f"""
    SELECT schema_name, index_name, is_unique, {catalog.INDEX_PARTS} FROM duckdb_indexes()
    WHERE database_name = current_database() AND schema_name = ? AND table_name = ? ORDER BY index_name
"""


def schema_of(connection: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """The CREATE statements of the file, in an order in which they can run."""
    return tuple(sql for (sql,) in connection.execute(_SCHEMA_OF).fetchall() if sql)


def refuse_change(info: TableInfo, change: SchemaChange) -> SchemaChange | None:
    """``change``, which has its statement, as one that stops the table; None if DuckDB can make it."""
    if not change.statement or not info.extra.get(SCHEMA):
        return None
    with _copy_of(info) as copy:
        why = _tried(copy, change.statement)
        if not why:
            return None
        found = catalog.find(copy, info.object)
        indexes = _fetch(copy, _INDEXES, found) if found else []
        for schema, name, *_ in indexes:
            copy.execute(f"DROP INDEX {dialects.table((schema, name), 'duckdb')}")
        if indexes and not _tried(copy, change.statement):
            names = [f"index {name}" for _, name, *_ in indexes]
            note, next_step = f"in use by {hindrances.joined(names)}", hindrances.drop_them(names)
            return replace(change, action="fail", statement="", note=note, next_step=next_step)
    if change.change == "new_column" and change.column.lower() in {one.name.lower() for one in info.columns}:
        return None  # the plan tells what to do about a name that differs only in case
    return replace(change, action="fail", statement="", note=f"DuckDB says: {why}", next_step=_ANEW)


@contextmanager
def _copy_of(info: TableInfo) -> Iterator[duckdb.DuckDBPyConnection]:
    """The file's schema, in memory."""
    import duckdb

    statements: Sequence[str] = info.extra.get(SCHEMA, ())
    with closing(duckdb.connect(config=SETTINGS)) as copy:
        for sql in statements:
            with suppress(duckdb.Error):  # such as a table that uses an extension
                copy.execute(sql)
        yield copy


def refuse_key(info: TableInfo, key: Sequence[str]) -> tuple[str, str] | None:
    """See :meth:`flowctl.connectors.target.TargetRules.refuse_key`."""
    folded = {name.lower() for name in key}
    for name, collation in info.extra.get(COLLATIONS, {}).items():
        if name.lower() not in folded or collation.lower() in _EXACT:
            continue
        table, column = dialects.table(info.object.parts, "duckdb"), dialects.quoted(name, "duckdb")
        statement = f"ALTER TABLE {table} ALTER COLUMN {column} TYPE VARCHAR"
        with _copy_of(info) as copy:
            is_possible = not _tried(copy, statement)
        repair = f"Run `{statement}`" if is_possible else f"Create the table again, with {name} VARCHAR"
        return hindrances.coarse_key(info, name, f"collation is {collation}", repair)
    return None


def _tried(copy: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Why the statement fails; empty if it does not."""
    import duckdb

    try:
        copy.execute(statement)
    except duckdb.Error as error:
        return first_line(error).partition(": ")[2]
    return ""


def violated_constraint(
    connection: duckdb.DuckDBPyConnection, table: ObjectName, error: Exception
) -> Constraint | None:
    """A constraint of ``table``. DuckDB does not report its name: a statement reports the columns of the key and their
    values, a commit the values only, so that several constraints may be meant."""
    import duckdb

    refused = _DUPLICATE.search(str(error))
    found = catalog.find(connection, table)
    if not isinstance(error, duckdb.Error) or refused is None or found is None:
        return None
    key, kind = refused["key"], (refused["kind"] or "").upper()
    of_table = [
        (names, Constraint(name, removal=f"DROP INDEX {_full(schema, name)}"))
        for schema, name, is_unique, parts in _fetch(connection, _INDEXES, found)
        for names in (catalog.part_names(parts),)
        if is_unique and kind != "PRIMARY KEY"
    ]
    of_table += [
        (names, Constraint(f"{of_kind} ({', '.join(names)})"))
        for of_kind, names in _fetch(connection, _CONSTRAINTS, found)
        if not kind or of_kind == kind
    ]
    meant = [constraint for names, constraint in of_table if not kind or _is_key_of(key, names)]
    if len(meant) > 1:
        return Constraint(" or ".join(one.name for one in meant))
    return meant[0] if meant else None


def _fetch(connection: duckdb.DuckDBPyConnection, query: str, found: catalog.Found) -> list[tuple[Any, ...]]:
    return connection.execute(query, [found.schema, found.name]).fetchall()


def _is_key_of(key: str, names: Sequence[str]) -> bool:
    """Whether ``key`` (``a: 1, b: x``) has values of exactly these columns."""
    return re.fullmatch(", ".join(f"{re.escape(name)}: .*?" for name in names), key, re.DOTALL) is not None


def _full(schema: str, name: str) -> str:
    parts = (name,) if schema == MAIN else (schema, name)
    return dialects.table(parts, "duckdb")
