"""The last question of a plan, once its columns are known: what others than its source and target must allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from flowctl.connectors.target import Target
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Plan, Recover, Step, Stopped, StoppedBy
from flowctl.model.table_info import TableInfo
from flowctl.observe.world import World
from flowctl.plan.how import write_shape
from flowctl.spec.spec import TableSpec


def confirm_writes(
    plan: Plan, tables: Mapping[str, TableSpec], world: World, target_of: Callable[[str], Target]
) -> Plan:
    """The plan with each write confirmed by its target, or stopped, and with it what the table does afterwards. Columns
    that are known only when a table runs are confirmed by its commit alone, and so are the changes of streams.
    ``target_of`` a connection's name."""

    def confirm() -> Iterator[Step]:
        stopped: set[str] = set()
        for step in plan.steps:
            if step.id in stopped:
                continue
            if isinstance(step, Load | Recover) and isinstance(step.columns, Columns):
                table = tables[step.id]
                target = target_of(table.target.connection)
                step = _confirm(step, step.columns, table, world.tables[step.id].source, target)
                if isinstance(step, Stopped):
                    stopped.add(step.id)
            yield step

    return replace(plan, steps=tuple(confirm()))


def _confirm(
    step: Load | Recover, columns: Columns, table: TableSpec, source: TableInfo | None, target: Target
) -> Load | Recover | Stopped:
    write, written = write_shape(step, table, columns, source), [part.column.name for part in columns.projection]
    try:
        text = target.confirm_write(table.target.object, write, written)
    except FlowctlError as error:
        by: StoppedBy = "policy" if isinstance(error, StoppedByPolicy) else "error"
        return Stopped(
            table=replace(step.table, mark=error.mark or table.mark_of("to")),
            reason=error.message,
            hint=error.hint,
            by=by,
            changes=columns.changes,
            checks=step.checks,
            follows=step.follows if isinstance(step, Load) else None,
        )
    return replace(step, how=(*step.how, text)) if text else step
