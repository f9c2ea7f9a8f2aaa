"""The commit protocol of one run: writes intents before any data, then commits, records, and withdraws unused intents.

A sequence number that the plan abandons is first voided in its target. The intents of all tables are one write of the
state; that of a step that follows a pending sequence number is written once that is recorded, that of a table whose
void has failed once it succeeds. Commits are recorded immediately; an intent under which no write has begun is
withdrawn at the end.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from flowctl import crashpoints
from flowctl.errors import AbortRun, FlowctlError, StalePlan, StoppedByPolicy
from flowctl.model.commit import Commit, IntendedColumns, Intent, commit_name
from flowctl.model.position import CursorPosition, OffsetsPosition
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.step import Load, Plan, RecordOnly, Recover, Runnable, Step
from flowctl.plan.reading import rfc3339
from flowctl.resolve.places import letters_of
from flowctl.run import events
from flowctl.run.attempt import Attempt, AttemptResult, RunContext, TableResult, TableResults
from flowctl.run.commits import commits
from flowctl.run.group_offsets import show_position
from flowctl.run.tries import (
    Retries,
    add_hint,
    add_repetition,
    commit,
    commit_together,
    describe,
    explain,
    retry_after,
)
from flowctl.spec.spec import SqlSource
from flowctl.state import document as documents
from flowctl.state.document import Recorded, StateDocument, TableState
from flowctl.state.writer import StateWriter


class Protocol:
    """Thread-safe except for :meth:`begin` and :meth:`withdraw`, which are called before and after all others."""

    def __init__(self, run: RunContext, writer: StateWriter, retries: Retries) -> None:
        self._run = run
        self._writer = writer
        self._retries = retries
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._not_voided: dict[tuple[str, int], FlowctlError] = {}
        self._at = ""
        self._outcomes: dict[tuple[str, int], TableResult] = {}

    def begin(self, plan: Plan) -> None:
        """Writes the intent of each table's first commit; nothing if the run was stopped before it began. An error here
        ends the run, unless it is one table's: :meth:`carry_out` then tries again."""
        begun = [step for step in plan.runnable if not isinstance(step, Load) or step.follows is None]
        self.begin_steps([next(commits(step)) for step in begun])

    def begin_steps(self, steps: Sequence[Runnable], at: str = "") -> None:
        """``at`` is the time of their changes; empty: now."""
        if self._run.stopping.is_set():
            steps = ()
        ready = [given_up for step in steps if (given_up := self._given_up(step)) is not None]
        document, self._at = self._writer.document, at
        self._attempts = {step.key: new_attempt(step, document, self._run, at) for step in ready}
        crashpoints.reached("before_intent")
        if self._attempts:
            self._writer.begin({attempt.step.id: attempt.intent for attempt in self._attempts.values()})
        crashpoints.reached("after_intent")

    def _given_up(self, step: Runnable) -> Runnable | None:
        """The step, once nothing is pending that it gives up; None if that fails: only this table must not begin."""
        if not isinstance(step, Load):
            return step
        try:
            return self._give_up(step)
        except AbortRun:
            raise
        except FlowctlError as error:
            self._not_voided[step.key] = error
            return None

    def _give_up(self, step: Load) -> Load:
        self._run.check_lease(0.0)
        try:
            return give_up(step, self._writer, self._run)
        except Exception as cause:
            raise explain(cause, step, self._run) from cause

    def has_begun(self, step: Runnable) -> bool:
        return step.key in self._attempts

    def carry_out(self, step: Runnable, finished: Step | None = None) -> TableResult:
        """Runs one sequence number of a table from start to record; never raises. ``finished`` is the table's previous
        step, if any."""
        ended = self._outcomes[step.key] = self._carry_out(step, finished)
        return ended

    def _carry_out(self, step: Runnable, finished: Step | None) -> TableResult:
        started, run = time.monotonic(), self._run
        rows = None if isinstance(step, RecordOnly) else step.rows.value
        run.listener(events.TableStarted(step.table, rows))
        try:
            attempt = self._attempt(step, finished)
            result = commit(attempt, run, self._retries)
            self._record(result.commit, attempt)
        except Exception as cause:  # noqa: BLE001 - whatever it was, the other tables continue
            error, seconds = describe(cause, step, run), time.monotonic() - started
            add_repetition(error, self._attempts.get(step.key), run.spec.argument)
            if isinstance(error, AbortRun):  # one message for all tables, at the end of the run
                run.listener(events.TableSkipped(step.id, "the run ended"))
            else:
                run.listener(events.TableFailed(step.id, error, seconds, cause))
            return TableResult(step, seconds, error=error)
        return self._ended(self._after_record(result, attempt), attempt, time.monotonic() - started)

    def carry_out_together(self, steps: Sequence[Runnable], parallel: int) -> list[TableResult]:
        """As :meth:`carry_out`, for tables of one target that commits several together, or none: all of them end in the
        same way."""
        done = self._carry_out_together(steps, parallel)
        self._outcomes |= {result.step.key: result for result in done if isinstance(result.step, Runnable)}
        return done

    def _carry_out_together(self, steps: Sequence[Runnable], parallel: int) -> list[TableResult]:
        started, run = time.monotonic(), self._run
        for step in steps:
            run.listener(events.TableStarted(step.table, None if isinstance(step, RecordOnly) else step.rows.value))
        try:
            attempts = [self._attempt(step, None) for step in steps]
            results = commit_together(attempts, run, self._retries, parallel)
            for result, attempt in zip(results, attempts, strict=True):
                self._record(result.commit, attempt)
        except Exception as cause:  # noqa: BLE001 - whatever it was, the other tables continue
            error, seconds = describe(cause, steps[0], run), time.monotonic() - started
            for step in steps:
                run.listener(events.TableFailed(step.id, error, seconds, cause))
            return [TableResult(step, seconds, error=error) for step in steps]
        results = [self._after_record(result, attempt) for result, attempt in zip(results, attempts, strict=True)]
        seconds = time.monotonic() - started
        return [self._ended(result, attempt, seconds) for result, attempt in zip(results, attempts, strict=True)]

    def _ended(self, result: AttemptResult, attempt: Attempt, seconds: float) -> TableResult:
        done, step = result.commit, attempt.step
        continues = isinstance(step, Load | Recover) and step.continues
        told = events.TableCommitted(
            step.id, done.seq, done.counts, seconds, result.recovered, result.warnings, continues
        )
        self._run.listener(told)
        return TableResult(
            attempt.step, seconds, done.counts, done.seq, recovered=result.recovered, warnings=result.warnings
        )

    def withdraw(self, ended: TableResults) -> TableResults:
        """Removes intents under which nothing can be committed any more. Returns ``ended``, with the error if the state
        could not be written."""
        begun = self._attempts.items()
        withdrawn = [attempt.step.id for key, attempt in begun if is_withdrawn(attempt, self._outcomes.get(key))]
        if withdrawn:
            try:
                self._writer.change(lambda document: documents.without_intents(document, withdrawn)).result()
            except AbortRun as error:  # the next run finishes or withdraws them; keep the first error of this one
                return replace(ended, error=ended.error or error)
        return ended

    def _attempt(self, step: Runnable, finished: Step | None) -> Attempt:
        if isinstance(step, Load) and (failed := self._not_voided.get(step.key)) is not None:
            step = self._void_again(step, failed)
        elif finished is None or not isinstance(step, Load):
            return self._attempts[step.key]
        else:
            step = continued(step, finished, self._writer.document)
        attempt = new_attempt(step, self._writer.document, self._run, self._at)
        crashpoints.reached("before_intent", step.id)
        self._writer.begin({step.id: attempt.intent})
        crashpoints.reached("after_intent", step.id)
        self._attempts[step.key] = attempt
        self._not_voided.pop(step.key, None)
        return attempt

    def _void_again(self, step: Load, failed: FlowctlError) -> Load:
        """``failed`` was the first try, before any table began."""
        try:
            return retry_after(failed, lambda: self._give_up(step), step, self._run, self._retries)
        except FlowctlError as error:
            option = f"--full-refresh {step.id}"
            if step.refresh and not isinstance(error, AbortRun) and option not in error.hint:
                add_hint(error, f"run again with {option}, which has not begun")
            raise

    def _record(self, done: Commit, attempt: Attempt) -> None:
        step = attempt.step
        crashpoints.reached("before_record", step.id)
        self._run.listener(events.PhaseEntered(step.id, "recording"))
        recorded = Recorded(
            definition=step.table.definition,
            schema=step.columns.source,
            target_columns=step.columns.recorded,
            run_id=self._run.run_id,
            deletes_checked_at=attempt.intent.at if not isinstance(step, RecordOnly) and step.check_deletes else None,
            upstream_shape=attempt.upstream_shape or self._recorded_shape(step.id),
        )
        self._writer.committed(done, recorded).result()
        crashpoints.reached("after_record", step.id)

    def _after_record(self, result: AttemptResult, attempt: Attempt) -> AttemptResult:
        """What follows a record, with a warning where it fails: the rows are committed."""
        warnings: list[str] = []
        if documents.letters_read(attempt.intent) is not None:
            from flowctl.run.letters import remove_replayed

            try:
                remove_replayed(attempt, self._run)
            except Exception as cause:  # noqa: BLE001 - whatever it was, nothing reads these letters any more
                why = describe(cause, attempt.step, self._run).message
                warnings.append(f"dead letters that are rows now could not be removed: {why}")
        warnings += show_position(self._run, self._run.tables[attempt.step.id], result.commit.position)
        return replace(result, warnings=(*result.warnings, *warnings)) if warnings else result

    def _recorded_shape(self, table: str) -> str:
        """The recorded digest, which is valid because the plan took the columns from state."""
        is_sql = isinstance(self._run.tables[table].source, SqlSource)
        return self._writer.document.table(table).upstream_shape if is_sql else ""


def give_up(step: Load, writer: StateWriter, run: RunContext) -> Load:
    """Commits a void under a pending sequence number that the plan does not finish, so that no stale writer can commit
    it; or withdraws it where there is no table to commit to. If it turns out to be committed, it is kept, and recorded
    if the plan allows for its rows. Returns the step for the target as it is then: some targets create a missing table
    for the void, which is the one to load."""
    from flowctl.run.table import void

    before = writer.document.table(step.id)
    pending = before.intent
    if pending is None:
        return step
    found = void(run, step, pending)
    if found is None:
        writer.change(lambda document: documents.without_intents(document, [step.id])).result()
        return step
    if not (found.void or _allows_for(step, before, found)):
        raise StalePlan(f"{step.id}: sequence number {pending.seq} has landed since the plan", hint="Run again")
    writer.committed(found, documents.keep_recorded(before, run.run_id)).result()
    if step.table.seen.exists or found.target_id == pending.target_id:
        return step
    seen = replace(step.table.seen, exists=True, id=found.target_id)
    return replace(step, table=replace(step.table, seen=seen))


def _allows_for(step: Load, before: TableState, commit: Commit) -> bool:
    """Whether the committed rows of a sequence number that was to be abandoned do no harm: the plan has seen them in
    the target, or replaces them; or a user has abandoned it, so that they are read again. Append would then write them
    twice, so it must have been requested (``append_again``)."""
    if step.write_full or commit.name == step.table.seen.commit:
        return True
    return before.given_up and (step.table.mode != "append" or before.append_again)


def new_attempt(step: Runnable, document: StateDocument, run: RunContext, at: str = "") -> Attempt:
    """An attempt based on the recorded commit, or on any commit if everything is read again or the target does not
    exist yet."""
    state, intent = document.table(step.id), new_intent(step, document, run, at)
    if isinstance(step, RecordOnly) or step.refresh or step.write_full or not intent.target_id:
        return Attempt(step, intent)
    return Attempt(step, intent, commit_name(state.seq, state.intent_id) if state.seq else "")


def new_intent(step: Runnable, document: StateDocument, run: RunContext, at: str = "") -> Intent:
    table = run.tables[step.id]
    has_letters = table.dead_letters is not None or step.interval.letters is not None
    letters_at = str(letters_of(table)) if has_letters else ""
    before, made = document.table(step.id), step.columns if isinstance(step.columns, Columns) else None
    altered = made.altered_since(before.target_columns) if made is not None else ()
    columns = _intended(made, before) if made is not None else None
    if not isinstance(step, Load):
        pending = before.intent
        assert pending is not None, "a plan recovers what the state that it was made from has begun"
        again = replace(pending, interval=step.interval, runs=pending.runs + 1)  # the plan knows which files it reads
        if isinstance(step, RecordOnly):
            return again
        return replace(again, letters_at=letters_at, altered=altered, columns=columns)
    return Intent(
        id=uuid.uuid4().hex,
        seq=step.seq,
        interval=step.interval,
        definition=step.table.definition,
        target_id=step.table.seen.id,
        run_id=run.run_id,
        fence=run.fence,
        at=at or rfc3339(dt.datetime.now(dt.UTC)),
        replaces=step.write_full,
        refresh=step.refresh,
        letters_at=letters_at,
        altered=altered,
        columns=columns,
    )


def _intended(made: Columns, before: TableState) -> IntendedColumns:
    """Only what differs from what is recorded: documents stay small in runs that change no columns."""
    return IntendedColumns(
        source=made.source if made.source != before.schema else None,
        target=made.recorded if made.recorded != before.target_columns else None,
    )


def is_withdrawn(attempt: Attempt, outcome: TableResult | None) -> bool:
    """Whether to withdraw an intent: no write has begun under it, so nothing can be committed any more, and the next
    run determines by itself what to do. ``outcome`` None: its step did not run. An exception is a full refresh that a
    user requested: it stays pending unless a guard refused it. Intents of earlier runs are never withdrawn."""
    if attempt.writing or not isinstance(attempt.step, Load) or (outcome is not None and outcome.ok):
        return False
    return not attempt.step.refresh or (outcome is not None and isinstance(outcome.error, StoppedByPolicy))


def continued(step: Load, finished: Step, document: StateDocument) -> Load:
    """``step``, starting at the position recorded by the previous sequence number: only now is it known which rows
    append has written there, and whether the source was truncated before it. If only the engine can determine the
    columns, they are those with which ``finished`` was written. :class:`StalePlan` if the recorded sequence number or
    position is not the planned one."""
    recorded, interval = document.table(step.id), step.interval
    if recorded.seq != step.follows:
        raise StalePlan(f"{step.id}: sequence number {step.follows} is not the recorded one", hint="Run again")
    lower = interval.lower
    if isinstance(lower, CursorPosition) and isinstance(recorded.position, CursorPosition):
        if lower.at != recorded.position.at:
            raise StalePlan(
                f"{step.id}: sequence number {step.follows} ended at another position than planned", hint="Run again"
            )
        lower = lower if lower.ties is not None else recorded.position
    if isinstance(lower, OffsetsPosition) and isinstance(recorded.position, OffsetsPosition):
        lower = replace(lower, truncated=recorded.position.truncated)
    seen, columns = replace(step.table.seen, id=recorded.target_id), step.columns
    match columns, finished:
        case RuntimeColumns(), Recover(columns=Columns() as written) | Load(columns=Columns() as written):
            columns = replace(written, changes=(), statements=())
    return replace(step, interval=replace(interval, lower=lower), table=replace(step.table, seen=seen), columns=columns)
