"""New rows as a table takes them: its columns, in its order and types, null where a row has no value."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.buffered import where_equal
from flowctl.connectors.delta import batch
from flowctl.connectors.delta.statements import quoted
from flowctl.connectors.target import OP_COLUMN
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def live_rows(rows: Batch, columns: Sequence[Column], table: Sequence[Column]) -> Batch:
    """All rows of a batch that deletes nothing; ``columns`` are the batch's own."""
    if isinstance(rows, OnEngine):
        present = {column.name for column in columns}
        return OnEngine(frame_in_order(batch.alive(rows.frame, columns), table, present))
    return in_order(where_equal(rows, OP_COLUMN, "U") if OP_COLUMN in rows.names else rows, table)


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


def frame_in_order(
    frame: DataFrame, table: Sequence[Column], present: Collection[str] | None = None, also: Sequence[str] = ()
) -> DataFrame:
    """``also`` are columns that come after the table's. ``present`` says which columns ``frame`` has: a server of Spark
    Connect would connect to the source anew to answer that."""
    from pyspark.sql import functions as f

    if present is None:
        present = set(frame.columns)
    return frame.select(
        *(
            (f.col(quoted(column.name)) if column.name in present else f.lit(None))
            .cast(types.spark_ddl(column.type))
            .alias(column.name)
            for column in table
        ),
        *also,
    )
