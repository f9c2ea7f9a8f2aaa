"""Runs a plan's steps in threads, in DAG order.

A failed table stops only its dependents. An error that ends the whole run (lost lease, state conflict) stops everything
that has not begun to commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import groupby
from typing import assert_never

from flowctl.errors import AbortRun, StoppedByPolicy, TableError
from flowctl.model.step import Plan, Removed, Runnable, Step, Stopped, UpToDate
from flowctl.run import events
from flowctl.run.attempt import RunContext, TableResult, TableResults, added
from flowctl.run.commits import commits
from flowctl.run.protocol import Protocol
from flowctl.run.tries import Retries
from flowctl.state.writer import StateWriter

ASKED_TO_STOP = "the run was asked to stop"
REFRESH_NOT_BEGUN = "the run was asked to stop before its full refresh began: run again with --full-refresh"


def execute(plan: Plan, run: RunContext, writer: StateWriter, retries: Retries, parallel: int) -> TableResults:
    """Runs every step of ``plan``, up to ``parallel`` tables at the same time. An :class:`AbortRun` of a table ends the
    run after the other running tables have ended; one before the first table is raised."""
    protocol = Protocol(run, writer, retries)
    protocol.begin(plan)
    ended = Schedule(plan, protocol, run, parallel).finish()
    return protocol.withdraw(ended)


class Schedule:
    """Decides which tables start, wait or are skipped. Runs in the calling thread; up to ``parallel`` tables run in a
    pool, the steps of each one after the other."""

    def __init__(self, plan: Plan, protocol: Protocol, run: RunContext, parallel: int) -> None:
        steps = (step for step in plan.steps if not isinstance(step, Removed))
        self._steps = {table: tuple(its) for table, its in groupby(steps, lambda step: step.id)}
        self._protocol = protocol
        self._run = run
        self._parallel = parallel
        self._ended: dict[str, tuple[TableResult, ...]] = {}
        self._closed_by: str | None = None
        self._abort: AbortRun | None = None

    def finish(self) -> TableResults:
        waiting = list(self._steps)
        under_way: dict[Future[tuple[TableResult, ...]], str] = {}
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="table") as pool:
            while waiting or under_way:
                waiting = self._start(waiting, under_way, pool)
                done, _ = wait(under_way, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    self._end(under_way.pop(future), future)
        return TableResults(tuple(outcome for table in self._steps for outcome in self._ended[table]), self._abort)

    def _start(
        self, waiting: list[str], under_way: dict[Future[tuple[TableResult, ...]], str], pool: ThreadPoolExecutor
    ) -> list[str]:
        """Starts the tables that can start and ends those that never can; returns those that still wait."""
        still = []
        for table in waiting:
            first, *later = self._steps[table]
            if not isinstance(first, Runnable):
                self._ended[table] = (unmoved(first),)
            elif because := self._blocked(first):
                self._ended[table] = tuple(self._skipped(step, because) for step in (first, *later))
            elif len(under_way) >= self._parallel or self._waits(first):
                still.append(table)
            else:
                under_way[pool.submit(self._table, first, later)] = table
        return still

    def _waits(self, step: Runnable) -> bool:
        return any(need not in self._ended for need in step.table.needs)

    def _blocked(self, step: Runnable) -> str | None:
        if self._run.stopping.is_set():
            return ASKED_TO_STOP if self._protocol.has_begun(step) or not step.refresh else REFRESH_NOT_BEGUN
        if self._closed_by is not None:
            return self._closed_by
        failed = next((need for need in step.table.needs if not all(one.ok for one in self._ended.get(need, ()))), None)
        return f"{failed} was not brought up to date" if failed else None

    def _skipped(self, step: Step, because: str) -> TableResult:
        self._run.listener(events.TableSkipped(step.id, because))
        return TableResult(step, skipped_for=because)

    def _end(self, table: str, future: Future[tuple[TableResult, ...]]) -> None:
        self._ended[table] = future.result()
        error = next((outcome.error for outcome in self._ended[table] if outcome.error), None)
        if isinstance(error, AbortRun):
            self._abort = self._abort or error
            self._closed_by = "the run was ended"
        elif error is not None and self._run.tables[table].on_error == "stop":
            self._closed_by = f"{table} failed (on_error: stop)"

    def _table(self, first: Runnable, later: Sequence[Runnable | UpToDate | Stopped]) -> tuple[TableResult, ...]:
        """Runs one table from start to record, a pending sequence number first; never raises."""
        outcome = self._commit(first)
        return (outcome, *(self._since(step, first.seq, outcome) for step in later))

    def _commit(self, step: Runnable, finished: Step | None = None) -> TableResult:
        """Runs the commits of one step up to the first that fails, or until the run is to end; returns their sum."""
        first, *others = commits(step)
        total = done = self._protocol.carry_out(first, finished)
        for part in others:
            if not done.ok:
                break
            because = self._blocked(part)
            last, done = done, self._skipped(part, because) if because else self._protocol.carry_out(part, done.step)
            total = replace(added(total, done), seq=done.seq or last.seq)
        return replace(total, step=step) if others else total

    def _since(self, step: Runnable | UpToDate | Stopped, begun: int, finished: TableResult) -> TableResult:
        """Runs the step that follows the ``begun`` sequence number."""
        if not finished.ok:
            return self._skipped(step, f"sequence number {begun} was not finished")
        if not isinstance(step, Runnable):  # report it here: the table's first step did run
            outcome = unmoved(step)
            if outcome.error is not None:
                self._run.listener(events.TableFailed(step.id, outcome.error, 0.0))
            return outcome
        if because := self._blocked(step):
            return self._skipped(step, because)
        return self._commit(step, finished.step)


def unmoved(step: UpToDate | Stopped) -> TableResult:
    """The outcome of a step that does not run: it has nothing to do, or is stopped."""
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
