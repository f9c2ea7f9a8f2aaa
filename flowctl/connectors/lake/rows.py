"""New rows in the form of their table: its columns, in its order and types, null where a row has no value."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.arrow import arrow_schema, moment
from flowctl.connectors.buffered import where_equal
from flowctl.connectors.lake.conditions import quoted
from flowctl.connectors.refusal import PREFIX, error_of
from flowctl.connectors.target import ALIVE, OP_COLUMN, WriteJob
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import frame_in_order
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql.difference import SOFT_DELETED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@contextmanager
def view_of(frame: DataFrame) -> Iterator[str]:
    """A temporary view of ``frame`` with a unique name: classic and Connect sessions both support it in SQL."""
    name = f"flowctl_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def with_operations(frame: DataFrame) -> DataFrame:
    """A batch without the operation column has no deletions."""
    from pyspark.sql import functions as f

    return frame if OP_COLUMN in frame.columns else frame.withColumn(OP_COLUMN, f.lit("U"))


def with_marks(rows: Batch, job: WriteJob) -> Batch:
    """If changes have an order, deletions become deleted rows, which keep it."""
    if not (job.is_ordered and job.soft_deletes) or OP_COLUMN not in rows.names:
        return rows
    match rows:
        case InMemory(held):
            import pyarrow as pa
            import pyarrow.compute as pc

            at = moment(job.at)
            marks = pc.if_else(pc.equal(held[OP_COLUMN], "D"), at, pa.scalar(None, at.type))
            return InMemory(held.drop_columns([OP_COLUMN]).append_column(SOFT_DELETED, marks))
        case OnEngine(frame):
            from pyspark.sql import functions as f

            is_deleted = f.col(quoted(OP_COLUMN)) == "D"
            marks = f.when(is_deleted, f.lit(job.at).cast("timestamp"))
            return OnEngine(frame.withColumn(SOFT_DELETED, marks).drop(OP_COLUMN))
        case _:
            assert_never(rows)


def live_rows(rows: Batch, table: Sequence[Column], job: WriteJob) -> Batch:
    """The rows of a batch, without its deletions; but see :func:`with_marks`."""
    rows = with_marks(rows, job)
    match rows:
        case InMemory():
            return in_order(where_equal(rows, OP_COLUMN, "U") if OP_COLUMN in rows.names else rows, table)
        case OnEngine(frame):
            return OnEngine(live_frame(frame, table))
        case _:
            assert_never(rows)


def live_frame(frame: DataFrame, table: Sequence[Column]) -> DataFrame:
    present = frame.columns  # queried once: a Spark Connect server connects to the source each time
    return frame_in_order(frame.where(ALIVE) if OP_COLUMN in present else frame, table, present)


def in_order(rows: Batch, table: Sequence[Column]) -> Batch:
    match rows:
        case InMemory(held):
            return InMemory(rows_in_order(held, table))
        case OnEngine(frame):
            return OnEngine(frame_in_order(frame, table))
        case _:
            assert_never(rows)


def rows_in_order(rows: pa.Table, table: Sequence[Column]) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(table)
    values = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(values, schema=schema)


@dataclass(frozen=True)
class Refusal:
    """What ``column`` must not contain: one of ``values``, or null if there are none."""

    column: Column
    message: str
    values: tuple[str, ...] = ()


def nulls_refused(columns: Sequence[Column]) -> list[Refusal]:
    """Refusals of nulls in columns that are NOT NULL."""
    return [Refusal(column, _null_in(column.name)) for column in columns if not column.nullable]


def _null_in(name: str) -> str:
    hint = f"Let it be null in the target, or quarantine such rows: expect: [{{column: {name}, not_null: true}}]"
    return f"column {name} is NOT NULL in the target, and a row has no value for it | {hint}"


def refuse(rows: Batch, refusals: Sequence[Refusal]) -> Batch:
    """Returns ``rows``, which fail at the first refused value: immediately if in memory, otherwise when computed."""
    match rows:
        case InMemory(held):
            for refusal in refusals:
                if _is_in(held[refusal.column.name], refusal.values):
                    raise error_of(refusal.message)
            return rows
        case OnEngine(frame):
            return OnEngine(_refuse_on_engine(frame, refusals)) if refusals else rows
        case _:
            assert_never(rows)


def _is_in(column: pa.ChunkedArray, values: tuple[str, ...]) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.any(pc.is_in(column, pa.array(values))).as_py() if values else column.null_count)


def _refuse_on_engine(frame: DataFrame, refusals: Sequence[Refusal]) -> DataFrame:
    from pyspark.sql import functions as f

    for refusal in refusals:
        name, value = refusal.column.name, f.col(quoted(refusal.column.name))
        failed = f.raise_error(f.lit(f"{PREFIX}{refusal.message}")).cast(types.spark_ddl(refusal.column.type))
        is_refused = value.isin(*refusal.values) if refusal.values else value.isNull()
        frame = frame.withColumn(name, f.when(is_refused, failed).otherwise(value))
    return frame
