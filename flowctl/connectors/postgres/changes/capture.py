"""Reads one slot into a sink: whole transactions, in the order of their commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flowctl.changes.capture import CaptureSink
from flowctl.changes.segment import Op
from flowctl.changes.shape import Shape
from flowctl.connectors.postgres.changes import messages
from flowctl.connectors.postgres.changes.heartbeat import Heartbeat
from flowctl.connectors.postgres.changes.messages import Relation
from flowctl.connectors.postgres.changes.replication import HEADER, ReplicationStream
from flowctl.model.position import LsnPosition

#: Seconds to wait for data before looking at anything else.
_WAIT = 0.5
#: Messages read before looking at anything else.
_AT_ONCE = 10_000
#: While a sink is full.
_PAUSE = 0.05

#: Bytes of log after which a batch moves the slot, however little it has: one without a change of this stream, or with
#: some that have not landed.
FOREIGN_BYTES, OWN_BYTES = 16 << 20, 512 << 20

_ROW_OPS = {ord("I"): Op.INSERT, ord("U"): Op.UPDATE, ord("D"): Op.DELETE}


@dataclass
class Reader:
    """``shape_of`` describes a table as of now; None for one that nobody reads. ``heartbeat`` beats while there is no
    end to read to."""

    stream: ReplicationStream
    sink: CaptureSink
    shape_of: Callable[[Relation], Shape | None]
    heartbeat: Heartbeat | None = None
    _numbers: dict[bytes, int | None] = field(default_factory=dict)
    _is_open: bool = False

    def read(self, until: Callable[[], int | None], stopping: threading.Event) -> None:
        """Until everything before ``until()`` has been delivered (None: goes on), or ``stopping`` is set. What the sink
        has not landed then is dropped."""
        asked_at = 0.0
        while not stopping.is_set():
            if self.stream.is_feedback_due:
                self._feed()
            if self.sink.is_full and not self._is_open:
                stopping.wait(_PAUSE)
                continue
            count = 0
            for data in self.stream.arrived(_AT_ONCE):
                self._take(data)
                count += 1
            if count == _AT_ONCE:
                continue
            if not self._is_open:
                self.sink.pass_over(LsnPosition(self.stream.seen))
                end = until()
                if end is not None and self.stream.seen >= end:
                    self.sink.land()
                    return
                self._pass_on(is_endless=end is None)
            if count == 0:
                if until() is not None and time.monotonic() - asked_at > 1.0:
                    self._feed(ask=True)
                    asked_at = time.monotonic()
                self.stream.wait(_WAIT)

    def _pass_on(self, *, is_endless: bool) -> None:
        """Lets the server discard a log in which nothing concerns this stream."""
        durable, seen, heartbeat = self.sink.durable, self.stream.seen, self.heartbeat
        assert isinstance(durable, LsnPosition)
        is_far = seen - durable.lsn >= (FOREIGN_BYTES if self.sink.is_empty else OWN_BYTES)
        if is_far or (heartbeat is not None and is_endless and heartbeat.has_arrived(seen, durable.lsn)):
            self.sink.land_position()
            self._feed()

    def _feed(self, *, ask: bool = False) -> None:
        durable = self.sink.durable
        assert isinstance(durable, LsnPosition)
        self.stream.feed(durable.lsn, ask=ask)

    def _take(self, data: memoryview) -> None:
        kind = data[HEADER]
        if op := _ROW_OPS.get(kind):
            number = self._numbers[bytes(data[HEADER + 1 : HEADER + 5])]
            if number is not None:
                self.sink.add(number, op, data[HEADER + 5 :])
            return
        body = bytes(data[HEADER + 1 :])
        match chr(kind):
            case "B":
                begun = messages.begin(body)
                self._is_open = True
                self.sink.begin(begun.lsn, begun.at, begun.xid)
            case "C":
                end = messages.commit_end(body)
                self._is_open = False
                self.stream.seen = max(self.stream.seen, end)
                self.sink.commit(LsnPosition(end))
            case "R":
                described = messages.relation(body)
                shape = self.shape_of(described)
                self._numbers[body[:4]] = None if shape is None else self.sink.shape(shape)
            case "T":
                for oid in messages.truncated(body):
                    number = self._numbers[oid.to_bytes(4, "big")]
                    if number is not None:
                        self.sink.add(number, Op.TRUNCATE, b"")
            case _:
                pass  # O: origins; Y: names of types, which the catalog has; M: messages, as of a heartbeat
