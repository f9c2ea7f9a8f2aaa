"""One pass over one change stream: create its reader, read new tables at a moment, capture, and apply what has landed.

Capture runs in a thread of its own, from the moment where the reader exists to the end of the source's log when the
plan was made, or, in a stream that is followed, until it is planned again. Snapshots and rounds run in the calling
thread. Whatever has landed is applied, also if capture failed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl import crashpoints, text
from flowctl.connectors.source import Snapshot
from flowctl.connectors.stream import StreamSource
from flowctl.errors import Interrupted, StoppedByPolicy
from flowctl.model.commit import Intent
from flowctl.model.position import LandedPosition
from flowctl.model.step import Load, RecordOnly, Recover, Runnable, StreamPlan
from flowctl.observe.relations import objects_of, relation
from flowctl.observe.world import SeenStream
from flowctl.plan.definition import definition
from flowctl.plan.stream_keys import source_key
from flowctl.run import events
from flowctl.run.attempt import RunContext, TableResult, TableResults
from flowctl.run.protocol import Protocol
from flowctl.run.retry import RetryPolicy
from flowctl.run.streaming.advance import Rounds
from flowctl.run.streaming.capturing import Capturing
from flowctl.run.streaming.loading import Loading, Reading
from flowctl.run.streaming.results import Results
from flowctl.run.streaming.retention import Kept
from flowctl.run.streaming.shaping import is_changes
from flowctl.run.streaming.snapshots import ChangesSnapshot, open_moment
from flowctl.run.tries import Retries
from flowctl.spec.spec import StreamSpec, TableSpec
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, StreamState
from flowctl.state.streams import applied, without_positions
from flowctl.state.writer import StateWriter
from flowctl.storage.landing import LandedBatch, LandingLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Seconds between two looks at the clock while nothing lands.
_LOOK = 0.5


@dataclass(frozen=True)
class Follow:
    """When a stream that is followed is planned again, by the monotonic clock: at ``until``, or at ``patience`` while
    no table can take what is captured, or one needs another plan."""

    until: float
    patience: float


@dataclass
class StreamRun:
    """``run`` is the context of this stream's tables: its lineage, lease and state. ``tables`` are those in the run,
    ``everyone`` all that the stream has in the spec. ``standby`` is where tables are read in full, None: at
    ``source``."""

    plan: StreamPlan
    stream: StreamSpec
    seen: SeenStream
    source: StreamSource
    standby: StreamSource | None
    log: LandingLog
    run: RunContext
    writer: StateWriter
    retries: Retries
    parallel: int
    tables: Sequence[TableSpec]
    everyone: Sequence[TableSpec]
    kept: Kept
    results: Results
    follow: Follow | None = None
    reading: Reading | None = None

    def __post_init__(self) -> None:
        self.run = replace(self.run, opener=self._open)

    def finish(self) -> None:
        """Runs the pass. Errors of the stream itself are raised, after what has landed was applied."""
        self._clear()
        self._forget_removed()
        rounds = Rounds(self)
        rounds.failed |= {result.step.id for result in self._recover() if not result.ok}
        self._prepare()
        with Capturing(self.stream, self.source, self.log, self.kept, self._check, self.run.listener) as capture:
            loads = [self._published(step) for step in self.plan.steps if isinstance(step, Load)]
            Loading(self, capture, rounds).begin(loads)
            self._apply(capture, rounds)
            if self.follow is not None or self.run.stopping.is_set():
                capture.stop()
            else:
                self._require_room(capture)
            capture.result()
            self._keep(rounds)

    def _check(self) -> None:
        self.run.check_lease(0.0)

    def _clear(self) -> None:
        """Removes files of a process that was killed, or lost the stream's lease. If it lives, it must not land them
        any more, so its batch is taken first."""
        newest = self.log.newest(self.stream_state.applied)
        number = newest.batch if newest is not None else -1
        if newest is not None and self.log.has_leftovers(number):
            fence = LandedBatch(number + 1, newest.upper, newest.upper, newest.event_at, captured=newest.captured)
            number = self.log.create(fence).batch
        self.log.sweep(number)

    def _forget_removed(self) -> None:
        """Tables that the spec no longer has are not captured any more: if they return, they are read in full."""
        there = {table.id for table in self.everyone}
        gone = [id for id, state in self.document.tables.items() if id not in there and state.position is not None]
        if gone:
            self.writer.change(lambda document: without_positions(document, gone)).result()

    def _prepare(self) -> None:
        """Carries out the plan's changes in the source, and takes note of how the tables are published since."""
        info, stream = self.seen.info, self.stream_state
        if self.plan.action != "create" and info is not None and not stream.source:  # killed before it was recorded
            self.change(replace(stream, source=info.system, published=info.published))
        if not self.plan.source_changes:
            return
        crashpoints.reached("before_prepare")
        self.source.prepare(self.stream, self.plan.source_changes)
        info = self.source.describe_stream(self.stream, objects_of(self.tables))
        self.seen = replace(self.seen, info=info)
        sources = dict(self.run.sources)
        for table in self.tables:
            object = relation(table).object
            now = info.tables.get(object) if object is not None else None
            if now is not None and table.id in sources:
                # The columns are the plan's: what came since is noticed by their numbers when the table is read.
                planned = sources[table.id].extra
                numbers = {"numbers": planned["numbers"]} if "numbers" in planned else {}
                sources[table.id] = replace(sources[table.id], extra={**planned, **now.extra, **numbers})
        self.run = replace(self.run, sources=sources)

    def _published(self, step: Load) -> Load:
        found = definition(self.run.tables[step.id], self.run.sources[step.id])
        return replace(step, table=replace(step.table, definition=found))

    # Rounds

    def _apply(self, capture: Capturing, rounds: Rounds) -> None:
        """Round after round, until everything that this pass captures is applied, or no table can take it: then what is
        new is only captured."""
        goes_on = self.plan.action != "capture" and rounds.catch_up()
        while True:
            is_last, newest = capture.is_done, capture.newest
            is_waiting = newest is not None and newest.batch > self.stream_state.applied
            if goes_on and is_waiting and newest is not None and not self.run.stopping.is_set():
                goes_on = rounds.apply(newest)
                self._keep(rounds)
            elif is_last or self.run.stopping.is_set() or self._is_over(rounds, goes_on=goes_on):
                return
            else:
                capture.wait(_LOOK)
            if self.kept.is_full:
                self._keep(rounds)
                if self.kept.is_full and not (goes_on and is_waiting):
                    return

    def _is_over(self, rounds: Rounds, *, goes_on: bool) -> bool:
        """Whether a stream that is followed is planned again first."""
        if self.follow is None:
            return False
        now = time.monotonic()
        if not goes_on or rounds.is_outdated:
            return rounds.has_dropped or now >= self.follow.patience
        return rounds.has_dropped or now >= self.follow.until

    def _keep(self, rounds: Rounds) -> None:
        self.kept.prune(self.document, [table.id for table in self.everyone])
        rounds.prune()

    def _require_room(self, capture: Capturing) -> None:
        if not self.kept.is_full or capture.is_done:
            return
        lagging = [id for id in self.stream_state.apart if applied(self.document, id) is not None]
        why = f", which {text.some(lagging)} has not taken yet" if lagging else ""
        raise StoppedByPolicy(
            f"the stream {self.stream.name} keeps {text.size(self.kept.bytes)} of captured changes{why}: capturing "
            "pauses, and the source keeps its log",
            hint="Fix the tables that are stopped, remove them from the spec, or raise `buffer.max_bytes`",
            mark=self.stream.mark,
        )

    def _recover(self) -> list[TableResult]:
        """Finishes the sequence numbers that an earlier run has begun, with the same batches."""
        steps = [step for step in self.plan.steps if isinstance(step, Recover | RecordOnly)]
        return self.carry_out(steps, "") if steps else []

    # Commits

    def carry_out(
        self, steps: Sequence[Runnable], at: str, reading: Reading | None = None, *, is_round: bool = False
    ) -> list[TableResult]:
        """Commits each table; those of one target together, if it can commit several at once. Of the rounds of a stream
        that is followed, only what goes wrong is told of each table. Within a moment nothing is repeated."""
        run, retries = self.run, self.retries
        if reading is not None:
            run, retries = replace(run, listener=reading.tell), Retries(RetryPolicy(tries=1))
        elif is_round and self.follow is not None:
            run = replace(run, listener=self._tell_failures)
        protocol = Protocol(run, self.writer, retries)
        protocol.begin_steps(steps, at)
        groups = self._groups(steps)
        try:
            with ThreadPoolExecutor(self.parallel, thread_name_prefix=self.stream.name) as pool:
                done = [one for ended in pool.map(lambda group: self._commit(protocol, group), groups) for one in ended]
        finally:
            self.run.renew([step.id for step in steps])
        if reading is not None:
            protocol.withdraw(TableResults(tuple(done)))
            self.results.add(result for result in done if not reading.may_be_repeated(result.error))
        else:
            self.results.add(done)
        self.run.buffer.clear()
        return done

    def _tell_failures(self, event: events.Event) -> None:
        if isinstance(event, events.TableFailed) and isinstance(event.error, Interrupted):
            return  # its round is finished by the next run
        if isinstance(event, events.TableFailed | events.TableRetried | events.TableSkipped):
            self.run.listener(event)

    def _commit(self, protocol: Protocol, group: Sequence[Runnable]) -> list[TableResult]:
        if len(group) == 1:
            return [protocol.carry_out(group[0])]
        done = protocol.carry_out_together(group, self.parallel)
        if self.stream.on_table_error == "detach" and not all(result.ok for result in done):
            return [protocol.carry_out(step) for step in group]  # so that only those fall behind that cannot go on
        return done

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
            assert self.reading is not None, "tables are read in full within their moment"
            return open_moment(self.reading.moment, spark, table, wanted, info, self.run.buffer)
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
    def document(self) -> StateDocument:
        return self.writer.document

    @property
    def stream_state(self) -> StreamState:
        return self.document.stream or StreamState()

    def change(self, stream: StreamState) -> None:
        def change(document: StateDocument) -> StateDocument:
            return documents.with_stream(document, stream)

        self.writer.change(change).result()


class _Opened(AbstractContextManager[Snapshot]):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __enter__(self) -> Snapshot:
        return self._snapshot

    def __exit__(self, *_: object) -> None:
        return None
