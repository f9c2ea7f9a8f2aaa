"""DDL of every SQL database, from its dialect.

All columns of new tables are nullable: delete rows have keys only, and a column dropped from the source is null from
then on. A column that must not be null is an expectation in the spec; an existing NOT NULL is relaxed when needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.connectors.sql.session import SqlDialect
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo


def create_table(dialect: SqlDialect, object: ObjectName, columns: Sequence[Column]) -> str:
    return f"CREATE TABLE {dialect.table(object.parts)} ({dialect.listed(columns)})"


def completing_statements(
    dialect: SqlDialect, object: ObjectName, there: TableInfo | None, columns: Sequence[Column]
) -> list[str]:
    """The DDL that gives a sidecar at least ``columns``, with types that are wide enough."""
    if there is None:
        return [create_table(dialect, object, columns)]
    have, alter = {column.name: column.type for column in there.columns}, f"ALTER TABLE {dialect.table(object.parts)}"
    added = [f"{alter} ADD COLUMN {dialect.listed([column])}" for column in columns if column.name not in have]
    narrow = [column for column in columns if column.name in have and types.is_wider(column.type, have[column.name])]
    table = dialect.table(object.parts)
    return [*added, *(f"{alter} {_clause(dialect, dialect.widen, table, one)}" for one in narrow if dialect.widen)]


def change_statement(dialect: SqlDialect, object: ObjectName, change: SchemaChange) -> str:
    """The DDL of one change; empty if none is needed, or if the database does not support the change."""
    table = dialect.table(object.parts)
    clause = _change_clause(dialect, table, change)
    return f"ALTER TABLE {table} {clause}" if clause else ""


def is_made(change: SchemaChange, there: TableInfo) -> bool:
    """Whether an earlier attempt already made ``change``, for DDL that does not wait for the commit."""
    column = there.column(change.column)
    match change.action:
        case "add" | "text":
            return column is not None
        case "drop":
            return column is None
        case "relax":
            return column is None or column.nullable
        case "widen" | "retype":
            return column is not None and column.type == change.new
        case _:
            return False


def _change_clause(dialect: SqlDialect, table: str, change: SchemaChange) -> str:
    match change.action:
        case "add" | "text" if change.new is not None:
            return f"ADD COLUMN {dialect.listed([_column(change)])}"
        case "widen" if change.new is not None:
            return _clause(dialect, dialect.widen, table, Column(change.column, change.new))
        case "retype" if change.new is not None:
            return _clause(dialect, dialect.retype, table, _column(change))
        case "drop":
            return f"DROP COLUMN {dialect.quoted(change.column)}"
        case "relax":
            return dialect.relax.format(column=dialect.quoted(change.column))
        case _:
            return ""


def _column(change: SchemaChange) -> Column:
    assert change.new is not None, "the caller has looked"
    return Column(change.column, change.new, native=change.native)


def _clause(dialect: SqlDialect, clause: str, table: str, column: Column) -> str:
    return clause.format(table=table, column=dialect.quoted(column.name), type=dialect.type_of(column))
