"""What is not written or changed in a table of somebody else's, and which unique key refuses a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from flowctl.connectors.mysql.catalog import parts_of
from flowctl.connectors.mysql.client import MARKER, MysqlConnection
from flowctl.connectors.mysql.errors import DUPLICATE, code_of
from flowctl.connectors.sql import hindrances
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.errors import StoppedByPolicy
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.sql import dialects

_KEY = re.compile(r"for key '(?:.*\.)?([^']*)'\s*$")


def following(connection: MysqlConnection, found: Mapping[ObjectName, TableInfo | None]) -> dict[ObjectName, list[str]]:
    """The tables whose rows a foreign key deletes or changes with those of an object."""
    wanted = {parts_of(connection, object): object for object, info in found.items() if info is not None}
    if not wanted:
        return {}
    rows = connection.fetch(
        "SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, TABLE_NAME"
        " FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT')"
        f" AND UNIQUE_CONSTRAINT_SCHEMA IN ({', '.join([MARKER] * len(wanted))})",
        [schema for schema, _ in wanted],
    )
    tables: dict[ObjectName, list[str]] = {}
    for schema, name, table in rows:
        if object := wanted.get((schema, name)):
            tables.setdefault(object, []).append(table)
    return tables


def refuse_write(info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
    if not info.extra.get("is_table", True):
        hint = "Name a table in `to`, an existing one or a new one"
        return StoppedByPolicy(f"{info.object} is a view: rows written to it may not be found in it", hint=hint)
    engine = info.extra.get("engine", "")
    if engine != "InnoDB":
        return StoppedByPolicy(
            f"{info.object} is a table of the engine {engine or 'unknown'}, which does not commit rows together with "
            "their sequence number",
            hint=f"Convert it with ALTER TABLE {info.object} ENGINE = InnoDB, or write to another table",
        )
    tables = info.extra.get("following")
    if tables and (replaces or mode == "scd2"):
        return StoppedByPolicy(
            f"rows of {info.object} would be deleted and rewritten, which through a foreign key deletes or changes "
            f"rows of {hindrances.joined(tables)}",
            hint="Make that foreign key ON DELETE RESTRICT, or drop it",
        )
    return None


def refuse_change(info: TableInfo, change: SchemaChange) -> SchemaChange | None:
    """``change``, which has its statement, as one that stops the table; None if the server can make it."""
    if change.action == "relax":
        column = info.column(change.column)
        if change.column in info.primary_key:
            note, step = "may be null, and the primary key has it", "Drop the primary key: a UNIQUE key takes nulls"
            return replace(change, action="fail", statement="", note=note, next_step=step)
        if column is None or " comment " in column.native:
            return None
    if change.action == "drop" and change.column in info.primary_key:
        note, step = "in use by the primary key", hindrances.drop_them(["the primary key"])
        return replace(change, action="fail", statement="", note=note, next_step=step)
    return None


def violated_constraint(
    connection: MysqlConnection, object: ObjectName, error: BaseException | None
) -> Constraint | None:
    """A unique key of ``object``, never of another table that a trigger writes."""
    if error is None or code_of(error) != DUPLICATE:
        return None
    found = _KEY.search(str(error.args[1]))
    schema, name = parts_of(connection, object)
    if found is None or not _is_of(str(error.args[1]), name):
        return None
    key = found[1]
    rows = connection.fetch(
        "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0"
        f" AND TABLE_SCHEMA = {MARKER} AND TABLE_NAME = {MARKER} AND INDEX_NAME = {MARKER} ORDER BY SEQ_IN_INDEX",
        [schema, name, key],
    )
    if not rows:
        return None
    table, columns = dialects.table((schema, name), "mysql"), ", ".join(column or "…" for (column,) in rows)
    if key == "PRIMARY":
        return Constraint(f"PRIMARY KEY ({columns})", removal=f"ALTER TABLE {table} DROP PRIMARY KEY")
    removal = f"ALTER TABLE {table} DROP INDEX {dialects.quoted(key, 'mysql')}"
    return Constraint(f"{key} ({columns})", removal=removal)


def _is_of(message: str, table: str) -> bool:
    """MySQL 8 names the table of the key, older versions and MariaDB only the key."""
    named = re.search(r"for key '(.*)\.[^'.]*'\s*$", message)
    return named is None or named[1] == table
