"""`flowctl apply`: plans under the lease, shows the plan, executes exactly that plan, and records the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from flowctl.engine import cost
from flowctl.engine.lazy import RunEngine
from flowctl.errors import ExitCode, FlowctlError
from flowctl.model.step import Advance, Load, Plan, Removed, Runnable
from flowctl.plan.planfile import check_fresh, load
from flowctl.plan.planning import Planned, make_plan
from flowctl.plan.reading import rfc3339
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import events, file_logs
from flowctl.run.attempt import RunContext, TableResults
from flowctl.run.context import open_context, require_engine
from flowctl.run.failure import translate
from flowctl.run.recording import exit_code, keep_record, new_record
from flowctl.run.retry import RetryPolicy
from flowctl.run.schedule import execute, unmoved
from flowctl.run.signals import Interruption, graceful
from flowctl.run.streaming.passes import Passes
from flowctl.run.streaming.streams import Streams, stream_leases
from flowctl.run.tries import Retries
from flowctl.spec.spec import Spec, SqlSource, TableSpec
from flowctl.state.lease import Lease
from flowctl.state.location import flow_url, open_flow
from flowctl.state.runs import BegunRun, RunRecord, new_run_id, put_begun
from flowctl.state.store import StateStore
from flowctl.state.writer import StateWriter
from flowctl.storage.blobs import BlobStore
from flowctl.storage.buffer import Buffer


@dataclass(frozen=True)
class ApplyOptions:
    """``plan_file``: execute this saved plan, unless it is stale. ``parallel`` None: depends on the machine."""

    plan: PlanOptions
    plan_file: Path | None = None
    parallel: int | None = None
    lock_timeout: float = 0.0
    verbose: bool = False
    policy: RetryPolicy = RetryPolicy()
    run_id: str = field(default_factory=new_run_id)


@dataclass(frozen=True)
class RunResult:
    """How a run ended. ``record`` is its entry in the run history; None if the plan was not approved. ``error`` is what
    ended the whole run early."""

    run_id: str
    plan: Plan
    exit_code: int
    record: RunRecord | None = None
    error: FlowctlError | None = None


@dataclass(frozen=True)
class Audience:
    """Callbacks for the user: ``approve`` shows the plan and decides, ``listener`` gets events, ``say`` plain lines."""

    approve: Callable[[Planned], bool]
    listener: events.Listener
    say: Callable[[str], None]


def apply(spec: Spec, options: ApplyOptions, audience: Audience) -> RunResult:
    """Runs the flow once. Failures of tables, and errors that end a run in progress, are in the result; errors before
    it has begun are raised."""
    require_engine(spec)
    blobs, interruption = open_flow(spec), Interruption()
    with (
        graceful(interruption, audience.say),
        Lease.acquire(blobs, run_id=options.run_id, lock_timeout=options.lock_timeout) as lease,
        stream_leases(spec, blobs, options.run_id, options.lock_timeout) as leases,
    ):
        planned = leases.leave_out(_planned(spec, options))
        if not audience.approve(planned):
            return RunResult(options.run_id, planned.plan, ExitCode.OK)
        return _Run(spec, options, audience, planned, blobs, lease, interruption, leases.held).finish()


def apply_beside(
    spec: Spec, options: ApplyOptions, audience: Audience, interruption: Interruption, engine: RunEngine
) -> RunResult:
    """As :func:`apply`, for tables that read no stream, in a process that follows streams."""
    blobs = open_flow(spec)
    with Lease.acquire(blobs, run_id=options.run_id, lock_timeout=options.lock_timeout) as lease:
        planned = _planned(spec, options)
        return _Run(spec, options, audience, planned, blobs, lease, interruption, {}, engine).finish()


def _planned(spec: Spec, options: ApplyOptions) -> Planned:
    if options.plan_file is None:
        return make_plan(spec, options.plan)
    saved = load(options.plan_file)
    of_streams = [step for stream in saved.streams for step in stream.steps]
    ids = tuple(dict.fromkeys(step.id for step in (*saved.runnable, *of_streams)))
    planned = make_plan(spec, PlanOptions(select=ids, estimate="none"))
    check_fresh(saved, spec, planned.world, planned.tables)
    return replace(planned, plan=saved)


@dataclass(frozen=True)
class _Run:
    spec: Spec
    options: ApplyOptions
    audience: Audience
    planned: Planned
    blobs: BlobStore
    lease: Lease
    interruption: Interruption
    stream_leases: Mapping[str, Lease]
    engine: RunEngine | None = None

    def finish(self) -> RunResult:
        """Executes and records; returns a result for both whatever happens."""
        started = dt.datetime.now(dt.UTC)
        plan = self.planned.plan
        try:
            ended, serial = self._execute(started)
        except Exception as cause:  # noqa: BLE001 - translated, recorded and reported like any other end
            failure = translate(cause, None, self.spec.state.url)
            if failure is not cause:
                failure.__cause__ = cause
            ended, serial = TableResults((), failure), self.planned.world.state.serial
        error = ended.error
        codes = [exit_code(ended.outcomes), *([error.exit_code] if error else [])]
        record = new_record(
            self.options.run_id,
            plan,
            self.planned.world.state.lineage if serial else "",
            serial,
            started,
            ended.outcomes,
            ExitCode.first(codes),
            error,
        )
        keep_record(self.blobs, record, self.audience.say)
        return RunResult(self.options.run_id, plan, record.exit_code, record, error)

    def _execute(self, started: dt.datetime) -> tuple[TableResults, int]:
        plan, document = self.planned.plan, self.planned.world.state
        todo, taking_part = plan.runnable, plan.taking_part
        if not plan.runs:
            there = [step for step in plan.all_steps if not isinstance(step, Removed | Runnable | Advance)]
            return TableResults(tuple(map(unmoved, there))), document.serial
        ids = tuple(dict.fromkeys(step.id for step in taking_part))
        self.audience.listener(events.RunStarted(self.options.run_id, len(ids)))
        put_begun(self.blobs, BegunRun(self.options.run_id, plan.flow, rfc3339(started), ids))
        with ExitStack() as stack:
            buffer = Buffer(flow_url(self.spec), self.options.run_id, self.spec.storage)
            stack.callback(self._remove, buffer)
            buffer.sweep()
            run = stack.enter_context(
                open_context(
                    self.spec,
                    self.planned,
                    taking_part,
                    self.options.run_id,
                    buffer,
                    self.interruption,
                    self.audience.listener,
                    self.audience.say,
                    verbose=self.options.verbose,
                    engine=self.engine,
                    fence=self.lease.fence,
                    check_lease=self.lease.check,
                )
            )
            retries = Retries(self.options.policy)
            passes = Passes(self.spec, run, self.blobs, retries)
            streamed = Streams(self.planned, passes, self.stream_leases).finish()
            if self.options.plan_file is None and (again := self._dependents(streamed)):
                plan, run = again.within(plan, run)
                todo = plan.runnable
            writer = stack.enter_context(StateWriter(StateStore(self.blobs), document, self.lease.check))
            file_logs.put(self.blobs, (step for step in todo if isinstance(step, Load)), self.planned.world)
            parallel = self.options.parallel or cost.tables_at_once()
            ended = execute(plan, run, writer, retries, parallel)
            ended = TableResults((*streamed.outcomes, *ended.outcomes), streamed.error or ended.error)
            serial = writer.document.serial
            if ended.error is None:
                self._retire(ended, serial)
            return ended, serial

    def _dependents(self, streamed: TableResults) -> Again | None:
        """Plans tables over those of streams once more: only now is it known what these have taken."""
        moved = {one.step.id for one in streamed.outcomes if one.seq is not None}
        ids = [id for id in self.planned.tables if id not in moved and _reads(id, moved, self.planned.tables)]
        own = {step.id for step in self.planned.plan.steps}
        if not own & {*ids}:
            return None
        return Again(make_plan(self.spec, PlanOptions(select=tuple(id for id in ids if id in own), estimate="none")))

    def _retire(self, ended: TableResults, serial: int) -> None:
        done = [one.step for one in ended.outcomes if one.ok and isinstance(one.step, Load)]
        try:
            file_logs.retire(self.blobs, done, self.planned.world, serial)
        except FlowctlError as error:  # everything is committed and recorded
            self.audience.say(f"warning: entries of the file log that nobody needs any more are kept: {error.message}")

    def _remove(self, buffer: Buffer) -> None:
        try:
            buffer.remove()
        except Exception as cause:  # noqa: BLE001 - the run's own result matters more
            why = translate(cause, None, self.spec.state.url).message
            self.audience.say(f"warning: the buffer could not be removed, the next run does it: {why}")


def _reads(table_id: str, others: Collection[str], tables: Mapping[str, TableSpec]) -> bool:
    """Whether the table reads one of the others, directly or through tables between them."""
    source = tables[table_id].source
    refs = source.refs if isinstance(source, SqlSource) else ()
    return any(ref in others or (ref in tables and _reads(ref, others, tables)) for ref in refs)


@dataclass(frozen=True)
class Again:
    """A second plan, of some tables of the run."""

    planned: Planned

    def within(self, plan: Plan, run: RunContext) -> tuple[Plan, RunContext]:
        """The first plan with the steps of the second, after those of all other tables."""
        steps = self.planned.plan.steps
        ids = {step.id for step in steps}
        merged = replace(plan, steps=(*(step for step in plan.steps if step.id not in ids), *steps))
        return merged, replace(run, steps={**run.steps, **{step.id: step for step in steps}})
