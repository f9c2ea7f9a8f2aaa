"""What one step reads, and the position that its commit records.

Append reads from its last position, inclusive, because rows with that same cursor value may have arrived since. At that
position, it skips as many rows of each hash as it has already written; with its new position, it records which rows it
has written there: of too many that are complete, only how many. Everything is read from one snapshot, so the rows
written and the rows counted are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.buffered import frame_of
from flowctl.connectors.source import ReadRequest, Snapshot
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import named
from flowctl.errors import StoppedByPolicy
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, Position, Ties
from flowctl.model.table_info import Column
from flowctl.observe.lower_bound import read_from
from flowctl.observe.relations import read_request
from flowctl.plan.ties import MOST, rows_are_gone, starting_over, too_many
from flowctl.run.masking import maskable
from flowctl.run.reading import Landed, LandedSnapshot, rows_of
from flowctl.run.truncation import Truncates, find_truncates, with_truncate
from flowctl.spec.spec import TableSpec
from flowctl.sql.row_hash import row_hash_sql
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_HASH, _WRITTEN, _NUMBER = "_flowctl_hash", "_flowctl_written", "_flowctl_number"
#: The count of a hash whose rows were not counted: all of them count as already written.
_ANY_NUMBER = 2**31 - 1
#: Replaces the hash of a row that was not written yet.
_UNKNOWN = ""


@dataclass(frozen=True)
class IntervalRead:
    """``rows`` are the interval's, for append without those already written; ``position`` is the one to record (None:
    the beginning); ``landed`` tells of rows that this process has read alone, ``truncates`` of those among messages."""

    rows: Batch
    position: Position | None
    landed: Landed | None = None
    truncates: Truncates | None = None


def read_interval(
    spark: SparkSession,
    snapshot: Snapshot,
    columns: tuple[Column, ...],
    table: TableSpec,
    interval: Interval,
    buffer: Buffer,
    spec_path: str,
    letters: Iterable[pa.RecordBatch] = (),
) -> IntervalRead:
    """Reads the interval's rows, and ``letters`` again. :class:`StoppedByPolicy` if the source no longer has any of the
    rows that were written at the lower bound."""
    upper = interval.upper
    if table.mode != "append" or not isinstance(upper, CursorPosition) or interval.cursor_column is None:
        request = read_request(table, columns, interval, maskable(table, columns, interval))
        if isinstance(snapshot, LandedSnapshot) and upper is not None:
            landed = snapshot.land(request, letters)
            truncates = find_truncates(landed.rows, table, interval)
            return IntervalRead(landed.rows, with_truncate(upper, truncates, table), landed, truncates)
        rows = rows_of(snapshot, request)
        return IntervalRead(rows if upper is not None else _without_rows(rows), upper)
    return _Append(spark, snapshot, columns, table, interval, upper, buffer, spec_path).read()


def _without_rows(rows: Batch) -> Batch:
    """None of the rows, which have come since the plan, or which `start` or `delay` leave to a later run."""
    match rows:
        case InMemory(held):
            return InMemory(held.slice(0, 0))
        case OnEngine(frame):
            return OnEngine(frame.limit(0))
        case _:
            assert_never(rows)


@dataclass(frozen=True)
class _Append:
    spark: SparkSession
    snapshot: Snapshot
    columns: tuple[Column, ...]
    table: TableSpec
    interval: Interval
    upper: CursorPosition
    buffer: Buffer
    spec_path: str

    def read(self) -> IntervalRead:
        lower = self.interval.lower
        if not isinstance(lower, CursorPosition):
            return IntervalRead(self._rows(self._request(self.interval)), self._position(None))
        above = self._rows(replace(self._request(self.interval), above=True))
        if lower.ties is None:
            is_known = lower.at != self.upper.at  # if equal, it is unknown which rows were written: all count
            return IntervalRead(above, self._position(None) if is_known else self.upper)
        return IntervalRead(self._with_late_rows(above, lower, lower.ties), self._position(lower))

    def _position(self, lower: CursorPosition | None) -> CursorPosition:
        """The new position with the hashes of the rows at the upper bound, all of which are now written. If the bound
        has not moved, rows that no longer exist still count as written, and the hashed columns stay the same."""
        before = lower.ties if lower is not None and lower.at == self.upper.at else None
        columns = before.columns if before is not None and before.columns else self.columns
        there = self._frame(self._at(self.upper, columns))
        found = _counted(there, columns)
        if len(found) > MOST and self.interval.is_complete:
            return replace(self.upper, ties=None, rows=there.count())
        if len(found) > MOST:
            raise too_many(self.table, self.upper.at)
        for row_hash, number in before.counts if before is not None else ():
            found[row_hash] = max(found.get(row_hash, 0), 1 if number is None else number)
        kept = tuple(Column(column.name, column.type, as_text=column.as_text) for column in columns)
        return replace(self.upper, ties=Ties(tuple(sorted(found.items())), kept))

    def _with_late_rows(self, above: Batch, lower: CursorPosition, written: Ties) -> Batch:
        """``above``, plus the rows at ``lower`` beyond the number already written."""
        columns = written.columns or ()
        known = {row_hash: _ANY_NUMBER if number is None else number for row_hash, number in written.counts}
        there = self._at(lower, columns)
        frame = self._frame(there)
        found = _counted(frame, columns, known)
        late = found.pop(_UNKNOWN, 0)
        if known and not found and not written.may_be_gone and (late or not self._is_purged(lower)):
            raise StoppedByPolicy(
                rows_are_gone(str(self.interval.cursor_column), lower.at),
                hint=starting_over(self.table, lower.at, self.upper.at, self.spec_path),
            )
        late += sum(max(0, number - known[row_hash]) for row_hash, number in found.items())
        if not late:
            return above
        rows = self._frame(above).unionByName(_late(frame, columns, known, self.columns))
        is_small = isinstance(above, InMemory) and isinstance(there, InMemory)
        return InMemory(rows.toArrow()) if is_small else OnEngine(rows)

    def _is_purged(self, lower: CursorPosition) -> bool:
        """Whether the source may delete old rows (``guard.allow_purged``) and no row up to ``lower`` is left."""
        cursor = self.table.cursor
        if not self.table.guard.allow_purged or cursor is None:
            return False
        first = read_from(cursor, lower.at.type, None)
        older = replace(self.interval, read_from=first, read_to=lower.at, include_null=False)
        return self.snapshot.is_empty(self._request(older))

    def _at(self, position: CursorPosition, columns: Sequence[Column]) -> Batch:
        """The rows whose cursor equals ``position``, with ``columns`` in addition to those that are read."""
        taken = {column.name for column in self.columns}
        more = tuple(column for column in columns if column.name not in taken)
        there = replace(self.interval, read_from=position.at, read_to=position.at, include_null=False)
        return self._rows(ReadRequest((*self.columns, *more), there))

    def _request(self, interval: Interval) -> ReadRequest:
        return ReadRequest(self.columns, interval)

    def _rows(self, request: ReadRequest) -> Batch:
        return rows_of(self.snapshot, request)

    def _frame(self, rows: Batch) -> DataFrame:
        return frame_of(rows, self.spark, lambda: self.buffer.folder("read"))


def _counted(rows: DataFrame, columns: Sequence[Column], known: dict[str, int] | None = None) -> dict[str, int]:
    """The number of rows per hash, for at most one hash more than :data:`MOST`. Rows whose hash is not ``known``
    are counted together."""
    from pyspark.sql import functions as f

    hashed = f.expr(row_hash_sql(columns))
    if known is not None:
        hashed = f.when(hashed.isin(sorted(known)), hashed).otherwise(_UNKNOWN) if known else f.lit(_UNKNOWN)
    grouped = rows.select(hashed.alias(_HASH)).groupBy(_HASH).agg(f.count(f.lit(1)).alias(_NUMBER))
    return {row[_HASH]: row[_NUMBER] for row in grouped.limit(MOST + 1).toLocalIterator()}


def _late(rows: DataFrame, columns: Sequence[Column], known: dict[str, int], wanted: Sequence[Column]) -> DataFrame:
    """The rows of each hash beyond the known number. The choice is deterministic across attempts: rows that are equal
    in ``columns`` may differ in others."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    hashed = rows.withColumn(_HASH, f.expr(row_hash_sql(columns)))
    if known:
        written = rows.sparkSession.createDataFrame(sorted(known.items()), f"{_HASH} string, {_WRITTEN} int")
        hashed = hashed.join(written, _HASH, "left")
    else:
        hashed = hashed.withColumn(_WRITTEN, f.lit(0))
    window = Window.partitionBy(_HASH).orderBy(f.expr(row_hash_sql(wanted)))
    numbered = hashed.withColumn(_NUMBER, f.row_number().over(window))
    more = numbered.where(f.col(_NUMBER) > f.coalesce(f.col(_WRITTEN), f.lit(0)))
    return more.select(*[named(column.name) for column in wanted])
