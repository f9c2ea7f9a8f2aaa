"""A stream that reads what another flow has captured, instead of the source's log: no second reader in the source.

The other flow's landing log has every change of the tables that it captures. They are landed again in this stream's own
log, so that everything else (rounds, retention, `state set --batch`) is as for any stream. Tables are described, and
read in full at a moment, by the source itself. Another flow does not wait for this one: a batch that it no longer keeps
is a lost position.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flowctl.changes.capture import CaptureSink
from flowctl.changes.shape import Shape
from flowctl.connectors.stream import Decoder, Moment, StreamInfo, StreamProblem, StreamSource
from flowctl.diagnostics import Mark
from flowctl.errors import StoppedByPolicy
from flowctl.model.position import Position, order_of
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Spec, StreamSpec
from flowctl.state.document import StreamState
from flowctl.state.store import StateStore
from flowctl.storage.landing import LandedBatch, LandingLog
from flowctl.storage.options import open_store
from flowctl.storage.urls import scheme

#: Seconds between two looks for new batches, and until a position is recorded behind which nothing concerns the stream.
_LOOK, _RECORD = 0.5, 60.0
#: Seconds between two lists of all batches.
_LIST = 30.0
#: Rows handed over at once.
_ROWS = 10_000


def landed_source(spec: Spec, stream: StreamSpec, source: StreamSource) -> LandedSource:
    """``source`` is that of the stream's connection."""
    url = stream.landed.rstrip("/")
    if scheme(url) == "file":
        url = str(Path(spec.base_dir, url).resolve())
    blobs = open_store(url, spec.storage, unsafe=spec.state.unsafe)
    return LandedSource(source, url, StateStore(blobs), LandingLog(blobs, url, "", spec.storage))


@dataclass(frozen=True)
class LandedSource(StreamSource):
    """``url`` is the folder of the other flow's stream, ``states`` its state log, ``log`` its landing log."""

    source: StreamSource
    url: str
    states: StateStore
    log: LandingLog

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Only tables that the other flow captures."""
        newest = self._newest(self._recorded())
        return [object for object in self.source.discover(pattern) if newest and object in newest.captured]

    def describe_stream(self, stream: StreamSpec, objects: Sequence[ObjectName]) -> StreamInfo:
        recorded = self._recorded()
        newest = self._newest(recorded)
        info = self.source.describe_stream(self._other(stream, recorded or StreamState()), objects)
        info = replace(
            info, label=f"batches of {self.url}", removal="", active="", source_changes=(), advice=(), lag=None
        )
        if recorded is None or newest is None:
            what = f"nothing has been captured in {self.url}"
            nothing = StreamProblem(what, "Run the flow that captures it, or correct `landed`")
            return replace(info, problems=(nothing,), oldest=None, retained=None, health={})
        absent = [
            StreamProblem(f"{object} is not captured in {self.url}", "Read it in the flow that captures", object)
            for object in objects
            if object not in newest.captured
        ]
        of_tables = [problem for problem in info.problems if problem.object is not None]
        return replace(
            info,
            head=newest.upper,
            clock=dt.datetime.fromisoformat(newest.event_at) if newest.event_at else info.clock,
            oldest=self._first(newest).lower,
            retained=None,
            problems=(*of_tables, *absent),
            health={"newest_batch": newest.batch},
        )

    def prepare(self, stream: StreamSpec, statements: Sequence[str]) -> None:
        assert not statements, "the other flow changes the source"

    def moment(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        *,
        creates_reader: bool,
        reach: Callable[[], None] | None = None,
    ) -> AbstractContextManager[Moment]:
        other = self._other(stream, self._recorded() or StreamState())  # its positions are those of the batches
        return self.source.moment(other, objects, creates_reader=False, reach=reach)

    def reach_standbys(self) -> None:
        self.source.reach_standbys()

    def why_no_snapshots(self, system: str) -> StreamProblem | None:
        return self.source.why_no_snapshots(system)

    def capture(
        self,
        stream: StreamSpec,
        objects: Sequence[ObjectName],
        after: Position,
        until: Callable[[], Position | None],
        sink: CaptureSink,
        stopping: threading.Event,
    ) -> None:
        """With a goal, until everything that has landed by then was taken: the other flow may not reach the goal."""
        delivery = _Delivery(self, stream, frozenset(objects), after, sink, stopping)
        recorded_at = time.monotonic()
        while not stopping.is_set():
            has_goal = until() is not None
            if not delivery.take_new():
                return
            if has_goal:
                sink.land()
            is_late = time.monotonic() - recorded_at > _RECORD
            if (has_goal or (is_late and sink.is_empty)) and sink.durable != delivery.reached:
                sink.land_position()
                recorded_at = time.monotonic()
            if has_goal:
                return
            sink.pass_over(delivery.reached)  # may land what has waited long enough
            stopping.wait(_LOOK)

    def acknowledge(self, stream: StreamSpec, position: Position) -> None:
        """The other flow does not wait."""

    def drop_reader(self, stream: StreamSpec) -> None:
        """There is none."""

    def end(self, stream: StreamSpec) -> None:
        """Nothing in the source is this stream's."""

    def decoder(self, shape: Shape) -> Decoder:
        return self.source.decoder(shape)

    def commit_text(self, order: int) -> str:
        return self.source.commit_text(order)

    def position_at(self, order: int) -> Position:
        return self.source.position_at(order)

    def _recorded(self) -> StreamState | None:
        return self.states.read().stream

    def _newest(self, recorded: StreamState | None) -> LandedBatch | None:
        return self.log.newest(recorded.applied) if recorded is not None else None

    def _first(self, newest: LandedBatch) -> LandedBatch:
        """The oldest batch that is kept."""
        numbers = self.log.numbers()
        return (self.log.batch(numbers[0]) if numbers else None) or newest

    def _other(self, stream: StreamSpec, recorded: StreamState) -> StreamSpec:
        """The stream as the other flow has it, by its state and its folder (`<flow>/streams/<name>`)."""
        *_, flow, _, name = ["", "", *self.url.split("/")]
        return StreamSpec(name, flow, stream.connection, Mark("", 0), options=recorded.options)


@dataclass
class _Delivery:
    """Hands over what follows ``reached``."""

    source: LandedSource
    stream: StreamSpec
    wanted: frozenset[ObjectName]
    reached: Position
    sink: CaptureSink
    stopping: threading.Event
    _last: int = -1
    _listed_at: float = float("-inf")

    def take_new(self) -> bool:
        """All batches that are there; False if it was asked to stop before their end."""
        for batch in self._batches():
            if self._is_behind(batch.upper):
                self._require(batch)
                if not self._take(batch):
                    return False
                self.reached = batch.upper
                self.sink.pass_over(self.reached)
            self._last = batch.batch
        return True

    def _batches(self) -> Iterator[LandedBatch]:
        """Those behind the last one, in order. Now and then they are listed: only so a batch that is gone shows, as a
        gap before the next one."""
        log = self.source.log
        while self._last >= 0 and (batch := log.batch(self._last + 1)) is not None:
            yield batch
        if time.monotonic() - self._listed_at >= _LIST:
            self._listed_at = time.monotonic()
            for number in log.numbers():
                if number > self._last and (batch := log.batch(number)) is not None:
                    yield batch

    def _is_behind(self, position: Position) -> bool:
        return order_of(position) > order_of(self.reached)

    def _require(self, batch: LandedBatch) -> None:
        """The batch continues where this stream is, and has all of its tables."""
        if self._is_behind(batch.lower):
            raise self._lost(f"its batch {batch.batch} begins at {batch.lower}")
        absent = sorted(str(object) for object in self.wanted - {*batch.captured})
        if absent:
            raise StoppedByPolicy(
                f"{absent[0]} is no longer captured in {self.source.url}, since its batch {batch.batch}",
                hint="Read it in the flow that captures, then `flowctl state resnapshot` it here; or remove it here",
                mark=self.stream.mark,
            )

    def _lost(self, why: str) -> StoppedByPolicy:
        return StoppedByPolicy(
            f"the position of stream {self.stream.name} is lost: {self.source.url} no longer has what follows "
            f"{self.reached}: {why}",
            hint="Plan again: it says what to do",
            mark=self.stream.mark,
        )

    def _take(self, batch: LandedBatch) -> bool:
        log, sink = self.source.log, self.sink
        tables = [table for table in batch.tables if table.object in self.wanted]
        shapes = {int(number): log.shape(digest) for table in tables for number, digest in table.shapes.items()}
        numbers: dict[ObjectName, tuple[int, int]] = {}  # of each table: the batch's number of its shape, the sink's
        open_at = None
        for row in self._rows(batch, shapes):
            if row["lsn"] != open_at:
                self._commit(open_at)
                while sink.is_full and not self.stopping.wait(_LOOK):
                    pass
                if self.stopping.is_set():
                    return False
                open_at = row["lsn"]
                sink.begin(row["lsn"], row["committed_at"], row["xid"])
            shape = shapes[row["shape"]]
            if numbers.get(shape.object, (None,))[0] != row["shape"]:
                numbers[shape.object] = row["shape"], sink.shape(shape)
            sink.add(numbers[shape.object][1], row["op"], row["data"])
        self._commit(open_at)
        return True

    def _commit(self, order: int | None) -> None:
        """Ends the open transaction. Positions are the ends of commits; what is known of each is where it begins."""
        if order is not None:
            self.sink.commit(self.source.position_at(order + 1))

    def _rows(self, batch: LandedBatch, shapes: Mapping[int, Shape]) -> Iterator[dict[str, Any]]:
        """In the order of the source."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not shapes:
            return
        try:
            found = list(self.source.log.rows(batch, shapes))
        except FileNotFoundError as cause:
            raise self._lost(f"the files of its batch {batch.batch} are gone") from cause
        rows = pa.Table.from_batches(found)
        rows = rows.filter(pc.greater_equal(rows["lsn"], order_of(self.reached)))
        rows = rows.set_column(
            rows.column_names.index("committed_at"), "committed_at", rows["committed_at"].cast("int64")
        )
        rows = rows.take(pc.sort_indices(rows, sort_keys=[("lsn", "ascending"), ("ordinal", "ascending")]))
        for part in rows.to_batches(max_chunksize=_ROWS):
            yield from part.to_pylist()
