"""Spark SQL for Delta tables: DDL for the plan to show, and the one data statement of each mode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from flowctl.connectors.delta import features
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.types import widens
from flowctl.connectors.lake.conditions import quoted
from flowctl.connectors.target import ALIVE, OP_COLUMN, WriteJob
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import Array, Struct
from flowctl.spec.spec import Layout
from flowctl.sql import dialects
from flowctl.sql.difference import KeyBounds, Upsert, merge_statement
from flowctl.sql.versioning import CHANGE_COLUMN, VALID_FROM

TYPE_WIDENING = "delta.enableTypeWidening"
DELETION_VECTORS = "delta.enableDeletionVectors"
CODEC = "delta.parquet.compression.codec"
#: The property that enables a feature that columns need.
_FEATURES = {
    features.TYPE_WIDENING: f"'{TYPE_WIDENING}' = 'true'",
    features.TIMESTAMP_NTZ: "'delta.feature.timestampNtz' = 'supported'",
}


def create_table(table: str, columns: Sequence[Column], layout: Layout) -> str:
    """All columns are nullable: a source's NOT NULL may be dropped at any time, and ``expect`` checks what matters."""
    listed = ", ".join(f"{quoted(column.name)} {types.spark_ddl(column.type)}" for column in columns)
    initial = table_properties(columns, layout)
    properties = ", ".join(f"'{name}' = {dialects.text(value, 'spark')}" for name, value in initial.items())
    return f"CREATE TABLE IF NOT EXISTS {table} ({listed}) USING DELTA{_placement(layout)} TBLPROPERTIES ({properties})"


def table_properties(columns: Sequence[Column], layout: Layout) -> dict[str, str]:
    """The properties of a new table: none that exclude readers without need
    (:mod:`flowctl.connectors.delta.features`)."""
    return {DELETION_VECTORS: str(layout.deletion_vectors).lower(), **_statistics(columns, layout)}


def statistics_columns(columns: Sequence[Column], layout: Layout) -> list[str]:
    """The columns of ``layout.statistics`` that can have any: no partition columns, and none of the types below."""
    kinds = {column.name: column.type for column in columns if column.name not in layout.partition_by}
    listed = [name for name in layout.statistics or () if name in kinds]
    listed = [name for name in listed if not isinstance(kinds[name], Array | Struct)]
    return [name for name in listed if kinds[name] not in (types.BOOL, types.BINARY)]


def _statistics(columns: Sequence[Column], layout: Layout) -> dict[str, str]:
    """Delta's default is the first 32 columns, which costs each written row. It refuses a list with columns that cannot
    have statistics."""
    if layout.statistics is None:
        return {}
    listed = statistics_columns(columns, layout)
    if not listed:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": ",".join(n if _PLAIN_NAME.fullmatch(n) else quoted(n) for n in listed)}


#: Writers other than Spark do not support quoted names in a property, so only names that need quotes have them.
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)


_LISTED_NAME = re.compile(r"`(?:[^`]|``)*`|[^,]+")
_STATS_COLUMNS = "delta.dataSkippingStatsColumns"


def statistics_without(properties: Mapping[str, str], columns: Sequence[Column]) -> dict[str, str]:
    """Changes to a table's ``properties`` once it has only ``columns``; empty for none. Delta refuses every write to a
    table whose list names a column that it does not have."""
    listed = _LISTED_NAME.findall(properties.get(_STATS_COLUMNS, ""))
    have = {form for column in columns for form in (column.name, quoted(column.name))}
    left = [name for name in listed if name.strip() in have]
    return {} if left == listed else {_STATS_COLUMNS: ",".join(left)}


def _placement(layout: Layout) -> str:
    if layout.partition_by:
        return f" PARTITIONED BY ({_names(layout.partition_by)})"
    if layout.cluster_by:
        return f" CLUSTER BY ({_names(layout.cluster_by)})"
    return ""


def add_column(table: str, column: Column) -> str:
    return f"ALTER TABLE {table} ADD COLUMNS ({quoted(column.name)} {types.spark_ddl(column.type)})"


def widen_column(table: str, column: Column) -> str:
    return f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} TYPE {types.spark_ddl(column.type)}"


def turn_on(table: str, feature: str) -> str:
    """``feature`` is one of :mod:`flowctl.connectors.delta.features`."""
    return f"ALTER TABLE {table} SET TBLPROPERTIES ({_FEATURES[feature]})"


def with_statement(table: str, change: SchemaChange) -> SchemaChange:
    """The change with its statement; unchanged if Delta needs none."""
    new = change.new
    match change.action:
        case "add" | "text" if new is not None:
            statement = add_column(table, Column(change.column, new))
        case "widen" if new is not None:
            statement = widen_column(table, Column(change.column, new))
        case "relax":
            statement = f"ALTER TABLE {table} ALTER COLUMN {quoted(change.column)} DROP NOT NULL"
        case "enable":
            statement = turn_on(table, change.column)
        case "retype" | "drop":
            return replace(change, note="by the commit that replaces the content")
        case "add" | "text" | "widen" | "ignore" | "keep" | "null" | "show" | "fail":
            return change
        case _:
            assert_never(change.action)
    return replace(change, statement=statement)


def columns_to_relax(info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    """Columns not in ``changes`` that become nullable: a commit that replaces the schema with the content has no NOT
    NULL."""
    replacing = next((change for change in changes if change.action in ("retype", "drop")), None)
    listed = {change.column for change in changes if change.action in ("retype", "drop", "relax")}
    return [
        SchemaChange(column.name, "nullable", column.type, column.type, "relax", replacing.policy, note="may be null")
        for column in info.columns
        if replacing is not None and not column.nullable and column.name not in listed
    ]


def complete_table(table: str, info: TableInfo, side: WriteJob) -> list[str]:
    """Statements that give a sidecar at least the columns of ``side``, with their types."""
    have = {column.name: column.type for column in info.columns}
    added = [
        SchemaChange(column.name, "new_column", None, column.type, "add", "")
        for column in side.columns
        if column.name not in have
    ]
    widened = [
        SchemaChange(column.name, "wider_type", have[column.name], column.type, "widen", "")
        for column in side.columns
        if column.name in have and widens(have[column.name], column.type)
    ]
    changes = (*added, *widened)
    return [with_statement(table, change).statement for change in (*features.find_missing(info, changes), *changes)]


def insert(table: str, view: str, columns: Sequence[Column], present: Sequence[str]) -> str:
    return f"INSERT INTO {table} {_rows(view, columns, present)}"


def overwrite(table: str, view: str, columns: Sequence[Column], present: Sequence[str]) -> str:
    return f"INSERT OVERWRITE {table} {_rows(view, columns, present)}"


def merge(table: TableLocation, view: str, job: WriteJob, batch_columns: Sequence[str], bounds: KeyBounds) -> str:
    """Upserts and deletes in one statement (:mod:`flowctl.sql.difference`); unchanged rows are left alone.

    ``bounds`` let Delta skip files. They are on key columns only: with bounds on another column, a row that moves to
    another partition would not be found, and would be duplicated.
    """
    change = Upsert(
        target=table.parts,
        batch=(view,),
        columns=tuple(column.name for column in job.columns),
        batch_columns=tuple(batch_columns),
        key=job.key,
        compared=tuple(name for name in job.compared if name in batch_columns),
        operation=OP_COLUMN,
        deleted_at=job.at if job.soft_deletes else None,
        is_ordered=job.is_ordered,
    )
    return merge_statement(change, bounds)


def apply_difference(table: str, view: str, job: WriteJob, bounds: KeyBounds) -> str:
    """Applies ``view``, the rows of :mod:`flowctl.sql.scd2`'s difference. Key and ``valid_from`` identify a version."""
    key, names = job.key, [column.name for column in job.columns]
    within = [f"t.{quoted(name)} BETWEEN {low} AND {high}" for name, (low, high) in bounds.by_column.items()]
    on = " AND ".join([f"t.{quoted(name)} = s.{quoted(name)}" for name in (*key, VALID_FROM)] + within)
    update = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in names if name not in (*key, VALID_FROM))
    values = ", ".join(f"s.{quoted(name)}" for name in names)
    return (
        f"MERGE INTO {table} AS t USING {view} AS s ON {on} "
        f"WHEN MATCHED AND s.{CHANGE_COLUMN} = 'delete' THEN DELETE "
        f"WHEN MATCHED AND s.{CHANGE_COLUMN} = 'put' THEN UPDATE SET {update} "
        f"WHEN NOT MATCHED AND s.{CHANGE_COLUMN} = 'put' THEN INSERT ({_names(names)}) VALUES ({values})"
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _rows(view: str, columns: Sequence[Column], present: Sequence[str]) -> str:
    """A column that the batch does not have (dropped from the source, flowctl's own) is null."""
    values = ", ".join(
        quoted(column.name) if column.name in present else f"CAST(NULL AS {types.spark_ddl(column.type)})"
        for column in columns
    )
    return f"({_names(column.name for column in columns)}) SELECT {values} FROM {view} WHERE {ALIVE}"
