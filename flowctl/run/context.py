"""What the tables of a run or dry run share: its engine, which may still be starting, and its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from flowctl.engine import sail
from flowctl.engine.conf import is_sail
from flowctl.engine.lazy import RunEngine
from flowctl.model.step import Load, Recover, StreamStep
from flowctl.plan.planning import Planned
from flowctl.run import events
from flowctl.run.attempt import RunContext
from flowctl.run.engine import engine_for, load_of_run
from flowctl.run.signals import Interruption
from flowctl.spec.spec import Spec
from flowctl.state.location import check_reachable, flow_url
from flowctl.storage.buffer import Buffer


def require_engine(spec: Spec) -> None:
    """Raises :class:`FlowctlError` if the engine is not installed, or could not reach the flow's folder."""
    check_reachable(flow_url(spec), spec.spark.url)
    if is_sail(spec.spark.url):
        sail.require()


@contextmanager
def open_context(
    spec: Spec,
    planned: Planned,
    todo: Sequence[StreamStep],
    run_id: str,
    buffer: Buffer,
    interruption: Interruption,
    listener: events.Listener,
    say: Callable[[str], None],
    *,
    verbose: bool,
    engine: RunEngine | None = None,
    fence: int = 0,
    check_lease: Callable[[float], None] = lambda margin: None,
) -> Iterator[RunContext]:
    """Opens the context for the steps ``todo``, with an engine of its own unless one is given. The defaults are for a
    dry run, which takes no lease."""
    state, world = planned.world.state, planned.world.tables
    tables = [planned.tables[id] for id in dict.fromkeys(step.id for step in todo)]
    transfers = [step for step in todo if isinstance(step, Load | Recover) and step.table.via != "undecoded"]
    with ExitStack() as stack:
        if engine is None:
            engine = stack.enter_context(engine_for(spec, tables, load_of_run(transfers, world), verbose, say))
            interruption.of(engine.interrupt, engine.abandon)
        if transfers and not interruption.stopping.is_set():
            engine.begin()  # it starts while intents are written and targets are queried again
        yield RunContext(
            spec=spec,
            lineage=state.lineage,
            run_id=run_id,
            fence=fence,
            check_lease=check_lease,
            tables=planned.tables,
            steps={step.id: step for step in planned.plan.all_steps},
            sources={id: seen.source for id, seen in world.items() if seen.source},
            targets={id: seen.target for id, seen in world.items() if seen.target},
            states=state.table,
            session=engine.session,
            renew=engine.renew,
            buffer=buffer,
            listener=listener,
            stopping=interruption.stopping,
            engine_lost=engine.lost,
            base_dir=spec.base_dir,
        )
