"""All change streams of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from flowctl.errors import AbortRun, FlowctlError, LockedError
from flowctl.model.step import Stopped, StreamPlan, StreamStep, UpToDate
from flowctl.plan.planning import Planned
from flowctl.run import events
from flowctl.run.attempt import TableResult, TableResults
from flowctl.run.failure import translate
from flowctl.run.schedule import unmoved
from flowctl.run.streaming.passes import Passes
from flowctl.run.streaming.results import Results
from flowctl.spec.spec import Spec
from flowctl.state.lease import Lease
from flowctl.state.streams import lease_prefix
from flowctl.storage.blobs import BlobStore


@dataclass(frozen=True)
class StreamLeases:
    """The leases of a flow's streams, by name; ``busy`` are those of streams that another process works on."""

    held: Mapping[str, Lease]
    busy: Mapping[str, LockedError]

    def leave_out(self, planned: Planned) -> Planned:
        """The plan without what another process does. Raises its :class:`LockedError` if nothing else is left."""
        streams = tuple(self._left_out(stream) for stream in planned.plan.streams)
        busy = [self.busy[stream.name] for stream in planned.plan.streams if stream.name in self.busy]
        plan = replace(planned.plan, streams=streams)
        if busy and len(busy) == len(streams) and not plan.steps:
            raise busy[0]
        return replace(planned, plan=plan)

    def _left_out(self, stream: StreamPlan) -> StreamPlan:
        error = self.busy.get(stream.name)
        if error is None:
            return stream
        reason = f"left to the run that works on the stream {stream.name}"
        steps = tuple(UpToDate(table=step.table, reason=reason) for step in stream.steps)
        note = f"{reason}: {error.message}"
        return replace(stream, action="none", reason=reason, notes=(note,), steps=steps)


@contextmanager
def stream_leases(spec: Spec, blobs: BlobStore, run_id: str, lock_timeout: float) -> Iterator[StreamLeases]:
    """Takes the leases of all streams that are free within ``lock_timeout`` seconds."""
    with ExitStack() as stack:
        held: dict[str, Lease] = {}
        busy: dict[str, LockedError] = {}
        for name in sorted(spec.streams):
            try:
                lease = Lease.acquire(blobs, prefix=lease_prefix(name), run_id=run_id, lock_timeout=lock_timeout)
            except LockedError as error:
                busy[name] = error
            else:
                held[name] = stack.enter_context(lease)
        yield StreamLeases(held, busy)


@dataclass(frozen=True)
class Streams:
    """What the streams of a run share."""

    planned: Planned
    passes: Passes
    leases: Mapping[str, Lease]

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
        results, error = Results(), None
        if plan.runs:
            lease = self.leases[plan.name]
            try:
                self.passes.carry_out(self.planned, plan, lease, results)
                self.passes.read_again(plan, lease, results)
            except Exception as cause:  # noqa: BLE001 - what the tables have committed is part of the result
                error = translate(cause, plan.mark)
                if error is not cause:
                    error.__cause__ = cause
        return self._summed(plan, results, error)

    def _summed(self, plan: StreamPlan, results: Results, error: FlowctlError | None) -> TableResults:
        """One result for each table, and what ended it."""
        outcomes = []
        for step in {step.id: step for step in plan.steps}.values():
            result = results.get(step.id) or _unmoved(step)
            if error is not None and result.ok and not isinstance(error, AbortRun):
                result = replace(result, error=error)
                self.passes.run.listener(events.TableFailed(step.id, error, result.seconds, error.__cause__))
            outcomes.append(result)
        return TableResults(tuple(outcomes), error if isinstance(error, AbortRun) else None)


def _unmoved(step: StreamStep) -> TableResult:
    if isinstance(step, Stopped):
        return unmoved(step)
    return TableResult(UpToDate(table=step.table, reason="nothing of it has changed"))
