"""Rows computed once: they are written to the buffer and read back, so every use sees the same rows.

``localCheckpoint`` does not work: pyspark 4.1's Connect client assigns its result to the thread's first session,
whatever the frame's own session is. Nor does ``persist``, which reads the source again after a write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, assert_never

from flowctl.connectors.arrow import arrow_type
from flowctl.engine import paths
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.cost import IN_MEMORY_BYTES
from flowctl.engine.session import has_jvm
from flowctl.engine.spark_types import named
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.storage.buffer import BufferFolder, SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


#: Whether a finished write leaves a file ``_SUCCESS``. Nothing reads it, and on a local disk Hadoop starts a process
#: (``chmod``) for each file and for its checksum.
NO_MARKER = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


def buffered(frame: DataFrame, folder: BufferFolder) -> DataFrame:
    """Has the engine write ``frame`` to ``folder`` and returns the rows from there."""
    spark = frame.sparkSession
    frame.write.mode("overwrite").option(NO_MARKER, "false").parquet(paths.to_write(spark, folder.url))
    return read_folder(spark, frame.schema, folder)


def read_folder(spark: SparkSession, schema: str | StructType, folder: BufferFolder) -> DataFrame:
    """The rows of ``folder``, which is complete: each engine's read of the buffer. Raises ``TableError`` if the engine
    finds none where there are some, or some where there are none: Sail reads a path that does not exist as no rows."""
    ((reader, (path,)),) = paths.readers(spark, [folder.url])
    frame = reader.schema(schema).parquet(path)
    if not has_jvm(spark) and frame.isEmpty() != folder.is_empty():
        what = f"the engine does not find the rows of this run's buffer in {folder.url}"
        raise TableError(what, hint="Give `state` a path of letters, digits, - and _, or use spark.url local[*]")
    return frame


def batch_like(like: Batch, frame: DataFrame) -> Batch:
    """The rows of ``frame``, for one use. They are held by this process if ``like`` is: an engine's own write of a file
    costs a job, and on a local disk several processes; in a JVM's first seconds it is also slower."""
    return InMemory(frame.toArrow()) if isinstance(like, InMemory) else OnEngine(frame)


def computed(frame: DataFrame, like: Batch, folder: Callable[[], BufferFolder]) -> Batch:
    """As :func:`batch_like`, but computed once, for several uses."""
    if isinstance(like, InMemory):
        return batch_like(like, frame)
    place = folder()
    return OnEngine(buffered(frame, place), place)


def frame_of(batch: Batch, spark: SparkSession, folder: Callable[[], BufferFolder]) -> DataFrame:
    """The batch as a frame of the engine; rows in memory go through a file in ``folder``."""
    match batch:
        case OnEngine(frame):
            return frame
        case InMemory(rows):
            schema = spark_schema(rows.schema)
            if not rows.num_rows:
                return spark.createDataFrame([], schema)
            place = folder()
            put(place, rows)
            return read_folder(spark, schema, place)
        case _:
            assert_never(batch)


def spark_schema(schema: pa.Schema) -> StructType:
    """That of a frame over a folder of such rows."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def read_columns(rows: Batch, names: Sequence[str]) -> pa.Table:
    """Reads some columns of all rows into this process."""
    import pyarrow as pa

    match rows:
        case InMemory(held):
            return held.select(list(names))
        case OnEngine(frame, folder):
            batches = list(folder.batches(names)) if folder is not None else []
            if batches:
                return pa.Table.from_batches(batches)
            return frame.select(*map(named, names)).toArrow()
        case _:
            assert_never(rows)


def record_batches(rows: Batch) -> Iterator[pa.RecordBatch]:
    """Yields all rows to this process, one record batch at a time."""
    match rows:
        case InMemory(held):
            yield from held.to_batches()
        case OnEngine(frame, folder):
            yield from folder.batches() if folder is not None else frame.toArrow().to_batches()
        case _:
            assert_never(rows)


def where_equal(rows: Batch, column: str, value: str | bool) -> Batch:
    """The rows whose ``column`` is ``value``."""
    match rows:
        case InMemory(held):
            import pyarrow.compute as pc

            return InMemory(held.filter(pc.equal(held[column], value)))
        case OnEngine(frame):
            return OnEngine(frame.where(named(column) == value))
        case _:
            assert_never(rows)


def with_constants(rows: Batch, values: Mapping[Column, Any]) -> Batch:
    """``rows`` with additional columns, each of one constant value."""
    match rows:
        case InMemory(held):
            import pyarrow as pa

            for column, value in values.items():
                scalar = pa.scalar(value, arrow_type(column.type))
                held = held.append_column(column.name, pa.repeat(scalar, held.num_rows))
            return InMemory(held)
        case OnEngine(frame):
            from pyspark.sql import functions as f

            made = {one.name: f.lit(value).cast(types.spark_ddl(one.type)) for one, value in values.items()}
            return OnEngine(frame.withColumns(made))
        case _:
            assert_never(rows)


def put(folder: BufferFolder, rows: pa.Table) -> None:
    with folder.sink(rows.schema) as sink:
        for part in rows.to_batches():
            sink.write(part)


class Overflowing:
    """A sink that keeps its rows in memory up to what this process may hold, and then spills all of them to a folder.
    A context manager: the rows of a folder can be read once it has ended."""

    def __init__(self, schema: pa.Schema, make_folder: Callable[[], BufferFolder]) -> None:
        self._schema = schema
        self._make_folder = make_folder
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._folder: BufferFolder | None = None
        self._sink: SegmentSink | None = None
        self._stack = ExitStack()

    def write(self, batch: pa.RecordBatch) -> None:
        if self._sink is not None:
            self._sink.write(batch)
            return
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > IN_MEMORY_BYTES:
            self._folder = self._make_folder()
            self._sink = self._stack.enter_context(self._folder.sink(self._schema))
            for held in self._held:
                self._sink.write(held)
            self._held = []

    def batch(self, spark: SparkSession, schema: str | StructType) -> Batch:
        """Everything that was written; ``schema`` is its Spark schema."""
        import pyarrow as pa

        if self._folder is None:
            return InMemory(pa.Table.from_batches(self._held, self._schema))
        return OnEngine(read_folder(spark, schema, self._folder), self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
