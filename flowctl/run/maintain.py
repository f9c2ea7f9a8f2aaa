"""`flowctl maintain`: under the lease, finds the maintenance that is due, shows it, and does exactly that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.errors import ExitCode, FlowctlError, LockedError, StoppedByPolicy
from flowctl.model.table_info import ObjectName
from flowctl.observe.asking import Connections, ask_for_each
from flowctl.plan.planning import resolve_listed
from flowctl.resolve.places import sidecars_of
from flowctl.resolve.resolve import PlanOptions
from flowctl.run.engine import engine_for
from flowctl.run.failure import translate
from flowctl.run.opening import take_table_lease
from flowctl.run.streaming.streams import stream_leases
from flowctl.spec.spec import Spec, TableSpec, stream_of
from flowctl.state.document import StateDocument
from flowctl.state.lease import Lease
from flowctl.state.location import open_flow
from flowctl.state.runs import new_run_id
from flowctl.state.store import StateStore
from flowctl.state.streams import stream_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class MaintainOptions:
    """``select`` are terms of ``--select``; ``lock_timeout`` in seconds."""

    select: tuple[str, ...] = ()
    lock_timeout: float = 0.0
    verbose: bool = False


@dataclass(frozen=True)
class DueTable:
    """A table or one of its sidecars. ``error``: why it could not be inspected, or must not be maintained now."""

    table: TableSpec
    object: ObjectName
    due: Maintenance | None = None
    error: FlowctlError | None = None

    @property
    def name(self) -> str:
        return f"{self.table.target.connection}:{self.object}"

    @property
    def is_runnable(self) -> bool:
        return self.due is not None and bool(self.due.tasks) and self.error is None


@dataclass(frozen=True)
class MaintenancePlan:
    """``tables`` are those with something to report; ``others`` is the number of tables for which nothing is due;
    ``unlisted`` are the errors of patterns whose source could not be listed."""

    tables: tuple[DueTable, ...]
    others: int
    unlisted: tuple[FlowctlError, ...] = ()

    @property
    def runnable(self) -> list[DueTable]:
        return [one for one in self.tables if one.is_runnable]


@dataclass(frozen=True)
class TableMaintained:
    """``done`` may contain only some of the tasks if there is an ``error``."""

    table: DueTable
    done: tuple[Task, ...] = ()
    error: FlowctlError | None = None


@dataclass(frozen=True)
class MaintenanceResult:
    """``approved`` False: nothing was done."""

    plan: MaintenancePlan
    approved: bool = False
    tables: tuple[TableMaintained, ...] = ()

    @property
    def exit_code(self) -> int:
        errors = [
            *self.plan.unlisted,
            *(one.error for one in self.plan.tables if one.error),
            *(one.error for one in self.tables if one.error),
        ]
        return ExitCode.first([error.exit_code for error in errors])


def maintain(
    spec: Spec, options: MaintainOptions, approve: Callable[[MaintenancePlan], bool], say: Callable[[str], None]
) -> MaintenanceResult:
    """Errors of individual tables are in the result; others are raised."""
    blobs, run_id = open_flow(spec), new_run_id()
    with ExitStack() as stack:
        lease = stack.enter_context(Lease.acquire(blobs, run_id=run_id, lock_timeout=options.lock_timeout))
        streams = stack.enter_context(stream_leases(spec, blobs, run_id, options.lock_timeout))
        connections = stack.enter_context(Connections(spec))
        documents = {name: stream_store(blobs, name).read() for name in spec.streams}
        known = _Known({"": StateStore(blobs).read(), **documents}, streams.busy)
        plan = _find_due(spec, options.select, known, connections)
        if not approve(plan):
            return MaintenanceResult(plan)
        tables = [one.table for one in plan.runnable]
        engine = stack.enter_context(engine_for(spec, tables, {}, options.verbose, say))
        leases = {"": lease, **streams.held}
        work = _Work(spec, run_id, connections, leases, lambda: engine.session("maintain"), say)
        return MaintenanceResult(plan, approved=True, tables=tuple(map(work.maintain, plan.runnable)))


@dataclass(frozen=True)
class _Known:
    """The states of the flow (without a name) and of its streams; ``busy`` are streams that other processes work
    on."""

    documents: Mapping[str, StateDocument]
    busy: Mapping[str, LockedError]


def _find_due(spec: Spec, select: tuple[str, ...], known: _Known, connections: Connections) -> MaintenancePlan:
    resolved, discovery = resolve_listed(spec, PlanOptions(select=select), connections)
    tables = [table for table in resolved.tables if table.id in resolved.selected]
    listed = list(_looked_at(spec, tables, known, connections))
    shown = [one for one in listed if one.error or (one.due and (one.due.tasks or one.due.left_out))]
    return MaintenancePlan(tuple(shown), len(listed) - len(shown), tuple(discovery.failures.values()))


def _looked_at(spec: Spec, tables: Sequence[TableSpec], known: _Known, connections: Connections) -> Iterator[DueTable]:
    """Each table and its sidecars, without those that do not exist or need no maintenance."""
    for name in dict.fromkeys(table.target.connection for table in tables):
        objects = {
            ObjectName((*table.target.parts[:-1], table.target.parts[-1] + suffix)): table
            for table in tables
            if table.target.connection == name
            for suffix in ("", *sidecars_of(table))
        }

        def ask(wanted: Sequence[ObjectName], name: str = name) -> dict[ObjectName, Maintenance | None]:
            target = connections.get(name).target
            found = target.maintenance(wanted, spec.spark.url) if target else {}
            return {object: found.get(object) for object in wanted}

        for object, due in ask_for_each(ask, list(objects), connections.mark(name)).items():
            table = objects[object]
            if isinstance(due, FlowctlError):
                yield DueTable(table, object, error=due)
            elif due is not None:
                yield DueTable(table, object, due, _hindrance(spec, table, known) if due.tasks else None)


def _hindrance(spec: Spec, table: TableSpec, known: _Known) -> FlowctlError | None:
    """An error if another process works on the table's stream, or the table has a pending intent: a killed run may
    still be writing until the next run finishes it."""
    stream = stream_of(table)
    if stream in known.busy:
        return known.busy[stream]
    intent = known.documents[stream].table(table.id).intent
    if intent is None:
        return None
    return StoppedByPolicy(
        f"{table.id}: sequence number {intent.seq}, begun by run {intent.run_id}, is not finished",
        hint=f"Run `flowctl apply {spec.argument}` first",
        mark=table.mark,
    )


@dataclass(frozen=True)
class _Work:
    spec: Spec
    run_id: str
    connections: Connections
    leases: Mapping[str, Lease]
    session: Callable[[], SparkSession]
    say: Callable[[str], None]

    def maintain(self, one: DueTable) -> TableMaintained:
        done: list[Task] = []
        try:
            for task in self._tasks(one):
                self.say(f"{one.name}: {task.name}: {task.text}")
                done.append(task)
        except Exception as cause:  # noqa: BLE001 - translated: Spark's, drivers' or flowctl's own
            error = translate(cause, one.table.mark, one.name)
            if error is not cause:
                error.__cause__ = cause
            return TableMaintained(one, tuple(done), error)
        return TableMaintained(one, tuple(done))

    def _tasks(self, one: DueTable) -> Iterator[Task]:
        """Runs the tasks, also under the table's own lease; a sidecar uses the lease of its table."""
        table = one.table
        target = self.connections.get(table.target.connection).target
        assert target is not None and one.due is not None
        with ExitStack() as stack:
            own = take_table_lease(stack, self.spec, self.run_id, table, target)

            def check_leases() -> None:
                self.leases[""].check()
                self.leases[stream_of(table)].check()
                if own is not None:
                    own.check()

            yield from target.maintain(one.due, self.session, check_leases)
