"""Reads parts of a held snapshot by ``COPY``, without Java: on executors, or in this process alone.

The frame arrives in its final types, so it has no expressions that an engine might not support. It is a `mapInArrow`
over the numbers of the parts and not a Python data source: Sail 0.7.2 passes a data source's batches on without
releasing the GIL, and deadlocks if the consumer needs Python too (tested: a slow `mapInArrow`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.buffered import read_folder
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.columns import texts_of
from flowctl.connectors.postgres.snapshot import HeldSnapshot
from flowctl.connectors.refusal import no_counterpart, refusal
from flowctl.connectors.sql import timeouts
from flowctl.connectors.sql.parts import Parts, Transfer, nth
from flowctl.engine.session import most_at_once
from flowctl.model import types
from flowctl.model.types import Array
from flowctl.sql.dialects import schema_ddl
from flowctl.storage.buffer import BufferFolder

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.postgres.executors import PartReader


def copy_frame(spark: SparkSession, client: Client, held: HeldSnapshot, parts: Parts) -> DataFrame:
    from pyspark import cloudpickle

    from flowctl.connectors.postgres import executors

    cloudpickle.register_pickle_by_value(executors)
    reader = _reader(parts, client.conninfo(), held.join_statement())
    columns, count = [one.column for one in parts.transfers], len(reader.queries)
    numbers = spark.range(0, count, 1, min(count, most_at_once()))
    return numbers.mapInArrow(reader.read, schema_ddl(columns))


def read_here(connection: psycopg.Connection[Any], parts: Parts) -> Iterator[pa.RecordBatch]:
    """Reads all parts in this process, one after the other, over ``connection``, which has joined the snapshot."""
    import pyarrow as pa

    reader = _reader(parts, opened=connection)
    return reader.read(iter([pa.record_batch([pa.array(range(len(reader.queries)))], names=["number"])]))


def buffered_frame(
    spark: SparkSession, connection: psycopg.Connection[Any], parts: Parts, folder: BufferFolder
) -> DataFrame:
    """The rows of :func:`read_here`, written to ``folder`` by this process."""
    columns, rows = [one.column for one in parts.transfers], 0
    with folder.sink(arrow_schema(columns)) as sink:
        for batch in read_here(connection, parts):
            rows += batch.num_rows
            sink.write(batch)
    schema = schema_ddl(columns)
    return read_folder(spark, schema, folder) if rows else spark.createDataFrame([], schema)


def rows_in_memory(connection: psycopg.Connection[Any], parts: Parts, most_bytes: int) -> pa.Table | None:
    """The rows of :func:`read_here`; None as soon as they exceed ``most_bytes``."""
    import pyarrow as pa

    schema, size, found = arrow_schema([one.column for one in parts.transfers]), 0, []
    for batch in read_here(connection, parts):
        size += batch.nbytes
        if size > most_bytes:
            return None
        found.append(batch)
    return pa.Table.from_batches(found, schema)


def _reader(
    parts: Parts, conninfo: str = "", init_statement: str = "", opened: psycopg.Connection[Any] | None = None
) -> PartReader:
    from flowctl.connectors.postgres.executors import Field, PartReader

    selected = parts.select([_outgoing(one) for one in parts.transfers])
    names = ", ".join(nth(at) for at, _ in enumerate(parts.transfers))
    return PartReader(
        conninfo,
        init_statement,
        queries=[f"SELECT {names} FROM ({selected}) AS source WHERE {predicate}" for predicate in parts.predicates],
        fields=[
            Field(
                one.column.name,
                arrow_type(one.column.type),
                refusal(one.column.name, one.native, one.column.type, no_counterpart(one.column.type)),
            )
            for one in parts.transfers
        ],
        silence=timeouts.EXECUTOR_SILENCE,
        opened=opened,
    )


def _outgoing(one: Transfer) -> str:
    """The expression of a value in the form that :class:`.executors.Field` expects."""
    if one.column.type == types.BINARY:
        return f"encode({one.value}, 'hex')"
    return texts_of(one.value) if isinstance(one.column.type, Array) else one.value
