"""The last question of a plan, once its columns are known: what others than its source and target must allow."""

from __future__ import annotations

from dataclasses import replace

from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Plan, Recover, Step, Stopped, StoppedBy
from flowctl.observe.asking import Connections
from flowctl.observe.world import World
from flowctl.plan.how import write_shape
from flowctl.resolve.resolve import Resolved
from flowctl.spec.spec import TableSpec


def confirmed(plan: Plan, resolved: Resolved, world: World, connections: Connections) -> Plan:
    """The plan with each write confirmed by its target, or stopped. Columns that are known only when a table runs are
    confirmed by its commit alone, and so are the changes of streams."""
    tables = {table.id: table for table in resolved.tables}

    def step_of(step: Step) -> Step:
        if not isinstance(step, Load | Recover) or not isinstance(step.columns, Columns):
            return step
        return _confirmed(step, step.columns, tables[step.id], world, connections)

    return replace(plan, steps=tuple(map(step_of, plan.steps)))


def _confirmed(
    step: Load | Recover, columns: Columns, table: TableSpec, world: World, connections: Connections
) -> Load | Recover | Stopped:
    target = connections.get(table.target.connection).target
    assert target is not None, "resolve has refused connections that are no targets"
    write = write_shape(step, table, columns, world.tables[step.id].source)
    try:
        said = target.confirm_write(table.target.object, write, [part.column.name for part in columns.projection])
    except FlowctlError as error:
        by: StoppedBy = "policy" if isinstance(error, StoppedByPolicy) else "error"
        mark = error.mark or table.mark_of("to")
        return Stopped(
            table=replace(step.table, mark=mark),
            reason=error.message,
            hint=error.hint,
            by=by,
            changes=columns.changes,
            checks=step.checks,
            follows=step.follows if isinstance(step, Load) else None,
        )
    return replace(step, how=(*step.how, said)) if said else step
