"""Spark SQL for Delta tables: DDL for the plan to show, and the one data statement of each mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from flowctl.connectors.base import OP_COLUMN
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout

SOFT_DELETE_COLUMN = "_deleted_at"
TYPE_WIDENING = "delta.enableTypeWidening"
DELETION_VECTORS = "delta.enableDeletionVectors"


def create_table(table: str, columns: Sequence[Column], layout: Layout) -> str:
    """All columns nullable: a source's NOT NULL may be dropped at any time, and ``expect`` checks what matters."""
    listed = ", ".join(f"{quoted(column.name)} {types.spark_ddl(column.type)}" for column in columns)
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in table_properties(layout).items())
    return f"CREATE TABLE IF NOT EXISTS {table} ({listed}) USING DELTA{_placement(layout)} TBLPROPERTIES ({properties})"


def table_properties(layout: Layout) -> dict[str, str]:
    return {DELETION_VECTORS: str(layout.deletion_vectors).lower(), TYPE_WIDENING: "true"}


def _placement(layout: Layout) -> str:
    if layout.partition_by:
        return f" PARTITIONED BY ({_names(layout.partition_by)})"
    if layout.cluster_by:
        return f" CLUSTER BY ({_names(layout.cluster_by)})"
    return ""


def altered(table: str, change: SchemaChange, has_type_widening: bool) -> SchemaChange:
    """The change with the statement that makes it; unchanged when Delta needs none."""
    column, new = quoted(change.column), change.new
    match change.action:
        case "add" if new is not None:
            statement = f"ALTER TABLE {table} ADD COLUMNS ({column} {types.spark_ddl(new)})"
        case "text":
            statement = f"ALTER TABLE {table} ADD COLUMNS ({quoted(change.column + '__text')} STRING)"
        case "widen" if new is not None:
            statement = f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {types.spark_ddl(new)}"
            if not has_type_widening:
                return replace(change, note=f"needs {TYPE_WIDENING}", statement=statement)
        case "relax":
            statement = f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL"
        case "enable":
            statement = f"ALTER TABLE {table} SET TBLPROPERTIES ('{change.column}' = 'true')"
        case "add" | "widen" | "ignore" | "keep" | "show" | "fail":
            return change
        case _:
            assert_never(change.action)
    return replace(change, statement=statement)


def insert(table: str, view: str, columns: Sequence[Column], present: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({_names(c.name for c in columns)}) SELECT {_values(columns, present)} FROM {view}"


def overwrite(table: str, view: str, columns: Sequence[Column], present: Sequence[str]) -> str:
    return (
        f"INSERT OVERWRITE {table} ({_names(c.name for c in columns)}) SELECT {_values(columns, present)} FROM {view}"
    )


def merge(
    table: str,
    view: str,
    columns: Sequence[Column],
    present: Sequence[str],
    key: Sequence[str],
    compared: Sequence[str],
    bounds: Sequence[str],
    deleted_at: str | None,
) -> str:
    """Upserts and deletes in one statement; a row equal in all ``compared`` columns is left alone.

    ``bounds`` are literal conditions on the target's key columns that hold for the whole batch: they let Delta skip
    files. There are none on other columns: a row that moves to another partition would not be found, and become two.
    ``deleted_at`` is a timestamp's text for soft deletes, None for hard ones.
    """
    changed = [f"NOT (t.{quoted(name)} <=> s.{quoted(name)})" for name in compared]
    gone = "DELETE"
    alive = ""
    if deleted_at is not None:
        marker = f"t.{quoted(SOFT_DELETE_COLUMN)}"
        gone = f"UPDATE SET {marker} = TIMESTAMP '{deleted_at}'"
        alive = f" AND {marker} IS NULL"
        changed.append(f"{marker} IS NOT NULL")
    filled = [column for column in columns if column.name not in key]
    names = [column.name for column in columns]
    on = " AND ".join([f"t.{quoted(name)} = s.{quoted(name)}" for name in key] + list(bounds))
    update = ", ".join(f"t.{quoted(column.name)} = {_value(column, present, 's.')}" for column in filled)
    clauses = [f"WHEN MATCHED AND s.{OP_COLUMN} = 'D'{alive} THEN {gone}"]
    if filled and changed:
        condition = " OR ".join(changed)
        clauses.append(f"WHEN MATCHED AND s.{OP_COLUMN} = 'U' AND ({condition}) THEN UPDATE SET {update}")
    values = ", ".join(_value(column, present, "s.") for column in columns)
    clauses.append(f"WHEN NOT MATCHED AND s.{OP_COLUMN} = 'U' THEN INSERT ({_names(names)}) VALUES ({values})")
    return f"MERGE INTO {table} AS t USING {view} AS s ON {on} " + " ".join(clauses)


def apply_difference(
    table: str, difference: str, columns: Sequence[Column], key: Sequence[str], bounds: Sequence[str]
) -> str:
    """Applies the rows of :mod:`flowctl.sql.scd2`'s difference: a version is its key and ``valid_from``."""
    from flowctl.sql.scd2 import CHANGE_COLUMN, VALID_FROM

    names = [column.name for column in columns]
    on = " AND ".join([f"t.{quoted(name)} = s.{quoted(name)}" for name in (*key, VALID_FROM)] + list(bounds))
    update = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in names if name not in (*key, VALID_FROM))
    values = ", ".join(f"s.{quoted(name)}" for name in names)
    return (
        f"MERGE INTO {table} AS t USING ({difference}) AS s ON {on} "
        f"WHEN MATCHED AND s.{CHANGE_COLUMN} = 'delete' THEN DELETE "
        f"WHEN MATCHED AND s.{CHANGE_COLUMN} = 'put' THEN UPDATE SET {update} "
        f"WHEN NOT MATCHED AND s.{CHANGE_COLUMN} = 'put' THEN INSERT ({_names(names)}) VALUES ({values})"
    )


def key_bounds(key: Sequence[Column], lows: Mapping[str, str], highs: Mapping[str, str]) -> list[str]:
    """``t.k BETWEEN low AND high`` for each key column whose bounds are known as text."""
    return [
        f"t.{quoted(column.name)} BETWEEN {_bound(lows[column.name], column)} AND {_bound(highs[column.name], column)}"
        for column in key
        if column.name in lows
    ]


def _bound(text: str, column: Column) -> str:
    literal = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return literal if column.type == types.STRING else f"CAST({literal} AS {types.spark_ddl(column.type)})"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _names(names: Sequence[str] | object) -> str:
    return ", ".join(quoted(str(name)) for name in names)  # type: ignore[attr-defined]


def _values(columns: Sequence[Column], present: Sequence[str]) -> str:
    return ", ".join(_value(column, present, "") for column in columns)


def _value(column: Column, present: Sequence[str], of: str) -> str:
    """A column that the batch does not have (gone from the source, flowctl's own) is null."""
    if column.name in present:
        return f"{of}{quoted(column.name)}"
    return f"CAST(NULL AS {types.spark_ddl(column.type)})"
