"""`flowctl apply`: plans under the lease, shows the plan, executes exactly that plan, and records the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from flowctl import __version__
from flowctl.engine import cost
from flowctl.errors import AbortRun, ExitCode, FlowctlError
from flowctl.model.step import Advance, Load, Plan, Removed, Runnable
from flowctl.plan.document import to_json as plan_json
from flowctl.plan.planfile import check_fresh, load
from flowctl.plan.planning import Planned, make_plan
from flowctl.plan.reading import rfc3339
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import events, file_logs
from flowctl.run.attempt import TableResult, TableResults
from flowctl.run.context import open_context, require_engine
from flowctl.run.failure import translate
from flowctl.run.retry import RetryPolicy
from flowctl.run.schedule import ASKED_TO_STOP, execute, unmoved
from flowctl.run.signals import Interruption, graceful
from flowctl.run.streaming.passes import Passes
from flowctl.run.streaming.streams import Streams, stream_leases
from flowctl.run.tries import Retries
from flowctl.spec.spec import Spec
from flowctl.state.lease import Lease
from flowctl.state.location import flow_url, open_flow
from flowctl.state.runs import BegunRun, Outcome, RunError, RunRecord, TableRun, new_run_id, put_begun, put_run
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
        planned = _planned(spec, options)
        if not audience.approve(planned):
            return RunResult(options.run_id, planned.plan, ExitCode.OK)
        return _Run(spec, options, audience, planned, blobs, lease, interruption, leases).finish()


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
        record = self._record(started, ended.outcomes, ExitCode.first(codes), serial, error)
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
                    fence=self.lease.fence,
                    check_lease=self.lease.check,
                )
            )
            retries = Retries(self.options.policy)
            passes = Passes(self.spec, run, self.blobs, retries)
            streamed = Streams(self.planned, passes, self.stream_leases).finish()
            writer = stack.enter_context(StateWriter(StateStore(self.blobs), document, self.lease.check))
            file_logs.put(self.blobs, (step for step in todo if isinstance(step, Load)), self.planned.world)
            parallel = self.options.parallel or cost.tables_at_once()
            ended = execute(plan, run, writer, retries, parallel)
            ended = TableResults((*streamed.outcomes, *ended.outcomes), streamed.error or ended.error)
            serial = writer.document.serial
            done = [one.step for one in ended.outcomes if one.ok and isinstance(one.step, Load)]
            if ended.error is None:
                file_logs.retire(self.blobs, done, self.planned.world, serial)
            return ended, serial

    def _remove(self, buffer: Buffer) -> None:
        try:
            buffer.remove()
        except Exception as cause:  # noqa: BLE001 - the run's own result matters more
            why = translate(cause, None, self.spec.state.url).message
            self.audience.say(f"warning: the buffer could not be removed, the next run does it: {why}")

    def _record(
        self,
        started: dt.datetime,
        outcomes: tuple[TableResult, ...],
        code: int,
        serial: int,
        error: FlowctlError | None,
    ) -> RunRecord:
        plan = self.planned.plan
        record = RunRecord(
            id=self.options.run_id,
            flow=plan.flow,
            lineage=self.planned.world.state.lineage if serial else "",
            spec_digest=plan.spec_digest,
            started_at=rfc3339(started),
            finished_at=rfc3339(dt.datetime.now(dt.UTC)),
            exit_code=code,
            serial_before=plan.serial,
            serial_after=serial,
            plan=plan_json(plan.recorded),
            tables=tuple(_table_run(outcome) for outcome in outcomes),
            versions=_versions(outcomes),
            error=_run_error(error) if error else None,
        )
        try:
            put_run(self.blobs, record)
        except AbortRun as failure:
            self.audience.say(f"warning: the run's record could not be kept: {failure.message}")
        return record


def exit_code(outcomes: tuple[TableResult, ...]) -> int:
    """The run's exit code. A table skipped because of another one adds ``TABLE`` only if there is no error to explain
    it; one that was not started because of a signal adds nothing: everything that was begun may be committed."""
    codes = [outcome.error.exit_code for outcome in outcomes if outcome.error]
    skipped = [ExitCode.TABLE for outcome in outcomes if outcome.skipped_for not in (None, ASKED_TO_STOP)]
    return ExitCode.first(codes or skipped)


def _table_run(outcome: TableResult) -> TableRun:
    step = outcome.step
    return TableRun(
        id=step.id,
        outcome=_outcome(outcome),
        mode=step.table.mode,
        seq=outcome.seq or 0,
        interval=step.interval.recorded if isinstance(step, Runnable) else None,
        rows=outcome.counts,
        seconds=round(outcome.seconds, 3),
        error=_run_error(outcome.error) if outcome.error else None,
        warnings=outcome.warnings,
    )


def _outcome(outcome: TableResult) -> Outcome:
    if outcome.skipped_for:
        return "skipped"
    if outcome.error is not None:
        return "stopped" if outcome.error.exit_code == ExitCode.STOPPED else "failed"
    return "committed" if isinstance(outcome.step, Runnable) else "unchanged"


def _run_error(error: FlowctlError) -> RunError:
    return RunError(error.message, error.hint, str(error.mark) if error.mark else "")


def _versions(outcomes: Sequence[TableResult]) -> Mapping[str, str]:
    """Package versions, looked up only in runs that write: it takes 5 % of the time of a run with nothing to do."""
    found = {"flowctl": __version__}
    if not any(isinstance(outcome.step, Runnable) for outcome in outcomes):
        return found
    from importlib.metadata import PackageNotFoundError, version

    for package in ("pyspark", "delta-spark"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
