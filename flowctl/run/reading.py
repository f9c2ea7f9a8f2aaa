"""One snapshot of a source as Spark frames, however the source is read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.buffered import Overflowing, frame_of
from flowctl.connectors.letters import LETTER_COLUMNS, landed
from flowctl.connectors.source import (
    PLACE_COLUMN,
    Capture,
    DirectSource,
    LandedSource,
    ReadRequest,
    Relation,
    Snapshot,
)
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import from_spark, named
from flowctl.model.table_info import Column, TableInfo
from flowctl.run.conversion import converted
from flowctl.run.masking import landed_columns, landed_rows, landed_table
from flowctl.spec.spec import ReadHints, SqlSource
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.refs import with_names
from flowctl.storage.buffer import Buffer, BufferFolder, SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType as SparkType


@dataclass(frozen=True)
class Landed:
    """The rows of a capture, and what it rejected: columns as :data:`flowctl.connectors.letters.LETTER_COLUMNS`, under
    their landed names; None if nothing. ``messages`` is the number of those captured, without dead letters read again,
    of which ``again`` were rejected again."""

    rows: Batch
    messages: int
    letters: Batch | None = None
    letter_count: int = 0
    again: int = 0


@contextmanager
def open_snapshot(
    source: DirectSource | LandedSource,
    spark: SparkSession,
    relation: Relation,
    info: TableInfo,
    hints: ReadHints,
    buffer: Buffer,
    on_rows: Callable[[int], None] = lambda rows: None,
    *,
    rejects: bool = False,
) -> Iterator[Snapshot]:
    """The source's own snapshot, or captures landed in the buffer and read back by Spark. Open until the write is done.
    ``on_rows`` gets the number of rows that have landed so far. ``rejects``: what cannot be decoded is kept apart."""
    match source:
        case DirectSource():
            with source.snapshot(spark, relation, info, hints) as snapshot:
                yield snapshot
        case LandedSource():
            with ExitStack() as held:
                capture = held.enter_context(source.capture(relation, info))
                yield LandedSnapshot(spark, capture, buffer, held.close, on_rows, rejects)
        case _:
            assert_never(source)


def rows_of(snapshot: Snapshot, request: ReadRequest) -> Batch:
    """The requested rows, read by this process if that is faster, otherwise by the engine."""
    if isinstance(snapshot, LandedSnapshot):
        return snapshot.rows(request)
    rows = snapshot.rows_in_memory(request)
    return OnEngine(snapshot.frame(request)) if rows is None else InMemory(landed_table(rows, request))


@dataclass
class LandedSnapshot(Snapshot):
    """Each frame is first captured into the buffer, all at the capture's one point in time. ``close`` ends the capture:
    frames stay valid, because they are in the buffer, and a source that blocks writers while it is read can then be the
    target."""

    spark: SparkSession
    capture: Capture
    buffer: Buffer
    close: Callable[[], None] = lambda: None
    on_rows: Callable[[int], None] = lambda rows: None
    rejects: bool = False

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self.has_places = any(column.name == PLACE_COLUMN for column in self.capture.own_columns)

    @property
    def own_columns(self) -> tuple[Column, ...]:
        """Further columns to request: the order, the deletions and the times of changes."""
        return self.capture.own_columns

    def frame(self, request: ReadRequest) -> DataFrame:
        return frame_of(self.rows(request), self.spark, self._folder)

    def rows(self, request: ReadRequest) -> Batch:
        return self.land(request).rows

    def land(self, request: ReadRequest, again: Iterable[pa.RecordBatch] = ()) -> Landed:
        """``again`` are dead letters to read too."""
        from flowctl.connectors.arrow import arrow_schema

        columns, rejected = landed_columns(request), landed(LETTER_COLUMNS)
        with (
            Overflowing(arrow_schema(columns), self._folder) as sink,
            Overflowing(arrow_schema(rejected), self._folder) as apart,
        ):
            landing, letters = _LandingSink(sink, request, self.on_rows), _CountingSink(apart)
            rejecting = letters if self.rejects else None
            messages = self.capture.read(request, landing, rejecting) + letters.rows
            new = letters.rows
            for rows_again in again:
                self.capture.read_letters(rows_again, request, landing, rejecting)
        rows = sink.batch(self.spark, schema_ddl(columns))
        return Landed(rows, messages, *letters.found(self.spark), again=letters.rows - new)

    def _folder(self) -> BufferFolder:
        return self.buffer.folder(f"landed-{next(self._numbers)}")

    def is_empty(self, request: ReadRequest) -> bool:
        return self.capture.is_empty(request)

    def release(self) -> None:
        self.close()


@dataclass
class _LandingSink:
    """Passes rows to ``inner`` with masks applied, and reports how many there have been."""

    inner: SegmentSink
    request: ReadRequest
    on_rows: Callable[[int], None]
    rows: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.inner.write(landed_rows(batch, self.request))
        self.rows += batch.num_rows
        self.on_rows(self.rows)


@dataclass
class _CountingSink:
    """Takes what was rejected."""

    inner: Overflowing
    rows: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.inner.write(batch)
        self.rows += batch.num_rows

    def found(self, spark: SparkSession) -> tuple[Batch | None, int]:
        return (self.inner.batch(spark, schema_ddl(landed(LETTER_COLUMNS))) if self.rows else None), self.rows


@dataclass(frozen=True)
class SqlSnapshot(Snapshot):
    """Spark SQL over committed tables of the flow; ``relations`` maps table ids to the names of their views,
    ``columns`` to the views' columns."""

    spark: SparkSession
    source: SqlSource
    relations: Mapping[str, str]
    columns: Mapping[str, Sequence[Column]]
    where: str | None = None

    def frame(self, request: ReadRequest) -> DataFrame:
        frame = self.whole()
        if not request.columns:
            return frame
        have = {field.name.lower(): field.dataType for field in frame.schema}  # Spark's names are case-insensitive
        return frame.select(*[_typed(column, have.get(column.name.lower())) for column in request.columns])

    def is_empty(self, request: ReadRequest) -> bool:
        return bool(self.whole().isEmpty())

    def whole(self) -> DataFrame:
        frame = self.spark.sql(with_names(self.source.sql, self.relations))
        return frame.where(self.where) if self.where else frame


def _typed(column: Column, have: SparkType | None) -> SparkColumn:
    """The column with the requested type; the SQL's tables may now have other types than those recorded."""
    value = named(column.name)
    if have is None:
        return value  # Spark reports the missing column
    with suppress(ValueError):  # maps, intervals: flowctl never requests one
        value = converted(value, Column(column.name, from_spark(have)), column.type)
    return value.alias(column.name)
