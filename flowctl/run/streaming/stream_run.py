"""One pass over one change stream: create its reader, read new tables at a moment, capture, and apply what has landed.

Capture runs in a thread of its own, from the moment where the reader exists to the end of the source's log when the
pass began. Snapshots and rounds run in the calling thread. Whatever has landed is applied, also if capture failed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flowctl import crashpoints
from flowctl.connectors.source import Snapshot
from flowctl.connectors.stream import Moment, StreamSource
from flowctl.errors import FlowctlError
from flowctl.model.commit import Intent
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition, Position
from flowctl.model.step import Load, RecordOnly, Recover, Runnable, StreamPlan
from flowctl.model.table_info import ObjectName
from flowctl.observe.relations import relation
from flowctl.observe.world import SeenStream
from flowctl.plan.stream_keys import source_key
from flowctl.run import events
from flowctl.run.attempt import RunContext, TableResult
from flowctl.run.protocol import Protocol
from flowctl.run.streaming.rounds import Round, plan_round
from flowctl.run.streaming.shaping import is_changes
from flowctl.run.streaming.snapshots import ChangesSnapshot, open_moment
from flowctl.run.tries import Retries
from flowctl.spec.spec import StreamSpec, TableSpec
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, StreamState
from flowctl.state.writer import StateWriter
from flowctl.storage.lander import BatchLimits, Lander
from flowctl.storage.landing import LandedBatch, LandingLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class StreamRun:
    """``run`` is the context of this stream's tables: its lineage, lease and state. ``tables`` are those in the run."""

    plan: StreamPlan
    stream: StreamSpec
    seen: SeenStream
    source: StreamSource
    log: LandingLog
    run: RunContext
    writer: StateWriter
    retries: Retries
    parallel: int
    tables: Sequence[TableSpec]
    results: list[TableResult] = field(default_factory=list)
    _moment: Moment | None = None
    _goal: Position | None = None
    _is_captured: threading.Event = field(default_factory=threading.Event)
    _failure: FlowctlError | None = None

    def __post_init__(self) -> None:
        self.run = replace(self.run, opener=self._open)

    def finish(self) -> list[TableResult]:
        """Runs the pass; what happened to each table, in order. Errors of the stream itself are raised, after what has
        landed was applied."""
        self.log.sweep()
        self._recover()
        self.source.prepare(self.stream, self.plan.source_changes)
        stopping = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix=f"capture {self.stream.name}") as pool:
            try:
                capture = self._begin(pool, stopping)
                self._apply(capture)
                capture.result()
            finally:
                stopping.set()
        return self.results

    # Beginning, and reading tables in full

    def _begin(self, pool: ThreadPoolExecutor, stopping: threading.Event) -> Future[None]:
        """Starts the capture, and reads the tables that need it."""
        loads = [step for step in self.plan.steps if isinstance(step, Load)]
        if self.plan.action == "create":
            self._change(replace(self._stream, begun=self.plan.label))
            crashpoints.reached("moment_begun")
            with self.source.moment(self.stream, self._objects(self.tables), creates_reader=True) as moment:
                batch = self._record_moment(moment, loads)
                self._goal = moment.at
                capture = pool.submit(self._capture, batch, stopping)
                self._load(moment, batch, loads)
            return capture
        newest = self.log.newest(self._stream.applied)
        assert newest is not None, "the plan has found the stream's first batch"
        self._goal = self.plan.upper
        if not loads:
            return pool.submit(self._capture, newest, stopping)
        loading = self._objects([self.run.tables[step.id] for step in loads])
        with self.source.moment(self.stream, loading, creates_reader=False) as moment:
            self._goal = max(self._goal, moment.at, key=self.source.order_of) if self._goal else moment.at
            capture = pool.submit(self._capture, newest, stopping)
            self._load(moment, newest, loads)
        return capture

    def _record_moment(self, moment: Moment, loads: Sequence[Load]) -> LandedBatch:
        """From here on the reader is the stream's own: what is before the moment is in the tables' snapshots."""
        before = self.log.newest(self._stream.applied)
        number = before.batch + 1 if before is not None else 0
        batch = self.log.create(LandedBatch(number, moment.at, moment.at, moment.event_at))
        info = self.seen.info
        assert info is not None
        apart = {step.id: number for step in loads}
        self._change(StreamState(source=info.system, applied=number, apart=apart))
        crashpoints.reached("moment_recorded")
        return batch

    def _load(self, moment: Moment, batch: LandedBatch, loads: Sequence[Load]) -> None:
        upper = LandedPosition(batch.batch, str(batch.upper), str(moment.at))
        steps = [replace(step, interval=Interval(None, upper)) for step in loads]
        self._moment = moment
        try:
            done = self._carry_out(steps, moment.event_at)
        finally:
            self._moment = None
        apart = dict(self._stream.apart)
        for result in done:
            if result.ok:
                apart.pop(result.step.id, None)
        if apart != self._stream.apart:
            self._change(replace(self._stream, apart=apart))

    # Capture

    def _capture(self, newest: LandedBatch, stopping: threading.Event) -> None:
        limits = BatchLimits(self.stream.batch_rows, self.stream.batch_bytes)
        lander = Lander(self.log, newest, limits, lambda: self.run.check_lease(0.0), self._landed)
        try:
            objects = self._objects(self.tables)
            self.source.capture(self.stream, objects, newest.upper, lambda: self._goal, lander, stopping)
            crashpoints.reached("acknowledged")
        finally:
            self._is_captured.set()

    def _landed(self, batch: LandedBatch) -> None:
        self.run.listener(
            events.BatchLanded(self.stream.name, batch.batch, batch.changes, batch.bytes, str(batch.upper))
        )

    # Rounds

    def _apply(self, capture: Future[None]) -> None:
        """Round after round, until everything that this pass captures is applied."""
        while True:
            is_last = self._is_captured.wait(0.05)
            newest = self.log.newest(self._stream.applied)
            if newest is not None and newest.batch > self._stream.applied:
                if not self._round(newest):
                    return
            elif is_last or self.run.stopping.is_set():
                return

    def _round(self, newest: LandedBatch) -> bool:
        """Applies what has landed, as much as one commit takes. Returns whether all of it was applied."""
        document = self.writer.document
        batches = self.log.between(self._stream.applied, newest.batch)
        taken = _fitting(batches, self.stream)
        there = [table for table in self.tables if document.table(table.id).position is not None]
        made = plan_round(self, there, taken)
        if made.stopped:
            self.results += made.stopped
            return False
        done = self._carry_out(made.steps, taken[-1].event_at) if made.steps else []
        if not all(result.ok for result in done):
            return False
        crashpoints.reached("round_committed")
        self._change(replace(self._stream, applied=taken[-1].batch))
        self._report(made, taken[-1], done)
        return True

    def _report(self, made: Round, last: LandedBatch, done: Sequence[TableResult]) -> None:
        if done:
            seconds = max(result.seconds for result in done)
            self.run.listener(
                events.RoundCommitted(self.stream.name, last.batch, str(last.upper), len(made.steps), seconds)
            )

    def _recover(self) -> None:
        """Finishes the sequence numbers that an earlier run has begun, with the same batches."""
        steps = [step for step in self.plan.steps if isinstance(step, Recover | RecordOnly)]
        if steps:
            self._carry_out(steps, "")

    # Commits

    def _carry_out(self, steps: Sequence[Runnable], at: str) -> list[TableResult]:
        """Commits each table; those of one target together, if it can commit several at once."""
        protocol = Protocol(self.run, self.writer, self.retries)
        protocol.begin_steps(steps, at)
        groups = self._groups(steps)
        with ThreadPoolExecutor(self.parallel, thread_name_prefix=self.stream.name) as pool:
            done = [one for ended in pool.map(lambda group: self._commit(protocol, group), groups) for one in ended]
        self.results += done
        return done

    def _commit(self, protocol: Protocol, group: Sequence[Runnable]) -> list[TableResult]:
        if len(group) == 1:
            return [protocol.carry_out(group[0])]
        return protocol.carry_out_together(group, self.parallel)

    def _groups(self, steps: Sequence[Runnable]) -> list[list[Runnable]]:
        from flowctl.connectors import registry

        groups: dict[str, list[Runnable]] = {}
        for step in steps:
            connection = self.run.tables[step.id].target.connection
            can = registry.capabilities(self.run.spec.connections[connection].type).target
            is_together = can is not None and can.atomic == "database" and is_changes(step.interval)
            groups.setdefault(f"connection {connection}" if is_together else f"table {step.id}", []).append(step)
        return list(groups.values())

    # What a table reads

    def _open(self, spark: SparkSession, table: TableSpec, intent: Intent) -> AbstractContextManager[Snapshot]:
        wanted, info = relation(table), self.run.sources[table.id]
        assert wanted.object is not None
        lower, upper = intent.interval.lower, intent.interval.upper
        assert isinstance(upper, LandedPosition)
        if not isinstance(lower, LandedPosition):
            assert self._moment is not None, "tables are read in full within their moment"
            return open_moment(self._moment, spark, table, wanted, info)
        return _Opened(
            ChangesSnapshot(
                spark=spark,
                source=self.source,
                log=self.log,
                batches=self.log.between(lower.batch, upper.batch),
                object=wanted.object,
                table=table,
                key=source_key(table),
                since=lower.since,
                make_folder=lambda: self.run.buffer.folder(f"{table.id}-{intent.seq}-changes"),
                ignores_truncates=self.stream.on_truncate == "ignore" and table.mode != "append",
            )
        )

    # State

    @property
    def _stream(self) -> StreamState:
        return self.writer.document.stream or StreamState()

    def _change(self, stream: StreamState) -> None:
        def change(document: StateDocument) -> StateDocument:
            return documents.with_stream(document, stream)

        self.writer.change(change).result()

    def _objects(self, tables: Sequence[TableSpec]) -> list[ObjectName]:
        return list(dict.fromkeys(object for table in tables if (object := relation(table).object) is not None))


class _Opened(AbstractContextManager[Snapshot]):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __enter__(self) -> Snapshot:
        return self._snapshot

    def __exit__(self, *_: object) -> None:
        return None


def _fitting(batches: Sequence[LandedBatch], stream: StreamSpec) -> list[LandedBatch]:
    """As many of the first batches as one commit takes; at least one."""
    taken: list[LandedBatch] = []
    changes = size = 0
    for batch in batches:
        changes, size = changes + batch.changes, size + batch.bytes
        if taken and (changes > stream.batch_rows or size > stream.batch_bytes):
            break
        taken.append(batch)
    return taken
