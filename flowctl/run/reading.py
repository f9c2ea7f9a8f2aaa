"""One snapshot of a source as Spark frames, whichever way the source is read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.buffered import put
from flowctl.connectors.landing import Scratch, ScratchFolder, SegmentSink
from flowctl.connectors.source import (
    Capture,
    DirectSource,
    LandedSource,
    ReadRequest,
    Relation,
    Snapshot,
)
from flowctl.engine.cost import IN_MEMORY_BYTES
from flowctl.engine.spark_types import from_spark, named
from flowctl.model.table_info import Column, TableInfo
from flowctl.run.conversion import converted
from flowctl.run.masking import MaskingSink, landed_columns, landed_table
from flowctl.spec.spec import ReadHints, SqlSource
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.refs import with_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType as SparkType


@contextmanager
def open_snapshot(
    source: DirectSource | LandedSource,
    spark: SparkSession,
    relation: Relation,
    info: TableInfo,
    hints: ReadHints,
    scratch: Scratch,
) -> Iterator[Snapshot]:
    """The source's own snapshot, or landed captures read back by Spark. Open until the write is done."""
    match source:
        case DirectSource():
            with source.snapshot(spark, relation, info, hints) as snapshot:
                yield snapshot
        case LandedSource():
            with ExitStack() as held:
                capture = held.enter_context(source.capture(relation, info))
                yield LandedSnapshot(spark, capture, scratch, held.close)
        case _:
            assert_never(source)


@dataclass(frozen=True)
class Rows:
    """``frame`` is of the engine's reading where ``count`` is None; else this process has read so many rows, few enough
    to hold them."""

    frame: DataFrame
    count: int | None = None

    @property
    def are_few(self) -> bool:
        return self.count is not None


def rows_of(spark: SparkSession, snapshot: Snapshot, request: ReadRequest, scratch: Scratch) -> Rows:
    """Of the snapshot, read by whoever has them sooner."""
    if isinstance(snapshot, LandedSnapshot):
        return snapshot.rows(request)
    few = snapshot.few(request)
    if few is None:
        return Rows(snapshot.frame(request))
    folder = scratch.folder("few")
    put(folder, landed_table(few, request))
    return Rows(_landed(spark, folder, request, few.num_rows), few.num_rows)


@dataclass
class LandedSnapshot(Snapshot):
    """Each frame is captured into the buffer first, all from the capture's one moment. ``close`` ends that moment:
    frames stay, as they are in the buffer, and a source that lets nobody write while it is read can be the target."""

    spark: SparkSession
    capture: Capture
    scratch: Scratch
    close: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    def frame(self, request: ReadRequest) -> DataFrame:
        return self.rows(request).frame

    def rows(self, request: ReadRequest) -> Rows:
        from flowctl.connectors.arrow import arrow_schema

        folder = self.scratch.folder(f"landed-{next(self._numbers)}")
        with folder.sink(arrow_schema(landed_columns(request))) as inner:
            sink = _Measured(MaskingSink(inner, request))
            count = self.capture.read(request, sink)
        frame = _landed(self.spark, folder, request, count)
        return Rows(frame, count if sink.bytes <= IN_MEMORY_BYTES else None)

    def is_empty(self, request: ReadRequest) -> bool:
        return self.capture.is_empty(request)

    def release(self) -> None:
        self.close()


@dataclass
class _Measured:
    """A sink that knows how much has gone into it."""

    inner: SegmentSink
    bytes: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.bytes += batch.nbytes
        self.inner.write(batch)


def _landed(spark: SparkSession, folder: ScratchFolder, request: ReadRequest, count: int) -> DataFrame:
    """Read back from the buffer. Arrow tables in the session would do without it, but a JVM's first one takes longer
    than a file."""
    schema = schema_ddl(landed_columns(request))
    if count == 0:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(folder.url)


@dataclass(frozen=True)
class SqlSnapshot(Snapshot):
    """Spark SQL over committed tables of the flow; ``relations`` maps ids to the views that stand for them, ``columns``
    to the columns of these."""

    spark: SparkSession
    source: SqlSource
    relations: Mapping[str, str]
    columns: Mapping[str, Sequence[Column]]
    where: str | None = None

    def frame(self, request: ReadRequest) -> DataFrame:
        frame = self.whole()
        if not request.columns:
            return frame
        have = {field.name.lower(): field.dataType for field in frame.schema}  # as Spark finds names
        return frame.select(*[_typed(column, have.get(column.name.lower())) for column in request.columns])

    def is_empty(self, request: ReadRequest) -> bool:
        return bool(self.whole().isEmpty())

    def whole(self) -> DataFrame:
        frame = self.spark.sql(with_names(self.source.sql, self.relations))
        return frame.where(self.where) if self.where else frame


def _typed(column: Column, have: SparkType | None) -> SparkColumn:
    """The column as asked for; the tables behind the SQL may have other types now than those that are recorded."""
    value = named(column.name)
    if have is None:
        return value  # for Spark to say so
    with suppress(ValueError):  # maps, intervals: nothing of flowctl's asks for one
        value = converted(value, Column(column.name, from_spark(have)), column.type)
    return value.alias(column.name)
