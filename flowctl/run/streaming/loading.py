"""Reads the tables of a stream that need it in full, at a moment of the source's log, while the stream is captured.

A moment holds locks, and a session that waits for a stronger one (TRUNCATE, ALTER) keeps the moment's own readers
waiting behind it. So a moment ends when one table cannot be read; whoever waited gets a turn, and the tables that are
left are read at another moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl import crashpoints
from flowctl.connectors.stream import Moment
from flowctl.errors import AlteredSincePlan, FlowctlError, TransientError
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition, Position, order_of
from flowctl.model.step import Load
from flowctl.model.table_info import ObjectName
from flowctl.observe.relations import objects_of
from flowctl.run import events
from flowctl.run.streaming.advance import Rounds
from flowctl.run.streaming.capturing import Capturing
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, StreamState
from flowctl.state.streams import applied, joined, without_positions
from flowctl.storage.landing import LandedBatch

if TYPE_CHECKING:
    from flowctl.run.streaming.stream_run import StreamRun

#: Moments of one pass, and the seconds between the first two of them; doubled each time.
MOMENTS, FIRST_PAUSE = 6, 1.0


@dataclass
class Loading:
    """``_goal`` is where one pass ends: at the end of the log when it was planned, or at its last moment."""

    on: StreamRun
    capture: Capturing
    rounds: Rounds
    _goal: Position | None = None

    def begin(self, loads: Sequence[Load]) -> None:
        """Starts the capture, and returns when all of ``loads`` were read, or failed."""
        self._goal = self.on.plan.upper
        left = list(loads)
        if self.on.plan.action == "create":
            left = self._create(left)
        else:
            newest = self.on.log.newest(self.on.stream_state.applied)
            assert newest is not None, "the plan has found the stream's first batch"
            self._join(newest)
            self._start(newest)
        for number in range(1, MOMENTS + 1):
            if not left:
                break
            left = self._read(left, is_last=number == MOMENTS)
            if left and self.on.run.stopping.wait(FIRST_PAUSE * 2.0 ** (number - 1)):
                break
        if self.on.follow is None:
            self.capture.goal = self._goal

    def _create(self, loads: Sequence[Load]) -> list[Load]:
        """Makes the stream's reader, and reads the tables at its moment."""
        on = self.on
        stream = on.stream
        on.change(
            replace(on.stream_state, begun=on.plan.label, connection=stream.connection, options=stream.identifying)
        )
        crashpoints.reached("moment_begun")
        objects, left = objects_of(on.tables) if on.standby is None else [], list(loads)
        with _may_end_early(on.source.moment(on.stream, objects, creates_reader=True)) as moment:
            batch = self._record(moment)
            self._join(batch)
            self._start(batch)
            if on.standby is None:
                left = self._load(moment, batch, loads, is_last=False)
        return left

    def _record(self, moment: Moment) -> LandedBatch:
        """From here on the reader is the stream's own: what is before the moment is in the tables' snapshots."""
        on = self.on
        before = on.log.newest(on.stream_state.applied)
        number = before.batch + 1 if before is not None else 0
        captured = tuple(objects_of(on.everyone))
        batch = on.log.create(LandedBatch(number, moment.at, moment.at, moment.event_at, captured=captured))
        info = on.seen.info
        assert info is not None
        stream = StreamState(
            source=info.system,
            published=info.published,
            applied=number,
            connection=on.stream.connection,
            options=on.stream.identifying,
        )

        def change(document: StateDocument) -> StateDocument:  # what was captured before does not lead to here
            return documents.with_stream(without_positions(document, list(document.tables)), stream)

        on.writer.change(change).result()
        crashpoints.reached("moment_recorded")
        return batch

    def _join(self, newest: LandedBatch) -> None:
        """Tables without a snapshot take what is captured from now on."""
        on = self.on
        read = {step.id for step in on.plan.steps if isinstance(step, Load)}
        ids = [one.id for one in on.tables if one.id not in read and applied(on.document, one.id) is None]
        if ids and on.stream.snapshot == "never":
            position = LandedPosition(newest.batch, str(newest.upper), str(newest.upper))
            on.writer.change(lambda document: joined(document, ids, position)).result()

    def _start(self, newest: LandedBatch) -> None:
        seconds = self.on.stream.every if self.on.follow is not None else None
        self.capture.start(newest, objects_of(self.on.everyone), seconds)

    def _read(self, loads: Sequence[Load], *, is_last: bool) -> list[Load]:
        """Reads the tables at a new moment; returns those that are left."""
        newest = self.capture.newest  # from before the moment: what lands from now on may be after it
        assert newest is not None
        objects = objects_of([self.on.run.tables[step.id] for step in loads])
        left = list(loads)
        try:
            with _may_end_early(self._moment(objects)) as moment:
                left = self._load(moment, newest, loads, is_last=is_last)
        except TransientError:
            if is_last:
                raise
        return left

    def _moment(self, objects: Sequence[ObjectName]) -> AbstractContextManager[Moment]:
        on = self.on
        if on.standby is None:
            return on.source.moment(on.stream, objects, creates_reader=False)
        return on.standby.moment(on.stream, objects, creates_reader=False, reach=on.source.reach_standbys)

    def _load(self, moment: Moment, batch: LandedBatch, loads: Sequence[Load], *, is_last: bool) -> list[Load]:
        if self._goal is None or order_of(moment.at) > order_of(self._goal):
            self._goal = moment.at
        document, upper = self.on.document, LandedPosition(batch.batch, str(batch.upper), str(moment.at))
        steps = [replace(one, interval=Interval(None, upper), seq=document.table(one.id).next_seq) for one in loads]
        reading = Reading(moment, self.on.run.listener, is_last=is_last)
        self.on.reading = reading
        try:
            done = self.on.carry_out(steps, moment.event_at, reading)
        finally:
            self.on.reading = None
        again = {result.step.id for result in done if reading.may_be_repeated(result.error)}
        self.rounds.failed |= {result.step.id for result in done if not result.ok and result.step.id not in again}
        self.rounds.is_outdated |= any(isinstance(result.error, AlteredSincePlan) for result in done)
        joined = {result.step.id for result in done if result.ok}
        if joined & {*self.on.stream_state.apart}:
            apart = {id: number for id, number in self.on.stream_state.apart.items() if id not in joined}
            self.on.change(replace(self.on.stream_state, apart=apart))
        return [step for step in loads if step.id in again]


@contextmanager
def _may_end_early(opening: AbstractContextManager[Moment]) -> Iterator[Moment]:
    """A moment whose connections may be lost before it is closed: what was read at it by then was read well."""
    is_used = False
    try:
        with opening as moment:
            yield moment
            is_used = True
    except TransientError:
        if not is_used:
            raise


class Reading:
    """A moment at which tables are read; ``is_last``: those that fail are not read at another one."""

    def __init__(self, moment: Moment, listener: events.Listener, *, is_last: bool) -> None:
        self._moment = moment
        self._listener = listener
        self._is_last = is_last
        self._is_over = False

    @property
    def moment(self) -> Moment:
        """Raises :class:`TransientError` once a table could not be read."""
        if self._is_over:
            raise TransientError("the moment has ended", hint="Wait: the table is read at another one")
        return self._moment

    def may_be_repeated(self, error: FlowctlError | None) -> bool:
        return isinstance(error, TransientError) and not self._is_last

    def tell(self, event: events.Event) -> None:
        """A listener."""
        if isinstance(event, events.TableFailed) and self.may_be_repeated(event.error):
            if not self._is_over:
                self._listener(events.TableRetried(event.table, 1, FIRST_PAUSE, event.error))
            self._is_over = True
        else:
            self._listener(event)
