"""SQLite's DDL, as text from its own type table (`types.declared`).

Columns of new tables may all be null: delete rows have keys only, a column gone from the source is null from then on,
and SQLite cannot take a NOT NULL back. What must not be null is an expectation in the spec.
SQLite changes no column's type in place; a wider type is an "other type change" here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowctl.connectors.sqlite import dropping
from flowctl.connectors.sqlite.types import declared
from flowctl.connectors.target import TargetCapabilities
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.sql import dialects

TARGET_CAPABILITIES = TargetCapabilities(
    widens=lambda old, new: False,
)


def create_statements(object: ObjectName, columns: Sequence[Column]) -> list[str]:
    listed = ", ".join(f"{_quoted(column.name)} {declared(column.type)}" for column in columns)
    return [f"CREATE TABLE {_quoted(object.parts[-1])} ({listed})"]


def sidecar_statements(object: ObjectName, have: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """What makes a table beside a target, which has the columns ``have`` (none: it is not there), have ``columns``."""
    if not have:
        return create_statements(object, columns)
    table, missing = _quoted(object.parts[-1]), [column for column in columns if column.name not in have]
    return [f"ALTER TABLE {table} ADD COLUMN {_quoted(one.name)} {declared(one.type)}" for one in missing]


def alter_statements(info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    return [_with_statement(info, change) for change in changes]


def _with_statement(info: TableInfo, change: SchemaChange) -> SchemaChange:
    match change.action:
        case "add" | "text" if change.new is not None:
            table, column = _quoted(info.object.parts[-1]), _quoted(change.column)
            return replace(change, statement=f"ALTER TABLE {table} ADD COLUMN {column} {declared(change.new)}")
        case "drop":
            table, column = _quoted(info.object.parts[-1]), _quoted(change.column)
            drop = replace(change, statement=f"ALTER TABLE {table} DROP COLUMN {column}")
            return dropping.refused(info, drop) or drop
        case "retype":
            return replace(change, action="fail", note="SQLite cannot change a column's type; drop the table")
        case "relax":
            return replace(change, action="fail", note="SQLite cannot take NOT NULL from a column; copy the table")
        case _:
            return change


def _quoted(name: str) -> str:
    return dialects.quoted(name, "sqlite")
