"""One pass over one stream: what it opens, and what it takes from the run and the plan."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext
from flowctl.engine import cost
from flowctl.model.step import Stopped, StreamPlan
from flowctl.observe.streams import stream_source
from flowctl.plan.planning import Planned, make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run.attempt import RunContext
from flowctl.run.streaming.results import Results
from flowctl.run.streaming.retention import Kept
from flowctl.run.streaming.stream_run import Follow, StreamRun
from flowctl.run.tries import Retries
from flowctl.spec.spec import Spec, stream_of
from flowctl.state.document import StateDocument
from flowctl.state.lease import Lease
from flowctl.state.location import flow_url
from flowctl.state.streams import landing_log, prefix, stream_store
from flowctl.state.writer import StateWriter
from flowctl.storage.blobs import BlobStore
from flowctl.storage.buffer import Buffer


@dataclass(frozen=True)
class Passes:
    """What passes share. ``run`` is the context of the whole run."""

    spec: Spec
    run: RunContext
    blobs: BlobStore
    retries: Retries

    def carry_out(
        self, planned: Planned, plan: StreamPlan, lease: Lease, results: Results, follow: Follow | None = None
    ) -> None:
        """``results`` gets those of each commit. Errors of the stream itself are raised. Of a stream that is followed,
        rounds are told, not each of their tables."""
        seen = planned.world.streams[plan.name]
        ids = dict.fromkeys(step.id for step in plan.steps if not isinstance(step, Stopped))
        folder = f"{flow_url(self.spec)}/{prefix(plan.name)}".rstrip("/")
        stream = self.spec.streams[plan.name]
        with (
            Buffer(folder, self.run.run_id, self.spec.storage) as buffer,
            self._open(plan.connection, buffer) as connector,
            self._open(stream.snapshot_from, buffer) if stream.snapshot_from else nullcontext() as standby,
            StateWriter(stream_store(self.blobs, plan.name), seen.state, lease.check) as writer,
        ):
            buffer.sweep()
            log = landing_log(self.spec, plan.name)
            StreamRun(
                plan=plan,
                stream=stream,
                seen=seen,
                source=stream_source(self.spec, stream, connector),
                standby=standby.streams if standby is not None else None,
                log=log,
                run=self._context(planned, seen.state, lease, buffer),
                writer=writer,
                retries=self.retries,
                parallel=cost.tables_at_once(),
                tables=[planned.tables[id] for id in ids],
                everyone=[table for table in planned.tables.values() if stream_of(table) == plan.name],
                kept=Kept(stream, log),
                results=results,
                follow=follow,
            ).finish()

    def _open(self, connection: str, buffer: Buffer) -> AbstractContextManager[Connector]:
        context = OpenContext(self.spec.storage, self.run.base_dir, buffer)
        return registry.open(self.spec.connections[connection], context)

    def _context(self, planned: Planned, state: StateDocument, lease: Lease, buffer: Buffer) -> RunContext:
        """That of the stream's tables: its lineage, lease, state and buffer."""
        return replace(
            self.run,
            lineage=state.lineage,
            fence=lease.fence,
            check_lease=lease.check,
            buffer=buffer,
            states=state.table,
            tables=planned.tables,
            steps={step.id: step for step in planned.plan.all_steps},
            sources={id: one.source for id, one in planned.world.tables.items() if one.source},
            targets={id: one.target for id, one in planned.world.tables.items() if one.target},
        )

    def read_again(self, plan: StreamPlan, lease: Lease, results: Results) -> None:
        """A second pass for tables whose rows got values that no change sends, which the first has come upon: they are
        read in full (`on_schema_change.unsent: resnapshot`)."""
        document = stream_store(self.blobs, plan.name).read()
        took_part = {step.id for step in plan.steps if not isinstance(step, Stopped)}
        waiting = [id for id in took_part if document.table(id).position is None]
        if waiting and results.are_ok and not self.run.stopping.is_set():
            planned = make_plan(self.spec, PlanOptions(select=tuple(sorted(took_part))))
            again = next(one for one in planned.plan.streams if one.name == plan.name)
            if again.runs:
                self.carry_out(planned, again, lease, results)
