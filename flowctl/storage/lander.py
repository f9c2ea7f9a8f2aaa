"""Lands what a source captures: rows become segments, segments become batches.

Rows are sorted by table within runs of about 64 MiB, so that a table's reader skips the others' row groups. A segment
never mixes committed transactions with the open one: if the open one does not fit into a run, it gets segments of its
own, and belongs to the batch in which it ends.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl import crashpoints
from flowctl.changes.capture import CaptureSink, RowBuilder
from flowctl.changes.segment import OF_TABLES, segment_schema
from flowctl.changes.shape import Shape
from flowctl.model.position import Position
from flowctl.model.table_info import ObjectName
from flowctl.storage.landing import ROW_GROUP_ROWS, LandedBatch, LandedTable, LandingLog, Segment

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of captured rows that are sorted and written together.
RUN_BYTES = 64 << 20
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class BatchLimits:
    """A batch ends at the first commit that reaches one of these. ``seconds`` None: not by time."""

    rows: int
    bytes: int
    seconds: float | None = None


class Lander(CaptureSink):
    """Not thread-safe: used by the thread that captures. ``check`` raises if the stream's lease is lost; ``landed`` is
    called with each batch. ``is_full``: captured batches take all the room that they may."""

    def __init__(
        self,
        log: LandingLog,
        newest: LandedBatch,
        limits: BatchLimits,
        check: Callable[[], None] = lambda: None,
        landed: Callable[[LandedBatch], None] = lambda batch: None,
        is_full: Callable[[], bool] = lambda: False,
        captured: Sequence[ObjectName] = (),
    ) -> None:
        self._log = log
        self._captured = tuple(captured)
        self._newest = newest
        self._limits = limits
        self._check = check
        self._landed = landed
        self._has_no_room = is_full
        self._builder = RowBuilder()
        if newest.event_at:
            self._builder.event_at = _microseconds(newest.event_at)
        self._shapes: dict[ObjectName, int] = {}
        self._by_number: dict[int, Shape] = {}
        self._committed_rows = 0  # of those in the builder
        self._batch = _OpenBatch()
        self._open_segments: list[_Written] = []
        self._is_open = False
        self._end: Position = newest.upper

    @property
    def durable(self) -> Position:
        return self._newest.upper

    @property
    def is_full(self) -> bool:
        return self._has_no_room()

    @property
    def is_empty(self) -> bool:
        return not (self._batch.rows or self._builder.rows)

    def shape(self, shape: Shape) -> int:
        before = self._shapes.get(shape.object)
        if before is not None and self._by_number[before].digest == shape.digest:
            return before
        if before is not None:
            self._land_committed()
        number = len(self._by_number) + 1
        self._by_number[number] = shape
        self._shapes[shape.object] = number
        return number

    def begin(self, lsn: int, at: int, xid: int) -> None:
        self._is_open = True
        self._builder.begin(lsn, at, xid)

    def add(self, shape: int, op: int, data: bytes | memoryview) -> None:
        self._builder.add(shape, op, data)
        if self._builder.size >= RUN_BYTES:
            self._flush()

    def commit(self, position: Position) -> None:
        self._is_open = False
        if self._open_segments:
            self._flush()  # the rest of the transaction, behind its first part
            self._batch.segments += self._open_segments
            self._open_segments = []
        self._committed_rows = self._builder.rows
        self._end = position
        self._batch.event_at = self._builder.event_at
        if self._is_due():
            self._land_committed()

    def abandon(self) -> None:
        self._is_open = False
        self._open_segments = []  # files that no manifest names
        self._builder.abandon(self._committed_rows)

    def pass_over(self, position: Position) -> None:
        self._end = position
        if self._is_due():
            self._land_committed()

    def land(self) -> None:
        self._land_committed()

    def land_position(self) -> None:
        self._land()

    def _is_due(self) -> bool:
        rows = self._batch.rows + self._committed_rows
        if not rows:
            return False
        size = self._batch.bytes + self._builder.size
        limits = self._limits
        is_late = limits.seconds is not None and time.monotonic() - self._batch.begun >= limits.seconds
        return rows >= limits.rows or size >= limits.bytes or is_late

    def _land_committed(self) -> None:
        if self._batch.rows or self._committed_rows:
            self._land()

    def _land(self) -> None:
        self._flush()
        done, self._batch = self._batch, _OpenBatch()
        self._check()
        crashpoints.reached("segment_written")
        for number in done.numbers:
            self._log.put_shape(self._by_number[number])
        event_at = done.event_at or self._builder.event_at
        self._newest = self._log.create(
            LandedBatch(
                batch=self._newest.batch + 1,
                lower=self._newest.upper,
                upper=self._end,
                event_at=_moment(event_at) if event_at else self._newest.event_at,
                captured=self._captured,
                segments=tuple(one.segment for one in done.segments),
                tables=self._tables(done),
            )
        )
        crashpoints.reached("landed")
        self._landed(self._newest)

    def _tables(self, batch: _OpenBatch) -> tuple[LandedTable, ...]:
        found: dict[ObjectName, LandedTable] = {}
        for number, (changes, truncated) in sorted(batch.numbers.items()):
            shape = self._by_number[number]
            before = found.get(shape.object, LandedTable(shape.object, {}, 0))
            found[shape.object] = LandedTable(
                shape.object,
                {**before.shapes, str(number): shape.digest},
                before.changes + changes,
                before.truncated or truncated,
            )
        return tuple(found.values())

    def _flush(self) -> None:
        """Writes the builder's rows: those of ended transactions into the batch, the others apart."""
        if not self._builder.rows:
            return
        rows = self._builder.take()
        ended, self._committed_rows = self._committed_rows, 0
        if self._open_segments or ended < rows.num_rows:
            if ended:
                self._batch.segments.append(self._write(rows.slice(0, ended)))
            self._open_segments.append(self._write(rows.slice(ended)))
        else:
            self._batch.segments.append(self._write(rows))

    def _write(self, rows: pa.RecordBatch) -> _Written:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        counts = pc.value_counts(rows["shape"]).to_pylist()
        emptied = set(rows["shape"].filter(pc.is_in(rows["op"], pa.array(OF_TABLES, pa.int8()))).to_pylist())
        if len(counts) > 1:
            rows = rows.take(pc.sort_indices(rows["shape"]))
        with ExitStack() as stack:
            name, file = stack.enter_context(self._log.new_segment(self._newest.batch + 1))
            with pq.ParquetWriter(file, segment_schema(), compression="zstd", compression_level=1) as writer:
                writer.write_table(pa.Table.from_batches([rows]), row_group_size=ROW_GROUP_ROWS)
            size = file.tell()
        numbers = {one["values"]: (one["counts"], one["values"] in emptied) for one in counts}
        return _Written(Segment(name, size, rows.num_rows), numbers)


@dataclass(frozen=True)
class _Written:
    """A segment, with the number of changes per shape, and whether one of them is about the whole table."""

    segment: Segment
    numbers: dict[int, tuple[int, bool]]


class _OpenBatch:
    """What has been written of the next batch."""

    def __init__(self) -> None:
        self.segments: list[_Written] = []
        self.event_at = 0
        self.begun = time.monotonic()

    @property
    def rows(self) -> int:
        return sum(one.segment.rows for one in self.segments)

    @property
    def bytes(self) -> int:
        return sum(one.segment.bytes for one in self.segments)

    @property
    def numbers(self) -> dict[int, tuple[int, bool]]:
        found: dict[int, tuple[int, bool]] = {}
        for one in self.segments:
            for number, (changes, truncated) in one.numbers.items():
                before, was = found.get(number, (0, False))
                found[number] = (before + changes, was or truncated)
        return found


def _moment(microseconds: int) -> str:
    at = _EPOCH + dt.timedelta(microseconds=microseconds)
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _microseconds(moment: str) -> int:
    at = dt.datetime.fromisoformat(moment)
    return (at - _EPOCH) // dt.timedelta(microseconds=1)
