"""PostgreSQL's DDL, as text from its own type table (`types.ddl`).

Columns of new tables may all be null: delete rows have keys only, a column gone from the source is null from then on.
What must not be null is an expectation in the spec; one that is there already is relaxed when needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowctl.connectors.postgres import dependants
from flowctl.connectors.postgres import types as native
from flowctl.connectors.target import TargetCapabilities
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.model.types import DataType
from flowctl.sql import dialects

#: Longer names are cut by the server without an error. Source: PostgreSQL's `NAMEDATALEN` - 1, bytes.
_NAME_BYTES = 63


def widens(old: DataType, new: DataType) -> bool:
    """``ALTER COLUMN … TYPE`` casts every wider type exactly; int8 is a smallint already, so it never gets there."""
    return types.is_wider(new, old)


def refuses_name(name: str) -> str | None:
    if "\0" in name:
        return "PostgreSQL's names hold no NUL character"
    if len(name.encode()) > _NAME_BYTES:
        return f"PostgreSQL cuts names after {_NAME_BYTES} bytes"
    return None


TARGET_CAPABILITIES = TargetCapabilities(
    widens=widens,
    refuses_names=refuses_name,
)


def create_schema(name: str) -> str:
    return f"CREATE SCHEMA IF NOT EXISTS {quoted(name)}"


def create_statements(object: ObjectName, columns: Sequence[Column]) -> list[str]:
    return [f"CREATE TABLE {table(object.parts)} ({listed(columns)})"]


def sidecar_statements(object: ObjectName, there: TableInfo | None, columns: Sequence[Column]) -> list[str]:
    """What makes a table beside a target have at least ``columns``, with their types."""
    if there is None:
        return create_statements(object, columns)
    have, alter = {column.name: column.type for column in there.columns}, f"ALTER TABLE {table(object.parts)}"
    added = [f"{alter} ADD COLUMN {listed([column])}" for column in columns if column.name not in have]
    other = [column for column in columns if column.name in have and types.is_wider(column.type, have[column.name])]
    widened = [f"{alter} ALTER COLUMN {quoted(one.name)} TYPE {native.ddl(one.type)}" for one in other]
    return [*added, *widened]


def alter_statements(info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    return [
        dependants.refused(info, change) or replace(change, statement=statement(info, change)) for change in changes
    ]


def listed(columns: Sequence[Column]) -> str:
    """``"id" bigint, "name" text``."""
    return ", ".join(f"{quoted(column.name)} {native.ddl(column.type)}" for column in columns)


def table(parts: tuple[str, ...]) -> str:
    return dialects.table(parts, "postgres")


def quoted(name: str) -> str:
    return dialects.quoted(name, "postgres")


def statement(info: TableInfo, change: SchemaChange) -> str:
    """The DDL of one change; empty where none is needed."""
    alter, column = f"ALTER TABLE {table(info.object.parts)}", quoted(change.column)
    match change.action:
        case "add" | "text" if change.new is not None:
            return f"{alter} ADD COLUMN {column} {native.ddl(change.new)}"
        case "widen" if change.new is not None:
            return f"{alter} ALTER COLUMN {column} TYPE {native.ddl(change.new)}"
        case "retype" if change.new is not None:  # what is there goes in the same transaction
            of = f"ALTER COLUMN {column}"
            return f"{alter} {of} DROP NOT NULL, {of} DROP DEFAULT, {of} TYPE {native.ddl(change.new)} USING NULL"
        case "drop":
            return f"{alter} DROP COLUMN {column}"
        case "relax":
            return f"{alter} ALTER COLUMN {column} DROP NOT NULL"
        case _:
            return ""
