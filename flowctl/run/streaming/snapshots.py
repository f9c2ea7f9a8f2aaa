"""What a table of a stream reads, as a snapshot: its content at a moment, or the changes of some batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.changes import decoded
from flowctl.changes.decoded import Changes
from flowctl.changes.fold import Folded, fold, parts_of
from flowctl.changes.segment import LETTERS, Op
from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.buffered import Overflowing, frame_of, spark_schema
from flowctl.connectors.source import Capture, ReadRequest, Relation, Snapshot
from flowctl.connectors.stream import DirectMoment, LandedMoment, Moment, StreamSource
from flowctl.connectors.target import OP_COLUMN
from flowctl.engine.batch import Batch, InMemory
from flowctl.engine.spark_types import named
from flowctl.model import types
from flowctl.model.position import LandedPosition, order_of_moment
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.observe.metadata import COLUMNS, is_metadata
from flowctl.run.reading import LandedSnapshot
from flowctl.spec.spec import TableSpec
from flowctl.storage.buffer import Buffer, BufferFolder, SegmentSink
from flowctl.storage.landing import LandedBatch, LandingLog

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.changes.decoded import Flags

#: Columns of folded rows beside the table's own and :data:`OP_COLUMN`. ``KEPT`` has a 1 for each column whose value
#: only the target has (null: none); ``ORIGIN`` is the prefix of the key under which the target has it.
KEPT, ORIGIN, EVENT_AT = "_flowctl_kept", "_flowctl_origin_", decoded.EVENT_AT
#: Changes that are decoded and folded at the same time. A transaction that has more is folded in parts.
AT_ONCE = 1_000_000
#: `_op` of the rows of a snapshot.
READ = "R"


@dataclass(frozen=True)
class MomentSnapshot(Snapshot):
    """The content at a moment, for a table that appends also with the columns about a change."""

    inner: Snapshot
    moment: Moment

    def frame(self, request: ReadRequest) -> DataFrame:
        from pyspark.sql import functions as f

        frame = self.inner.frame(_without_metadata(request))
        made = [
            f.lit(_value(self.moment, column)).cast(types.spark_ddl(column.type)).alias(column.name)
            if is_metadata(column)
            else named(column.name)
            for column in request.columns
        ]
        return frame.select(*made)

    def is_empty(self, request: ReadRequest) -> bool:
        return self.inner.is_empty(_without_metadata(request))

    def rows_in_memory(self, request: ReadRequest) -> pa.Table | None:
        rows = self.inner.rows_in_memory(_without_metadata(request))
        return None if rows is None else _about_moment(rows, request.columns, self.moment)

    def release(self) -> None:
        self.inner.release()


@dataclass(frozen=True)
class CaptureAtMoment(Capture):
    """As :class:`MomentSnapshot`, of what only this process can read."""

    inner: Capture
    moment: Moment

    def read(self, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None = None) -> int:
        return self.inner.read(_without_metadata(request), _AboutMoment(sink, request.columns, self.moment))

    def is_empty(self, request: ReadRequest) -> bool:
        return self.inner.is_empty(_without_metadata(request))


@dataclass(frozen=True)
class _AboutMoment(SegmentSink):
    """Adds the columns about a change to what it takes."""

    sink: SegmentSink
    columns: tuple[Column, ...]
    moment: Moment

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        for part in _about_moment(pa.Table.from_batches([batch]), self.columns, self.moment).to_batches():
            self.sink.write(part)


def _about_moment(rows: pa.Table, columns: Sequence[Column], moment: Moment) -> pa.Table:
    import pyarrow as pa

    made = {
        column.name: pa.repeat(_scalar(moment, column), rows.num_rows) if is_metadata(column) else rows[column.name]
        for column in columns
    }
    return pa.table(made)


def _value(moment: Moment, column: Column) -> str | None:
    """As text: a constant of the moment, or null."""
    at = {"_op": READ, "_commit_lsn": moment.commit, "_committed_at": moment.event_at}
    return at.get(column.name)


def _scalar(moment: Moment, column: Column) -> pa.Scalar:
    import pyarrow as pa

    from flowctl.connectors.arrow import moment as instant

    value = _value(moment, column)
    if value is None:
        return pa.scalar(None, arrow_type(column.type))
    return instant(value) if column.type == types.TIMESTAMP else pa.scalar(value, arrow_type(column.type))


def _without_metadata(request: ReadRequest) -> ReadRequest:
    return replace(request, columns=tuple(column for column in request.columns if not is_metadata(column)))


@contextmanager
def open_moment(
    moment: Moment, spark: SparkSession, table: TableSpec, relation: Relation, info: TableInfo, buffer: Buffer
) -> Iterator[Snapshot]:
    """``info`` may have the columns about a change, which the source does not have."""
    own = replace(info, columns=tuple(column for column in info.columns if not is_metadata(column)))
    relation = replace(relation, where=own.extra.get("row_filter"))
    with ExitStack() as held:
        match moment:
            case DirectMoment():
                snapshot = moment.snapshot(spark, relation, own, table.read, table.columns.takes)
                yield MomentSnapshot(held.enter_context(snapshot), moment)
            case LandedMoment():
                capture = held.enter_context(moment.capture(relation, own, table.columns.takes))
                yield LandedSnapshot(spark, CaptureAtMoment(capture, moment), buffer, held.close)
            case _:
                raise TypeError(f"{type(moment).__name__} has no way to be read")


@dataclass(frozen=True)
class ChangesSnapshot(Snapshot):
    """The changes of one table in ``batches``: for a table that appends each of them, for others one row per key (in a
    history per key and event time) with :data:`OP_COLUMN`, :data:`KEPT`, the origin's key and :data:`EVENT_AT`.
    ``key`` are source columns. ``make_folder`` is for rows that are more than this process may hold.
    ``ignores_truncates``: the rows that a TRUNCATE removes in the source stay."""

    spark: SparkSession
    source: StreamSource
    log: LandingLog
    batches: Sequence[LandedBatch]
    object: ObjectName
    table: TableSpec
    key: tuple[str, ...]
    since: str
    make_folder: Callable[[], BufferFolder]
    ignores_truncates: bool = False

    def truncated_at(self, request: ReadRequest) -> int | None:
        """When the source's rows were all removed, in microseconds since 1970; None if they were not."""
        self._taken(request)
        return self._truncated[request.columns]

    def rows_in_memory(self, request: ReadRequest) -> pa.Table | None:
        taken = self._taken(request)
        return taken.rows if isinstance(taken, InMemory) else None

    def frame(self, request: ReadRequest) -> DataFrame:
        return frame_of(self._taken(request), self.spark, self.make_folder)

    def is_empty(self, request: ReadRequest) -> bool:
        taken = self._taken(request)
        return isinstance(taken, InMemory) and not taken.rows.num_rows

    @cached_property
    def _truncated(self) -> dict[tuple[Column, ...], int | None]:
        return {}

    @cached_property
    def _read(self) -> dict[tuple[Column, ...], Batch]:
        return {}

    def _taken(self, request: ReadRequest) -> Batch:
        columns = request.columns
        if columns not in self._read:
            self._truncated[columns] = None
            parts = self._made(columns)
            first = next(parts)
            with Overflowing(first.schema, self.make_folder) as sink:
                for rows in itertools.chain([first], parts):
                    for part in rows.to_batches():
                        sink.write(part)
            self._read[columns] = sink.batch(self.spark, spark_schema(first.schema))
        return self._read[columns]

    def _made(self, columns: tuple[Column, ...]) -> Iterator[pa.Table]:
        """At least one table."""
        own = [column for column in columns if not is_metadata(column)]
        if self.table.mode == "append":
            yield appended(None, columns, own, self.source.commit_text)
            for changes in self._decoded(own):
                yield appended(changes, columns, own, self.source.commit_text)
            return
        is_any = False
        for changes in self._parts(own):
            folded = fold(changes, self.key, versions=self.table.mode == "scd2")
            self._truncated[columns] = folded.truncated_at
            yield folded_rows(folded, own, self.key)
            is_any = True
        if not is_any:
            yield _nothing(own, self.key)

    def _parts(self, columns: Sequence[Column]) -> Iterator[Changes]:
        """Changes that are folded apart."""
        landed = (batch.table(self.object) for batch in self.batches)
        count = -(-sum(table.changes for table in landed if table is not None) // AT_ONCE)
        if count <= 1:
            if changes := list(self._decoded(columns)):
                yield decoded.concatenated(changes)
            return
        key = [column for column in columns if column.name in self.key]
        keys = [_without_times(changes) for changes in self._decoded(key)]
        if not keys:
            return
        parts = parts_of(decoded.concatenated(keys), self.key, count)
        del keys
        for number in range(count):
            chosen = (parts == number) | (parts < 0)
            if chosen.any():
                yield decoded.concatenated(list(self._decoded(columns, chosen)))

    def _decoded(self, columns: Sequence[Column], chosen: Flags | None = None) -> Iterator[Changes]:
        """The changes of the batches that committed at or after the table's snapshot; of these, those that ``chosen``
        flags."""
        import pyarrow as pa
        import pyarrow.compute as pc

        first, place = self._first_lsn(), 0
        for batch in self.batches:
            landed = batch.table(self.object)
            if landed is None:
                continue
            shapes = {int(number): self.log.shape(digest) for number, digest in landed.shapes.items()}
            decoders = {number: self.source.decoder(shape) for number, shape in shapes.items()}
            for rows in self.log.rows(batch, list(decoders)):
                if first:
                    rows = rows.filter(pc.greater_equal(rows["lsn"], first))
                for op in (Op.ALTERED, Op.UNKEYED):
                    rows = rows.filter(pc.not_equal(rows["op"], op))
                if self.ignores_truncates:
                    rows = rows.filter(pc.not_equal(rows["op"], Op.TRUNCATE))
                count = rows.num_rows
                if chosen is not None:
                    rows = rows.filter(pa.array(chosen[place : place + count]))
                place += count
                for start, length, number in _runs(rows):
                    yield decoders[number].decode(rows.slice(start, length), columns, self.key)

    def _first_lsn(self) -> int:
        return order_of_moment(self.since)


def _without_times(changes: Changes) -> Changes:
    """What :func:`parts_of` looks at."""
    dropped = [name for name in decoded.OWN_COLUMNS if name != decoded.OP]
    return replace(changes, rows=changes.rows.drop_columns(dropped))


def _runs(rows: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
    """Start, length and number of consecutive rows of one shape."""
    import numpy as np

    numbers = np.asarray(rows["shape"])
    if not len(numbers):
        return
    starts = np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1, [len(numbers)]])
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        yield start, end - start, int(numbers[start])


def appended(
    changes: Changes | None, columns: Sequence[Column], own: Sequence[Column], commit_text: Callable[[int], str]
) -> pa.Table:
    """Every change as a row, with the columns about it."""
    import pyarrow as pa

    from flowctl.connectors.arrow import arrow_schema

    if changes is None:
        return arrow_schema(columns).empty_table()
    rows = changes.rows
    letters = pa.array([None, *(LETTERS[op] for op in Op)])
    unchanged = _unchanged(changes, own) if any(column == COLUMNS["unchanged"] for column in columns) else None
    found: dict[str, Callable[[], Any]] = {
        "_op": lambda: letters.take(rows[decoded.OP].combine_chunks()),
        "_commit_lsn": lambda: pa.array([commit_text(lsn) for lsn in rows[decoded.LSN].to_pylist()], pa.string()),
        "_seq": lambda: rows[decoded.ORDINAL],
        "_committed_at": lambda: rows[decoded.COMMITTED_AT],
        "_xid": lambda: rows[decoded.XID],
        "_unchanged": lambda: unchanged,
    }
    return pa.table({one.name: found[one.name]() if is_metadata(one) else rows[one.name] for one in columns})


def _unchanged(changes: Changes, own: Sequence[Column]) -> pa.Array:
    import pyarrow as pa

    lists: list[str | None] = [None] * changes.rows.num_rows
    for column in own:
        flags = changes.unsent.get(column.name)
        for at in flags.nonzero()[0].tolist() if flags is not None else ():
            before = lists[at]
            lists[at] = f"{before},{column.name}" if before else column.name
    return pa.array(lists, pa.string())


def folded_rows(folded: Folded, own: Sequence[Column], key: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    made = {column.name: folded.rows[column.name] for column in own}
    made[OP_COLUMN] = folded.operations
    if EVENT_AT in folded.rows.column_names:
        made[EVENT_AT] = folded.rows[EVENT_AT]
    made[KEPT] = _kept(folded, own)
    for name in key:
        made[ORIGIN + name] = folded.origins[name]
    return pa.table(made)


def _kept(folded: Folded, own: Sequence[Column]) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    rows = folded.rows.num_rows
    if not folded.open:
        return pa.nulls(rows, pa.string())
    masks: list[str | None] = [None] * rows
    flags = [folded.open.get(column.name) for column in own]
    anywhere = np.logical_or.reduce([one for one in flags if one is not None])
    for at in np.flatnonzero(anywhere).tolist():
        masks[at] = "".join("1" if one is not None and one[at] else "0" for one in flags)
    return pa.array(masks, pa.string())


def _nothing(own: Sequence[Column], key: Sequence[str]) -> pa.Table:
    """Folded rows, of which there are none: all changes came before the table's snapshot."""
    import pyarrow as pa

    kinds = {column.name: arrow_type(column.type) for column in own}
    more = {OP_COLUMN: pa.string(), EVENT_AT: pa.timestamp("us", tz="UTC"), KEPT: pa.string()}
    origins = {ORIGIN + name: kinds[name] for name in key}
    return pa.schema({**kinds, **more, **origins}).empty_table()


def position_after(batch: LandedBatch, before: LandedPosition) -> LandedPosition:
    return LandedPosition(batch.batch, str(batch.upper), before.since)
