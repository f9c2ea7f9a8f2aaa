"""Reads a table's content for an engine, through the buffer: this process reads its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.buffered import read_folder, spark_schema
from flowctl.connectors.iceberg.table import OpenTable
from flowctl.model.table_info import Column
from flowctl.storage.buffer import BufferFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def scan(spark: SparkSession, table: OpenTable, columns: Sequence[Column], folder: BufferFolder) -> DataFrame:
    """The rows of the opened version."""
    schema = arrow_schema(columns)
    is_empty = True
    with folder.sink(schema) as sink:
        for batch in live_rows(table, columns):
            sink.write(batch)
            is_empty = is_empty and not batch.num_rows
    if is_empty:
        return spark.createDataFrame([], spark_schema(schema))
    return read_folder(spark, spark_schema(schema), folder)


def live_rows(table: OpenTable, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """All rows that are not deleted, with ``columns`` in their order."""
    from pyroaring import BitMap64

    search = table.search(tuple(columns), table.files)
    for at in range(len(table.files)):
        for rows in search.other_rows(at, BitMap64()):
            yield from rows.to_batches()
