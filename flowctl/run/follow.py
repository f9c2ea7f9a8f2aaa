"""`flowctl apply --follow`: all change streams, and tables that run at intervals, side by side in one process.

Each stream is followed by threads of its own under its own lease; an error pauses only that stream. Tables with `every`
run as `flowctl apply` runs them, under the flow's lease, which is held only while they run. All share one engine.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from flowctl.engine.lazy import LazyEngine, RestartedEngine
from flowctl.errors import ExitCode, FlowctlError, Interrupted, UsageError
from flowctl.model.step import Load, Recover, Stopped, UpToDate
from flowctl.observe.asking import Connections
from flowctl.plan.planning import Planned, make_plan, resolve_listed
from flowctl.plan.reading import rfc3339
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import events
from flowctl.run.apply import ApplyOptions, Audience, RunResult, apply_beside
from flowctl.run.attempt import TableResult
from flowctl.run.context import open_context, require_engine
from flowctl.run.engine import engine_for, load_of_run
from flowctl.run.failure import translate
from flowctl.run.recording import exit_code, keep_record, new_record
from flowctl.run.schedule import unmoved
from flowctl.run.signals import Interruption, graceful
from flowctl.run.streaming.follower import Follower
from flowctl.run.streaming.passes import Passes
from flowctl.run.tries import Retries
from flowctl.spec.spec import Spec, stream_of
from flowctl.state.location import flow_url, open_flow
from flowctl.state.runs import BegunRun, new_run_id, put_begun
from flowctl.storage.buffer import Buffer

#: Seconds to wait for a run that holds the flow's lease.
_LOCK_TIMEOUT = 60.0


def follow(spec: Spec, options: ApplyOptions, audience: Audience) -> RunResult:
    """Returns when the process is asked to stop. The exit code is that of what does not work by then."""
    require_engine(spec)
    interruption = Interruption()
    with graceful(interruption, audience.say):
        planned = make_plan(spec, options.plan)
        followed = [stream.name for stream in planned.plan.streams]
        scheduled = [step.id for step in planned.plan.steps if _is_scheduled(planned, step.id)]
        if not followed and not scheduled:
            raise UsageError(
                "there is nothing to follow: no selected table reads a change stream or has `every`",
                hint="Run `flowctl apply` without --follow",
            )
        if not audience.approve(planned):
            return RunResult(options.run_id, planned.plan, ExitCode.OK)
        with ExitStack() as stack:
            return _Following(spec, options, audience, planned, interruption).run(stack, followed, bool(scheduled))


def _is_scheduled(planned: Planned, table_id: str) -> bool:
    table = planned.tables.get(table_id)
    return table is not None and table.every is not None


@dataclass
class _Following:
    spec: Spec
    options: ApplyOptions
    audience: Audience
    planned: Planned
    interruption: Interruption
    _last: dict[str, float] = field(default_factory=dict)
    _error: FlowctlError | None = None
    #: Of tables with ``every``, how the last run of each ended: those that run more often must not hide the others.
    _codes: dict[str, int] = field(default_factory=dict)

    def run(self, stack: ExitStack, followed: list[str], has_scheduled: bool) -> RunResult:
        started, blobs, run_id = dt.datetime.now(dt.UTC), open_flow(self.spec), self.options.run_id
        plan, ids = self.planned.plan, tuple(dict.fromkeys(step.id for step in self.planned.plan.all_steps))
        tables = sum(_is_scheduled(self.planned, id) for id in ids)
        self.audience.listener(events.FollowStarted(run_id, tuple(followed), tables))
        put_begun(blobs, BegunRun(run_id, plan.flow, rfc3339(started), ids))
        engine = stack.enter_context(RestartedEngine(self._new_engine))
        self.interruption.of(engine.interrupt, engine.abandon)
        context = open_context(
            self.spec,
            self.planned,
            (),
            run_id,
            Buffer(flow_url(self.spec), run_id, self.spec.storage),
            self.interruption,
            self.audience.listener,
            self.audience.say,
            verbose=self.options.verbose,
            engine=engine,
        )
        passes = Passes(self.spec, stack.enter_context(context), blobs, Retries(self.options.policy))
        followers = [Follower(name, passes, self.options.plan, self.audience.say) for name in followed]
        threads = [threading.Thread(target=one.follow, name=f"follow {one.name}") for one in followers]
        if has_scheduled:
            threads.append(threading.Thread(target=self._schedule, args=(engine,), name="follow tables"))
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a signal is handled between two of these
                thread.join(0.5)
        outcomes = self._outcomes(followers)
        found = (*(one.error for one in followers), self._error)
        errors = [error for error in found if error is not None and not isinstance(error, Interrupted)]
        code = ExitCode.first([exit_code(outcomes), *self._codes.values(), *(error.exit_code for error in errors)])
        record = new_record(run_id, plan, plan.lineage, plan.serial, started, outcomes, code, None)
        keep_record(blobs, record, self.audience.say)
        return RunResult(run_id, plan, code, record)

    def _new_engine(self) -> LazyEngine:
        tables = list(self.planned.tables.values())
        transfers = [step for step in self.planned.plan.all_steps if isinstance(step, Load | Recover)]
        loads = load_of_run(transfers, self.planned.world.tables)
        return engine_for(self.spec, tables, loads, self.options.verbose, self.audience.say)

    def _outcomes(self, followers: list[Follower]) -> list[TableResult]:
        results: Mapping[str, Follower] = {one.name: one for one in followers}
        found = []
        for stream in self.planned.plan.streams:
            for step in {step.id: step for step in stream.steps}.values():
                result = results[stream.name].results.get(step.id)
                if result is not None and isinstance(result.error, Interrupted):
                    result = TableResult(UpToDate(table=step.table, reason="its last round is left to the next run"))
                nothing = UpToDate(table=step.table, reason="nothing of it has changed")
                found.append(result or (unmoved(step) if isinstance(step, Stopped) else TableResult(nothing)))
        return found

    # Tables with `every`

    def _schedule(self, engine: RestartedEngine) -> None:
        stopping = self.interruption.stopping
        while not stopping.is_set():
            try:
                wait = self._run_due(engine)
                self._error = None
            except Exception as cause:  # noqa: BLE001 - whatever it was, it is tried again
                self._error = translate(cause, None, self.spec.state.url)
                self.audience.say(f"error: {self._error.sentences}")
                wait = _LOCK_TIMEOUT
            stopping.wait(max(wait, 0.2))

    def _run_due(self, engine: RestartedEngine) -> float:
        """Runs the tables whose time has come; returns the seconds until the next."""
        with Connections(self.spec) as connections:
            resolved, _ = resolve_listed(self.spec, self.options.plan, connections)
        paces = {
            table.id: table.every
            for table in resolved.tables
            if table.every is not None and table.id in resolved.selected and not stream_of(table)
        }
        now = time.monotonic()
        due = sorted(id for id, every in paces.items() if self._due_at(id, every) <= now)
        if due:
            self._run(due, engine)
            self._last |= dict.fromkeys(due, now)  # tables whose run could not begin are due again
        return min((self._due_at(id, every) for id, every in paces.items()), default=now + 60.0) - time.monotonic()

    def _due_at(self, id: str, every: float) -> float:
        return self._last[id] + every if id in self._last else float("-inf")

    def _run(self, ids: list[str], engine: RestartedEngine) -> None:
        options = replace(
            self.options,
            plan=PlanOptions(select=tuple(ids), estimate=self.options.plan.estimate),
            run_id=new_run_id(),
            lock_timeout=_LOCK_TIMEOUT,
        )
        failed: dict[str, int] = {}

        def listen(event: events.Event) -> None:
            if isinstance(event, events.TableFailed) and not self.interruption.stopping.is_set():
                failed[event.table] = event.error.exit_code
            if not isinstance(event, events.RunStarted):  # this process has one run that people see
                self.audience.listener(event)

        audience = replace(self.audience, approve=lambda planned: True, listener=listen)
        try:
            result = apply_beside(self.spec, options, audience, self.interruption, engine)
        finally:
            engine.renew(ids)
        if self.interruption.stopping.is_set():  # what it leaves to the next run is no failure; what failed before is
            self._codes |= failed
        else:
            self._codes |= dict.fromkeys(ids, result.exit_code) | dict.fromkeys(_done(result), ExitCode.OK)


def _done(result: RunResult) -> list[str]:
    """The tables that are as the source is, in a run that was not ended early."""
    tables = result.record.tables if result.record is not None and result.error is None else ()
    return [table.id for table in tables if table.outcome in ("committed", "unchanged")]
