"""Follows one change stream until the process is asked to stop: plans, captures and applies, and plans again.

A follower holds its stream's lease. It plans again every few minutes, when a table waits to be read in full, and after
errors, with growing pauses. Tables that cannot take their changes do not keep the stream from being captured.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from flowctl.errors import AbortRun, FlowctlError, LockedError, StoppedByPolicy
from flowctl.model.step import Stopped, StreamPlan
from flowctl.plan.planning import Planned, make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import events
from flowctl.run.failure import translate
from flowctl.run.streaming.passes import Passes
from flowctl.run.streaming.results import Results
from flowctl.run.streaming.stream_run import Follow
from flowctl.run.tries import Retries
from flowctl.state.lease import Lease
from flowctl.state.streams import lease_prefix

#: Seconds after which a stream is planned again: tables come and go, and the source may have changed.
AGAIN = 300.0
#: Seconds between two attempts after an error: doubled each time from the first to the last.
FIRST_PAUSE, LAST_PAUSE = 1.0, 300.0


@dataclass
class Follower:
    """``error`` is what has ended the newest attempt (None: it is well); ``results`` are those of its tables."""

    name: str
    passes: Passes
    options: PlanOptions
    say: Callable[[str], None]
    results: Results = field(default_factory=Results)
    error: FlowctlError | None = None
    _failures: int = 0
    _has_committed: bool = False
    _told: frozenset[tuple[str, str]] = frozenset()

    def follow(self) -> None:
        """Returns when the run is asked to stop."""
        while not self._is_stopping:
            try:
                with self._lease() as lease:
                    self._hold(lease)
            except Exception as cause:  # noqa: BLE001 - whatever it was, it is tried again
                self._failed(cause)

    def _lease(self) -> Lease:
        run = self.passes.run
        return Lease.acquire(self.passes.blobs, prefix=lease_prefix(self.name), run_id=run.run_id)

    def _hold(self, lease: Lease) -> None:
        """As long as the lease lasts."""
        while not self._is_stopping:
            began = time.monotonic()
            try:
                self._episode(lease)
            except AbortRun:
                raise  # the lease may be lost, or the state not be written
            except Exception as cause:  # noqa: BLE001 - whatever it was, it is tried again
                self._failed(cause)
                continue
            failed = self.results.failed()
            self.error = failed[0].error if failed else None
            self._failures = self._failures + 1 if failed else 0
            if not failed and time.monotonic() - began < FIRST_PAUSE:
                self._wait(FIRST_PAUSE)

    def _episode(self, lease: Lease) -> None:
        planned = make_plan(self.passes.spec, replace(self.options, stream=self.name, estimate="stats"))
        plan = next(one for one in planned.plan.streams if one.name == self.name)
        self._tell(planned, plan)
        if plan.action == "stop":
            raise StoppedByPolicy(plan.reason, hint=plan.hint, mark=plan.mark)
        is_begun = plan.lower is not None
        if plan.action == "none" and not is_begun:
            self._wait(self._pause())  # all of its tables are stopped
            return
        if plan.action == "none":
            stopped = all(isinstance(step, Stopped) for step in plan.steps)
            plan = replace(plan, action="capture" if stopped else "advance")
        now, self._has_committed = time.monotonic(), False
        run = replace(self.passes.run, listener=self._listen)
        passes = replace(self.passes, run=run, retries=Retries(self.passes.retries.policy))
        passes.carry_out(planned, plan, lease, self.results, Follow(now + AGAIN, now + self._pause()))

    def _listen(self, event: events.Event) -> None:
        self._has_committed |= isinstance(event, events.RoundCommitted)
        if isinstance(event, events.TableFailed):
            self._told |= {(event.table, event.error.message)}
        self.passes.run.listener(event)

    def _tell(self, planned: Planned, plan: StreamPlan) -> None:
        """Says why tables are stopped, when that is new."""
        stopped = [step for step in plan.steps if isinstance(step, Stopped)]
        told = frozenset((step.id, step.reason) for step in stopped)
        for step in stopped:
            if (step.id, step.reason) not in self._told and plan.action != "stop":
                self.say(f"{step.id}: stopped: {step.reason}. {step.hint}")
        self._told = told

    def _failed(self, cause: Exception) -> None:
        error = translate(cause, self.passes.spec.streams[self.name].mark)
        if error is not cause:
            error.__cause__ = cause
        if self._has_committed:  # it has worked since it failed last
            self._failures, self._has_committed = 0, False
        pause = self._pause()
        self._failures += 1
        if not self._is_stopping:
            self.error = error
            if not isinstance(error, LockedError) or self._failures == 1:
                self.passes.run.listener(events.StreamFailed(self.name, error, pause, cause))
            self._wait(pause)

    def _pause(self) -> float:
        pause = min(LAST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10))
        return float(pause * random.uniform(0.75, 1.0))

    def _wait(self, seconds: float) -> None:
        self.passes.run.stopping.wait(seconds)

    @property
    def _is_stopping(self) -> bool:
        return self.passes.run.stopping.is_set()
