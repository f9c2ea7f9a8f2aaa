"""What is not written or changed in a table of somebody else's, and which unique key refuses a row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.connectors.mysql.catalog import VERSIONED, by_schema, parts_of
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


def keeps_versions(connection: MysqlConnection, found: Mapping[ObjectName, TableInfo | None]) -> bool:
    """Whether the server refuses to alter system-versioned tables, as it does unless it is set up to alter the earlier
    versions of their rows, too. Asked only if one of ``found`` is such a table: other servers do not know it."""
    if not any(info.extra["kind"] == VERSIONED for info in found.values() if info is not None):
        return False
    ((setting,),) = connection.fetch(f"SELECT @@{_ALTER_HISTORY}")
    return str(setting) != "KEEP"


_ALTER_HISTORY = "system_versioning_alter_history"


def refuse_write(info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
    if not info.extra.get("is_table", True):
        hint = "Name a table in `to`, an existing one or a new one"
        if info.extra["kind"] == "SEQUENCE":
            return StoppedByPolicy(f"{info.object} is a sequence, which takes no rows", hint=hint)
        return StoppedByPolicy(f"{info.object} is a view: rows written to it may not be found in it", hint=hint)
    engine = info.extra.get("engine", "")
    if engine != "InnoDB":
        return StoppedByPolicy(
            f"{info.object} is a table of the engine {engine or 'unknown'}, which does not commit rows together with "
            "their sequence number",
            hint=f"Run ALTER TABLE {info.object} ENGINE = InnoDB, or write to another table",
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
    name = change.column
    if info.extra.get("keeps_versions") and info.extra["kind"] == VERSIONED:
        note = f"cannot be added or changed: the table is system-versioned, and {_ALTER_HISTORY} is ERROR there"
        step = f"Run SET GLOBAL {_ALTER_HISTORY} = KEEP, or alter the table yourself in a session that sets it"
        return _refused(change, note, step)
    if change.action == "relax" and name in info.primary_key:
        return _refused(
            change, "may be null, and the primary key has it", "Drop the primary key: a UNIQUE key takes nulls"
        )
    if change.action in ("relax", "widen") and name not in info.extra.get("altered", {name: ""}):
        note = "it has a default, a comment or an attribute, which would be lost"
        return _refused(change, note, f"Change it with ALTER TABLE {info.object} MODIFY COLUMN {name} … yourself")
    uses: Sequence[Use] = info.extra.get("uses", {}).get(name, ())
    names = [use.name for use in uses if change.action == "drop" or (change.action == "retype" and not use.by_column)]
    if names:
        return _refused(change, f"in use by {hindrances.joined(names)}", hindrances.drop_them(names))
    return None


def _refused(change: SchemaChange, note: str, next_step: str) -> SchemaChange:
    return replace(change, action="fail", statement="", note=note, next_step=next_step)


@dataclass(frozen=True)
class Use:
    """What a column is part of, as people know it. ``by_column``: a computed column, which only needs the name."""

    name: str
    by_column: bool = False


def uses_of(
    connection: MysqlConnection, found: Mapping[ObjectName, TableInfo | None]
) -> dict[ObjectName, dict[str, list[Use]]]:
    """For each column: its keys and indexes, from which MySQL would drop it; computed columns and constraints that name
    it. Three queries for each database."""
    objects = {parts_of(connection, object): object for object, info in found.items() if info is not None}
    used: dict[ObjectName, dict[str, list[Use]]] = {object: {} for object in objects.values()}
    for schema, names in by_schema(objects):
        of_tables = f"TABLE_SCHEMA = {MARKER} AND TABLE_NAME IN ({', '.join([MARKER] * len(names))})"
        for table, column, index in connection.fetch(
            f"SELECT TABLE_NAME, COLUMN_NAME, INDEX_NAME FROM information_schema.STATISTICS WHERE {of_tables}"
            " AND COLUMN_NAME IS NOT NULL ORDER BY INDEX_NAME",
            [schema, *names],
        ):
            use = Use("the primary key" if index == "PRIMARY" else f"index {index}")
            _listed(used, objects, schema, table, column).append(use)
        for query, is_column in ((_COMPUTED, True), (_CHECKS[connection.facts.is_mariadb], False)):
            for table, name, expression in connection.fetch(query + of_tables, [schema, *names]):
                info = found.get(objects.get((schema, table), ObjectName(("",))))
                use = Use(f"the computed column {name}" if is_column else f"constraint {name}", is_column)
                for column in info.columns if info else ():
                    if _names(str(expression), column.name):
                        _listed(used, objects, schema, table, column.name).append(use)
    return used


_COMPUTED = (
    "SELECT TABLE_NAME, COLUMN_NAME, GENERATION_EXPRESSION FROM information_schema.COLUMNS"
    " WHERE GENERATION_EXPRESSION <> '' AND "
)
#: By whether the server is a MariaDB, whose names of constraints are those of one table.
_CHECKS = {
    True: "SELECT TABLE_NAME, CONSTRAINT_NAME, CHECK_CLAUSE FROM (SELECT *, CONSTRAINT_SCHEMA AS TABLE_SCHEMA"
    " FROM information_schema.CHECK_CONSTRAINTS WHERE LEVEL = 'Table') AS found WHERE ",
    False: "SELECT TABLE_NAME, CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS"
    " JOIN information_schema.TABLE_CONSTRAINTS USING (CONSTRAINT_SCHEMA, CONSTRAINT_NAME) WHERE ",
}


def _names(expression: str, column: str) -> bool:
    """The server quotes names in the session's way, or in its own."""
    return any(dialects.quoted(column, way) in expression for way in ("mysql", "postgres"))


def _listed(
    used: dict[ObjectName, dict[str, list[Use]]],
    objects: Mapping[tuple[str, str], ObjectName],
    schema: str,
    table: str,
    column: str,
) -> list[Use]:
    object = objects.get((schema, table))
    return used[object].setdefault(column, []) if object is not None else []


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
