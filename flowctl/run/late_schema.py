"""Types that only Spark can determine: of SQL tables and added columns that declare no types and never ran, or whose
sources now have other types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl.connectors.target import Target
from flowctl.engine.spark_types import columns_of
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Recover
from flowctl.model.table_info import Column
from flowctl.observe.world import Observed
from flowctl.plan import checks
from flowctl.plan.case import Case
from flowctl.plan.column_names import (
    dropped_notes,
    missing_protected_column,
    missing_source_column,
)
from flowctl.plan.finding import Stop
from flowctl.plan.projection import projection, read_columns, taken_name, untyped
from flowctl.plan.refusals import refuse_columns
from flowctl.plan.shape import shape
from flowctl.run.attempt import RunContext
from flowctl.spec.spec import SqlSource, TableSpec
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def completed(
    spark: SparkSession, step: Load | Recover, read: Sequence[Column], target: Target, run: RunContext
) -> tuple[Columns, tuple[str, ...]]:
    """The step's columns and notes, as the plan would have computed them from the columns ``read`` from the source and
    the types of the expressions in `columns.add`. Changes to an existing target follow the same policies."""
    table, state = run.tables[step.id], run.states(step.id)
    if taken := taken_name(table, read):
        raise StoppedByPolicy(taken[0], hint=taken[1], mark=table.mark_of("columns"))
    exists, notes = step.table.seen.exists, tuple[str, ...]()
    if isinstance(table.source, SqlSource):  # the plan knows the columns of other sources
        there = [column.name for column in read]
        _refuse(table, missing_source_column(table, there, with_rules=not exists))
        _refuse(table, missing_protected_column(table, there, state))
        notes = tuple(dropped_notes(table, there, state))
    added = _added(spark, table, read_columns(table, read))
    object = table.target.object
    info = target.describe([object])[object] if exists else None
    if exists and info is None:
        raise TableError(f"{table.target} is gone", hint="Plan again")
    case = Case(
        table,
        Observed(run.sources.get(step.id), info),
        replace(state, intent=None),
        target,
        full_refresh=step.refresh,
        spec_path=run.spec.argument,
        spark_url=run.spec.spark.url,
    )
    fitted = shape(case, read, added)
    _refuse(table, refuse_columns(case, fitted))
    return fitted, (*notes, *checks.of_nulls(table, fitted))


def _refuse(table: TableSpec, stop: Stop | None) -> None:
    if stop is not None:
        raise StoppedByPolicy(stop.reason, hint=stop.hint, mark=stop.mark or table.mark_of(stop.path))


def _added(spark: SparkSession, table: TableSpec, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The added columns with the types that Spark gives their expressions, derived from a frame without rows."""
    from pyspark.sql import functions as f

    unknown = untyped(table, ())
    if not unknown:
        return ()
    copied = [part for part in projection(table, columns) if part.source is not None]
    nothing = spark.createDataFrame([], schema_ddl(columns))
    made = nothing.select(
        *[f.expr(part.expression).cast(types.spark_ddl(part.column.type)).alias(part.column.name) for part in copied],
        *[f.expr(sql).alias(name) for name, sql in table.columns.add.items()],
    )
    return tuple(column for column in columns_of(made.schema) if column.name in unknown)
