"""All change streams of one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from flowctl.connectors import registry
from flowctl.connectors.base import OpenContext
from flowctl.engine import cost
from flowctl.errors import AbortRun, FlowctlError
from flowctl.model.commit import RowCounts
from flowctl.model.step import Advance, Stopped, StreamPlan, StreamStep, UpToDate
from flowctl.plan.planning import Planned, make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import events
from flowctl.run.attempt import RunContext, TableResult, TableResults
from flowctl.run.failure import translate
from flowctl.run.schedule import unmoved
from flowctl.run.streaming.retention import Kept
from flowctl.run.streaming.stream_run import StreamRun
from flowctl.run.tries import Retries
from flowctl.spec.spec import Spec, stream_of
from flowctl.state.lease import Lease
from flowctl.state.streams import landing_log, lease_prefix, stream_store
from flowctl.state.writer import StateWriter
from flowctl.storage.blobs import BlobStore


@contextmanager
def stream_leases(spec: Spec, blobs: BlobStore, run_id: str, lock_timeout: float) -> Iterator[Mapping[str, Lease]]:
    """The leases of all streams, by name. :class:`LockedError` names who holds one."""
    with ExitStack() as stack:
        leases: dict[str, Lease] = {}
        for name in sorted(spec.streams):
            lease = Lease.acquire(blobs, prefix=lease_prefix(name), run_id=run_id, lock_timeout=lock_timeout)
            leases[name] = stack.enter_context(lease)
        yield leases


@dataclass(frozen=True)
class Streams:
    """What the streams of a run share."""

    spec: Spec
    planned: Planned
    run: RunContext
    blobs: BlobStore
    leases: Mapping[str, Lease]
    retries: Retries

    def finish(self) -> TableResults:
        """One pass over each stream that has something to do, side by side. Errors are in the results: a stream that
        fails stops its own tables only."""
        plans = self.planned.plan.streams
        if not plans:
            return TableResults(())
        with ThreadPoolExecutor(len(plans), thread_name_prefix="stream") as pool:
            ended = list(pool.map(self._one, plans))
        outcomes = tuple(outcome for results in ended for outcome in results.outcomes)
        return TableResults(outcomes, next((results.error for results in ended if results.error), None))

    def _one(self, plan: StreamPlan) -> TableResults:
        results: list[TableResult] = []
        error: FlowctlError | None = None
        if plan.runs:
            try:
                self._pass(self.planned, plan, results)
                self._read_again(plan, results)
            except Exception as cause:  # noqa: BLE001 - what the tables have committed is part of the result
                error = translate(cause, plan.mark)
                if error is not cause:
                    error.__cause__ = cause
        return self._summed(plan, results, error)

    def _read_again(self, plan: StreamPlan, results: list[TableResult]) -> None:
        """A second pass for tables whose rows got values that no change sends, which the first has come upon: they are
        read in full (`on_schema_change.unsent: resnapshot`)."""
        document = stream_store(self.blobs, plan.name).read()
        took_part = {step.id for step in plan.steps if isinstance(step, Advance)}
        waiting = [id for id in took_part if document.table(id).position is None]
        if waiting and all(result.ok for result in results) and not self.run.stopping.is_set():
            planned = make_plan(self.spec, PlanOptions(select=tuple(sorted(took_part))))
            again = next(one for one in planned.plan.streams if one.name == plan.name)
            if again.runs:
                self._pass(planned, again, results)

    def _pass(self, planned: Planned, plan: StreamPlan, results: list[TableResult]) -> None:
        """``results`` gets those of each commit."""
        lease, seen = self.leases[plan.name], planned.world.streams[plan.name]
        ids = dict.fromkeys(step.id for step in plan.steps if not isinstance(step, Stopped))
        context = OpenContext(self.spec.storage, self.run.base_dir, self.run.buffer)
        with (
            registry.open(self.spec.connections[plan.connection], context) as connector,
            StateWriter(stream_store(self.blobs, plan.name), seen.state, lease.check) as writer,
        ):
            assert connector.streams is not None, "the spec's checks have refused other types"
            stream, log = self.spec.streams[plan.name], landing_log(self.spec, plan.name)
            StreamRun(
                plan=plan,
                stream=stream,
                seen=seen,
                source=connector.streams,
                log=log,
                run=replace(
                    self.run,
                    lineage=seen.state.lineage,
                    fence=lease.fence,
                    check_lease=lease.check,
                    states=seen.state.table,
                    tables=planned.tables,
                    steps={step.id: step for step in planned.plan.all_steps},
                    sources={id: one.source for id, one in planned.world.tables.items() if one.source},
                ),
                writer=writer,
                retries=self.retries,
                parallel=cost.tables_at_once(),
                tables=[planned.tables[id] for id in ids],
                everyone=[table for table in planned.tables.values() if stream_of(table) == plan.name],
                kept=Kept(stream, log),
                results=results,
            ).finish()

    def _summed(self, plan: StreamPlan, results: Sequence[TableResult], error: FlowctlError | None) -> TableResults:
        """One result for each table: the sum of its commits, and what ended it."""
        found: dict[str, TableResult] = {}
        for result in results:
            before = found.get(result.step.id)
            found[result.step.id] = result if before is None else _added(before, result)
        outcomes = []
        for step in {step.id: step for step in plan.steps}.values():
            result = found.get(step.id) or _unmoved(step)
            if error is not None and result.ok and not isinstance(error, AbortRun):
                result = replace(result, error=error)
                self.run.listener(events.TableFailed(step.id, error, result.seconds, error.__cause__))
            outcomes.append(result)
        return TableResults(tuple(outcomes), error if isinstance(error, AbortRun) else None)


def _added(before: TableResult, result: TableResult) -> TableResult:
    """``result``, with the rows and times of both."""
    counts = RowCounts(
        **{
            part.name: _sum(getattr(before.counts, part.name), getattr(result.counts, part.name))
            for part in dataclasses.fields(RowCounts)
        }
    )
    warnings = (*before.warnings, *result.warnings)
    return replace(result, seconds=before.seconds + result.seconds, counts=counts, warnings=warnings)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _unmoved(step: StreamStep) -> TableResult:
    if isinstance(step, Stopped):
        return unmoved(step)
    return TableResult(UpToDate(table=step.table, reason="nothing of it has changed"))
