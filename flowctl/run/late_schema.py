"""Types that are known only when Spark has looked: SQL tables and added columns that never ran and declare nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl.connectors.base import Target
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.step import Step
from flowctl.model.table_info import Column, ObjectName
from flowctl.plan.case import Stop
from flowctl.plan.column_names import missing_protected_column, missing_source_column, missing_target_column
from flowctl.plan.projection import ProjectedColumn, own_columns, projection, read_columns, taken_name, untyped
from flowctl.run.spark_types import columns_of, same_types
from flowctl.spec.spec import SqlSource, TableSpec
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def completed(spark: SparkSession, step: Step, table: TableSpec, read: Sequence[Column], target: Target) -> Step:
    """The step as the plan would have had it, had it known the columns ``read`` from the source and the types of what
    `columns.add` makes of them. A target that exists must already have these very columns."""
    if taken := taken_name(table, read):
        raise StoppedByPolicy(taken[0], hint=taken[1], mark=table.mark_of("columns"))
    if isinstance(table.source, SqlSource):  # of other sources the plan knows the columns
        found = {column.name for column in read}
        _must_name(table, missing_source_column(table, found, with_rules=not step.target_exists))
        _must_name(table, missing_protected_column(table, found))
    columns = read_columns(table, read)
    parts = projection(table, columns, _added(spark, table, columns, step.target_columns))
    wanted = (*(part.column for part in parts), *own_columns(table).values())
    there = {column.name for column in (*wanted, *(step.target_columns if step.target_exists else ()))}
    _must_name(table, missing_target_column(table, there))
    if step.target_exists:
        _must_fit(step, parts)
        return replace(step, source_columns=columns, projection=_ordered(step, parts))
    object = ObjectName(table.target.parts)
    statements = tuple(target.create_statements(object, wanted, table.layout))
    return replace(
        step, source_columns=columns, projection=parts, target_columns=wanted, statements=statements, schema=()
    )


def _must_name(table: TableSpec, stop: Stop | None) -> None:
    if stop is not None:
        raise StoppedByPolicy(stop.reason, hint=stop.hint, mark=stop.mark or table.mark_of(stop.path))


def _added(
    spark: SparkSession, table: TableSpec, columns: Sequence[Column], recorded: Sequence[Column]
) -> tuple[Column, ...]:
    """The added columns with the types Spark gives their expressions, found on a frame without rows."""
    from pyspark.sql import functions as f

    unknown = untyped(table, recorded)
    copied = [part for part in projection(table, columns, recorded) if part.source is not None]
    nothing = spark.createDataFrame([], schema_ddl(columns))
    made = nothing.select(
        *[f.expr(part.expression).cast(types.spark_ddl(part.column.type)).alias(part.column.name) for part in copied],
        *[f.expr(sql).alias(name) for name, sql in table.columns.add.items()],
    )
    return (*recorded, *(column for column in columns_of(made.schema) if column.name in unknown))


def _must_fit(step: Step, parts: Sequence[ProjectedColumn]) -> None:
    names = {column.name for column in step.target_columns}
    extra = [part.column.name for part in parts if part.column.name not in names]
    if extra:
        raise TableError(
            f"the target has no column {', '.join(extra)}",
            hint="Declare the types of new columns with columns.types, so that the plan can add them",
        )
    same_types(
        [part.column for part in parts], [c for c in step.target_columns if c.name in {p.column.name for p in parts}]
    )


def _ordered(step: Step, parts: Sequence[ProjectedColumn]) -> tuple[ProjectedColumn, ...]:
    """In the target's order; columns the target keeps and the source has no longer are null."""
    made = {part.column.name: part for part in parts}
    return tuple(made.get(column.name, ProjectedColumn(column, "NULL")) for column in step.target_columns)
