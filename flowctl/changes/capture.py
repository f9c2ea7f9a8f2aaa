"""What a source that captures changes delivers to, and how captured rows are collected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from flowctl.changes.segment import segment_schema
from flowctl.changes.shape import Shape
from flowctl.model.position import Position

if TYPE_CHECKING:
    import pyarrow as pa


class CaptureSink(ABC):
    """Takes whole transactions in the order of their commits: ``begin``, any number of ``add``, ``commit``. Nothing is
    durable before :attr:`durable` has reached its position; what a killed process has not landed is captured again."""

    @property
    @abstractmethod
    def durable(self) -> Position:
        """The position up to which everything has landed: what may be acknowledged to the source."""

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether to stop reading for now; the connection to the source must be kept alive."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether everything that was delivered has landed."""

    @abstractmethod
    def shape(self, shape: Shape) -> int:
        """The number for rows of this shape. A table whose shape differs from its last one begins a new batch: before
        the transaction that is open."""

    @abstractmethod
    def begin(self, lsn: int, at: int, xid: int) -> None:
        """``lsn`` orders the transaction among all others; ``at`` is the time of its commit in microseconds since
        1970."""

    @abstractmethod
    def add(self, shape: int, op: int, data: bytes | memoryview) -> None:
        """One change of the open transaction."""

    @abstractmethod
    def commit(self, position: Position) -> None:
        """Ends the transaction; reading after ``position`` continues right behind it. May land a batch."""

    @abstractmethod
    def abandon(self) -> None:
        """Drops the open transaction: its end is not in the log, and never will be."""

    @abstractmethod
    def pass_over(self, position: Position) -> None:
        """Between transactions: nothing up to ``position`` concerns this stream."""

    @abstractmethod
    def land(self) -> None:
        """Between transactions: lands everything that has ended, if there is anything."""

    @abstractmethod
    def land_position(self) -> None:
        """Between transactions: as :meth:`land`, but also if there is nothing, so that the source may discard what does
        not concern this stream."""


class RowBuilder:
    """Collects rows as they arrive. Not thread-safe. ``event_at`` is the last transaction's; it is set to continue what
    has landed before. Each transaction gets a later one, whatever the source's clock says: of versions with the same
    time, a history keeps the last one only."""

    def __init__(self) -> None:
        self._shapes: list[int] = []
        self._ops = bytearray()
        self._ends: list[int] = [0]
        self._data = bytearray()
        #: First row, ordinal of that row, LSN, time, event time, transaction id.
        self._transactions: list[tuple[int, int, int, int, int, int]] = []
        self.event_at = 0

    @property
    def rows(self) -> int:
        return len(self._shapes)

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self._data)

    def begin(self, lsn: int, at: int, xid: int) -> None:
        self.event_at = max(self.event_at + 1, at)
        if self._transactions and self._transactions[-1][0] == len(self._shapes):
            self._transactions.pop()  # nothing in it concerned this stream: there may be millions before the next row
        self._transactions.append((len(self._shapes), 0, lsn, at, self.event_at, xid))

    def add(self, shape: int, op: int, data: bytes | memoryview) -> None:
        self._shapes.append(shape)
        self._ops.append(op)
        self._data += data
        self._ends.append(len(self._data))

    def abandon(self, rows: int) -> None:
        """Drops the open transaction, of which those behind the first ``rows`` are left."""
        self._transactions.pop()
        del self._shapes[rows:], self._ops[rows:], self._data[self._ends[rows] :], self._ends[rows + 1 :]

    def take(self) -> pa.RecordBatch:
        """All rows since the last call. A transaction that is still open continues with the next ones."""
        import numpy as np
        import pyarrow as pa

        rows = len(self._shapes)
        firsts, ordinals, lsns, ats, event_ats, xids = (
            np.array(column, np.int64) for column in zip(*self._transactions, strict=True)
        )
        lengths = np.diff(firsts, append=rows)
        starts = np.repeat(firsts - ordinals, lengths)
        moment = pa.timestamp("us", tz="UTC")
        arrays = [
            pa.array(np.array(self._shapes, np.int32)),
            pa.array(np.frombuffer(bytes(self._ops), np.int8)),
            pa.array(np.repeat(lsns, lengths)),
            pa.array(np.arange(rows) - starts),
            pa.array(np.repeat(ats, lengths)).cast(moment),
            pa.array(np.repeat(event_ats, lengths)).cast(moment),
            pa.array(np.repeat(xids, lengths)),
            _binary(self._ends, self._data),
        ]
        first, ordinal, lsn, at, event_at, xid = self._transactions[-1]
        self._transactions = [(0, ordinal + rows - first, lsn, at, event_at, xid)]
        self._shapes, self._ops, self._ends, self._data = [], bytearray(), [0], bytearray()
        return pa.RecordBatch.from_arrays(arrays, schema=segment_schema())


def _binary(ends: list[int], data: bytearray) -> pa.Array:
    """Refers to ``data`` without copying it."""
    import numpy as np
    import pyarrow as pa

    offsets = pa.py_buffer(np.array(ends, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(data)])
