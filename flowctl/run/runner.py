"""A plan's steps through threads, in DAG order: intents once at the start, every table on its own, then its record.

A failed table stops its dependents and nobody else. What ends the whole run (lost lease, state conflict) stops
everything that has not begun to commit.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import assert_never

from flowctl import crashpoints
from flowctl.connectors import registry
from flowctl.errors import (
    AbortRun,
    AccessDenied,
    FlowctlError,
    StalePlan,
    StoppedByPolicy,
    TableError,
    TransientError,
)
from flowctl.model.commit import Commit, Intent, RowCounts, commit_name
from flowctl.model.step import Load, Plan, RecordOnly, Runnable, Step, Stopped, UpToDate
from flowctl.plan.reading import rfc3339
from flowctl.plan.repetition import repetition
from flowctl.run import events
from flowctl.run.attempt import Attempt, AttemptResult, RunContext
from flowctl.run.blame import at_fault
from flowctl.run.chains import Chain, Key, chains_of, continued, key_of
from flowctl.run.failure import translate, whole_text
from flowctl.run.retry import CircuitBreaker, RetryPolicy, retrying
from flowctl.spec.spec import Connection, SqlSource
from flowctl.state import document as documents
from flowctl.state.document import Recorded, StateDocument, TableState
from flowctl.state.writer import StateWriter

ASKED_TO_STOP = "the run was asked to stop"
REFRESH_NOT_BEGUN = "the run was asked to stop before its full refresh was begun: give --full-refresh again"


@dataclass(frozen=True)
class TableResult:
    """How one step ended. ``error`` None: committed and recorded, or nothing to do. ``skipped_for``: what it needs."""

    step: Step
    seconds: float = 0.0
    counts: RowCounts = RowCounts()
    seq: int | None = None
    recovered: bool = False
    warnings: tuple[str, ...] = ()
    error: FlowctlError | None = None
    skipped_for: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and self.skipped_for is None


@dataclass(frozen=True)
class Execution:
    """How to run: ``parallel`` tables at once, ``policy`` for retries."""

    parallel: int
    policy: RetryPolicy = RetryPolicy()
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)


@dataclass(frozen=True)
class TableResults:
    """How each step ended, in the plan's order, and what ended the whole run early."""

    outcomes: tuple[TableResult, ...]
    error: FlowctlError | None = None


def execute(plan: Plan, document: StateDocument, run: RunContext, writer: StateWriter, how: Execution) -> TableResults:
    """Runs every step of ``plan``. An :class:`AbortRun` of a table ends the run after the others under way have ended;
    one from before the first table is raised."""
    first = [step for step in plan.runnable if not isinstance(step, Load) or step.follows is None]
    todo = [] if run.stopping.is_set() else first
    document = _give_up(todo, document, run, writer)
    attempts = {key_of(step): _attempt(step, document, run) for step in todo}
    crashpoints.reached("before_intent")
    if attempts:
        writer.begin({attempt.step.id: attempt.intent for attempt in attempts.values()})
    crashpoints.reached("after_intent")
    ended = _Schedule(plan, attempts, run, writer, how).finish()
    outcomes = {key_of(one.step): one for one in ended.outcomes if isinstance(one.step, Runnable)}
    withdrawn = [attempt.step.id for key, attempt in attempts.items() if _is_withdrawn(attempt, outcomes[key])]
    if withdrawn:
        try:
            writer.change(lambda document: documents.without_intents(document, withdrawn)).result()
        except AbortRun as error:  # the next run finishes or withdraws them; what ended this one matters more
            return replace(ended, error=ended.error or error)
    return ended


def _is_withdrawn(attempt: Attempt, outcome: TableResult) -> bool:
    """No write has begun under its intent, so that nothing can land any more, and the next run finds by itself what it
    has to do. It does not where somebody asked for a full refresh: that stays begun unless a guard refused it. A number
    that an earlier run began is not ours to withdraw."""
    if outcome.ok or attempt.writing or not isinstance(attempt.step, Load):
        return False
    return not attempt.step.refresh or isinstance(outcome.error, StoppedByPolicy)


def _give_up(todo: Sequence[Runnable], document: StateDocument, run: RunContext, writer: StateWriter) -> StateDocument:
    """Commits a void under each pending number that the plan does not finish, so that no stale writer of it can land.
    One that is committed all the same is kept, and recorded where the plan allows for its rows."""
    from flowctl.run.table import void

    for step in todo:
        pending = document.table(step.id).intent
        if isinstance(step, Load) and pending is not None:
            before = document.table(step.id)
            commit = void(run, step, pending)
            if not (commit.void or _allows_for(step, before, commit)):
                raise StalePlan(f"{step.id}: sequence number {pending.seq} has landed since the plan", hint="Run again")
            writer.committed(commit, documents.unchanged(before, run.run_id)).result()
    return writer.document


def _allows_for(step: Load, before: TableState, commit: Commit) -> bool:
    """Whether the rows of a number that was to be given up do no harm in the target: the plan has seen them there, or
    replaces them; or somebody has given the number up, so that they are read again. Only append would write these
    twice, unless that is what was asked for."""
    if step.write_full or commit.name == step.table.seen.commit:
        return True
    return before.given_up and (step.table.mode != "append" or before.append_again)


def _attempt(step: Runnable, document: StateDocument, run: RunContext) -> Attempt:
    """Where all is read again, or the table is not there yet, it does not matter what the target had before."""
    state, intent = document.table(step.id), _intent(step, document, run)
    if isinstance(step, RecordOnly) or step.refresh or step.write_full or not intent.target_id:
        return Attempt(step, intent)
    return Attempt(step, intent, commit_name(state.seq, state.intent_id) if state.seq else "")


def _intent(step: Runnable, document: StateDocument, run: RunContext) -> Intent:
    if not isinstance(step, Load):
        pending = document.table(step.id).intent
        assert pending is not None, "a plan recovers what the state that it was made from has begun"
        return replace(pending, interval=step.interval, runs=pending.runs + 1)  # the plan knows which files it reads
    return Intent(
        id=uuid.uuid4().hex,
        seq=step.seq,
        interval=step.interval,
        definition=step.table.definition,
        target_id=step.table.seen.id,
        run_id=run.run_id,
        fence=run.lease.fence,
        at=rfc3339(dt.datetime.now(dt.UTC)),
        replaces=step.write_full,
        refresh=step.refresh,
    )


class _Schedule:
    """Who may start, who must wait, who is skipped. Lives in the calling thread; tables run in a pool, the steps of
    each one after the other."""

    def __init__(
        self, plan: Plan, attempts: dict[Key, Attempt], run: RunContext, writer: StateWriter, how: Execution
    ) -> None:
        self._chains = chains_of(plan)
        self._attempts = attempts
        self._run = run
        self._writer = writer
        self._how = how
        self._ended: dict[str, tuple[TableResult, ...]] = {}
        self._closed_by: str | None = None
        self._abort: AbortRun | None = None

    def finish(self) -> TableResults:
        waiting = list(self._chains)
        under_way: dict[Future[tuple[TableResult, ...]], Chain] = {}
        with ThreadPoolExecutor(self._how.parallel, thread_name_prefix="table") as pool:
            while waiting or under_way:
                waiting = self._start(waiting, under_way, pool)
                done, _ = wait(under_way, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    self._end(under_way.pop(future), future)
        return TableResults(
            tuple(outcome for chain in self._chains for outcome in self._ended[chain.first.id]), self._abort
        )

    def _start(
        self,
        waiting: list[Chain],
        under_way: dict[Future[tuple[TableResult, ...]], Chain],
        pool: ThreadPoolExecutor,
    ) -> list[Chain]:
        """Starts what can start and ends what cannot; returns what still waits."""
        still = []
        for chain in waiting:
            first = chain.first
            if not isinstance(first, Runnable):
                self._ended[first.id] = (unmoved(first),)
            elif because := self._blocked(first):
                self._ended[first.id] = tuple(self._skipped(step, because) for step in chain.steps)
            elif len(under_way) >= self._how.parallel or self._waits(first):
                still.append(chain)
            else:
                under_way[pool.submit(self._table, first, chain.since)] = chain
        return still

    def _waits(self, step: Runnable) -> bool:
        return any(need not in self._ended for need in step.table.needs)

    def _blocked(self, step: Runnable) -> str | None:
        if self._run.stopping.is_set():
            return ASKED_TO_STOP if key_of(step) in self._attempts or not step.refresh else REFRESH_NOT_BEGUN
        if self._closed_by is not None:
            return self._closed_by
        failed = next((need for need in step.table.needs if not all(one.ok for one in self._ended.get(need, ()))), None)
        return f"{failed} was not brought up to date" if failed else None

    def _skipped(self, step: Step, because: str) -> TableResult:
        self._run.listener(events.TableSkipped(step.id, because))
        return TableResult(step, skipped_for=because)

    def _end(self, chain: Chain, future: Future[tuple[TableResult, ...]]) -> None:
        table = chain.first.id
        self._ended[table] = future.result()
        error = next((outcome.error for outcome in self._ended[table] if outcome.error), None)
        if isinstance(error, AbortRun):
            self._abort = self._abort or error
            self._closed_by = "the run was ended"
        elif error is not None and self._run.tables[table].on_error == "stop":
            self._closed_by = f"{table} failed (on_error: stop)"

    def _table(self, first: Runnable, since: Load | Stopped | None) -> tuple[TableResult, ...]:
        """One table from start to record, a begun number first; never raises."""
        outcome = self._step(first)
        return (outcome,) if since is None else (outcome, self._since(since, outcome))

    def _since(self, step: Load | Stopped, finished: TableResult) -> TableResult:
        """What has come since a begun number."""
        if not finished.ok:
            return self._skipped(step, f"sequence number {step.follows} was not finished")
        if isinstance(step, Stopped):  # that is news: the rest of the table has moved
            outcome = unmoved(step)
            if outcome.error is not None:
                self._run.listener(events.TableFailed(step.id, outcome.error, 0.0))
            return outcome
        if because := self._blocked(step):
            return self._skipped(step, because)
        return self._step(step, finished.step)

    def _attempt(self, step: Runnable, finished: Step | None) -> Attempt:
        """Intents are written for all tables at once; that of a step behind a begun number once that is recorded."""
        if finished is None or not isinstance(step, Load):
            return self._attempts[key_of(step)]
        step = continued(step, finished, self._writer.document)
        attempt = _attempt(step, self._writer.document, self._run)
        crashpoints.reached("before_intent", step.id)
        self._writer.begin({step.id: attempt.intent})
        crashpoints.reached("after_intent", step.id)
        self._attempts[key_of(step)] = attempt
        return attempt

    def _step(self, step: Runnable, finished: Step | None = None) -> TableResult:
        """One number of a table; ``finished`` is the step before it, where one is."""
        started = time.monotonic()
        rows = None if isinstance(step, RecordOnly) else step.rows.value
        self._run.listener(events.TableStarted(step.table, rows))
        try:
            attempt = self._attempt(step, finished)
            result = self._tried(attempt)
            self._record(result, attempt)
        except Exception as cause:  # noqa: BLE001 - whatever it was, the other tables go on
            error = translate(cause, step.table.mark, self._store(step))
            _tell_repetition(error, self._attempts.get(key_of(step)), self._run.spec.argument)
            seconds = time.monotonic() - started
            if isinstance(error, AbortRun):  # one message for all tables, at the end of the run
                self._run.listener(events.TableSkipped(step.id, "the run has ended under it"))
            else:
                self._run.listener(events.TableFailed(step.id, error, seconds, cause))
            return TableResult(step, seconds, error=error)
        seconds = time.monotonic() - started
        commit = result.commit
        self._run.listener(
            events.TableCommitted(step.id, commit.seq, commit.counts, seconds, result.recovered, result.warnings)
        )
        return TableResult(
            result.step, seconds, commit.counts, commit.seq, recovered=result.recovered, warnings=result.warnings
        )

    def _tried(self, attempt: Attempt) -> AttemptResult:
        from flowctl.run.table import run_table

        step = attempt.step
        connections = self._connections(step)
        names = tuple(connection.name for connection in connections)

        def once() -> AttemptResult:
            self._run.lease.check()
            try:
                return run_table(attempt, self._run)
            except Exception as cause:
                result, known = self._asked(attempt)
                if result is not None:
                    return result
                if lost := self._run.engine_lost(whole_text(cause)):
                    raise lost from cause
                raise _with_outlook(translate(cause, step.table.mark, self._store(step)), known) from cause

        def announce(number: int, seconds: float, error: BaseException) -> None:
            self._run.listener(events.TableRetried(step.id, number, seconds, translate(error, step.table.mark)))

        def blamed(error: TransientError) -> tuple[str, ...]:
            return at_fault(whole_text(error), connections)

        return retrying(once, names, self._how.breaker, self._how.policy, announce, self._pause, blamed)

    def _connections(self, step: Runnable) -> tuple[Connection, ...]:
        table = self._run.tables[step.id]
        source = getattr(table.source, "connection", None)
        names = dict.fromkeys(name for name in (source, table.target.connection) if name)
        return tuple(self._run.spec.connections[name] for name in names)

    def _store(self, step: Runnable) -> str:
        """What a refusal is about that names nothing, as those of object stores do: one of the table's."""
        roots = map(str, (*map(registry.storage, self._connections(step)), self._run.spec.state.url))
        return " or ".join(dict.fromkeys(root for root in roots if "://" in root)) or "the store"

    def _asked(self, attempt: Attempt) -> tuple[AttemptResult | None, str]:
        """A statement may land although its client saw an error. What the target says of our number, and that in words;
        when it cannot be asked now, the next try or the next run does."""
        from flowctl.run.table import find_landed

        if not attempt.writing:
            return None, "nothing was written"
        try:
            found = find_landed(attempt, self._run)
        except Exception:  # noqa: BLE001 - the first error is the one to report
            return None, f"the next run finds out whether sequence number {attempt.intent.seq} was committed"
        if found is not None:
            return AttemptResult(found, attempt.step), ""
        return None, f"the target had no commit of sequence number {attempt.intent.seq} when it was asked"

    def _pause(self, seconds: float) -> None:
        if self._run.stopping.wait(seconds):
            raise TableError("stopped while waiting to try again", hint="Run again to finish it")

    def _record(self, result: AttemptResult, attempt: Attempt) -> None:
        step = result.step
        table = step.id
        crashpoints.reached("before_record", table)
        self._run.listener(events.PhaseEntered(table, "recording"))
        recorded = Recorded(
            definition=step.table.definition,
            schema=step.columns.source,
            target_columns=step.columns.recorded,
            run_id=self._run.run_id,
            deletes_checked_at=attempt.intent.at if not isinstance(step, RecordOnly) and step.check_deletes else None,
            upstream_shape=attempt.upstream_shape or self._recorded_shape(table),
        )
        self._writer.committed(result.commit, recorded).result()
        crashpoints.reached("after_record", table)

    def _recorded_shape(self, table: str) -> str:
        """It holds for the columns that the plan has taken from state."""
        is_sql = isinstance(self._run.tables[table].source, SqlSource)
        return self._writer.document.table(table).upstream_shape if is_sql else ""


def _with_outlook(error: FlowctlError, known: str) -> FlowctlError:
    """What is ``known`` of the table's commit, behind the hint of an error that fails the table."""
    if type(error) in (TableError, AccessDenied) and known not in error.hint:
        error.hint = f"{error.hint}; {known}" if error.hint else known[:1].upper() + known[1:]
    return error


def _tell_repetition(error: FlowctlError, attempt: Attempt | None, spec_path: str) -> None:
    told = repetition(attempt.intent, spec_path, attempt.step.id) if attempt else ""
    if told and not isinstance(error, AbortRun):
        error.hint = f"{error.hint}; {told}" if error.hint else told[:1].upper() + told[1:]


def unmoved(step: UpToDate | Stopped) -> TableResult:
    """The outcome of a step that the plan itself has ended: nothing to do, or stopped."""
    match step:
        case UpToDate():
            return TableResult(step)
        case Stopped(by="error"):
            return TableResult(step, error=TableError(step.reason, hint=step.hint, mark=step.table.mark))
        case Stopped(by="dependency"):
            return TableResult(step, skipped_for=step.reason)
        case Stopped():
            return TableResult(step, error=StoppedByPolicy(step.reason, hint=step.hint, mark=step.table.mark))
        case _:
            assert_never(step)
