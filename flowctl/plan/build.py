"""The plan: pure decisions over what was resolved and observed, one step per table in DAG order.

For each table, in this order: what cannot go on (``stops``), what was begun and is finished first (recover), the
columns (``shape``), the interval (``intervals``), the guards (``checks``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import flowctl
from flowctl.diagnostics import Mark
from flowctl.model.commit import Intent
from flowctl.model.step import Plan, Step
from flowctl.model.table_info import Column, Estimate
from flowctl.observe.world import World
from flowctl.plan import places, reading, recovery
from flowctl.plan.case import Case
from flowctl.plan.commands import state_command
from flowctl.plan.how import how
from flowctl.plan.stops import first_stop
from flowctl.plan.upstream import columns_found
from flowctl.resolve.names import refused_name
from flowctl.resolve.resolve import PlanOptions, Resolved
from flowctl.spec.names import pattern_ids
from flowctl.spec.spec import Spec, TableSpec
from flowctl.state.document import TableState


def build(spec: Spec, resolved: Resolved, world: World, options: PlanOptions) -> Plan:
    """The steps of each selected table, in DAG order, then patterns that could not be listed and tables that the spec
    no longer has."""
    steps: list[Step] = []
    last: dict[str, Step] = {}
    taken = places.shared(world.places)
    for table in resolved.tables:
        if table.id in resolved.selected:
            case = case_of(spec, table, resolved, world, last, taken)
            steps += steps_for(case, world.at, options.estimate)
            last[table.id] = steps[-1]
    whole = not (options.select or options.exclude)
    others = [*_unexpanded(spec, world), *(_of_the_whole_flow(spec, resolved, world) if whole else ())]
    return Plan(
        flow=spec.flow,
        lineage=world.state.recorded_lineage,
        serial=world.state.serial,
        spec_digest=spec.digest,
        created_at=reading.rfc3339(world.at),
        flowctl=flowctl.__version__,
        select=options.select,
        steps=(*steps, *others),
    )


def case_of(
    spec: Spec,
    table: TableSpec,
    resolved: Resolved,
    world: World,
    before: Mapping[str, Step],
    shared: Mapping[str, str],
) -> Case:
    """Everything known about ``table``; ``before`` holds the last step of each table that runs before it, ``shared``
    what :func:`flowctl.plan.places.shared` finds."""
    needed = resolved.needs[table.id]
    return Case(
        table=table,
        observed=world.tables[table.id],
        state=world.state.table(table.id),
        ddl=world.ddl.get(table.target.connection),
        full_refresh=table.id in resolved.full_refresh,
        upstream={other: before[other] for other in needed if other in before},
        upstream_columns={other: _columns(other, before, world) for other in needed},
        sequences={other: _sequence(other, before, world) for other in needed},
        spec_path=spec.argument,
        spark_url=spec.spark.url,
        shared=shared.get(table.id, ""),
        refused_name=refused_name(table, spec),
    )


def steps_for(case: Case, now: dt.datetime, estimate: Estimate = "stats") -> tuple[Step, ...]:
    """The table's step; two where a begun number is finished first and more has come since. Pure: the same case gives
    the same steps."""
    steps = _decided(case, reading.rfc3339(now), estimate)
    return tuple(replace(step, how=told) if (told := how(step, case)) else step for step in steps)


def _decided(case: Case, now: str, estimate: Estimate) -> Iterator[Step]:
    step = reading.blank(case)
    if case.may_match_nothing and case.observed.error is None and case.observed.source is None:
        yield replace(step, reason="nothing matches (allow_none)")
        return
    if stop := first_stop(case):
        yield reading.stopped(step, case, stop)
        return
    if case.begun is not None:
        if recovery.can_be_finished(case, case.begun):
            yield from _finished(case, case.begun, now, estimate)
            return
        case = recovery.giving_up(case)
    yield reading.read(step, case, now, estimate)


def _finished(case: Case, begun: Intent, now: str, estimate: Estimate) -> Iterator[Step]:
    step = recovery.finish(case, begun, now)
    yield step
    if step.action == "recover" and (since := recovery.read_since(case, begun, step, now, estimate)):
        yield since


def _sequence(table_id: str, before: Mapping[str, Step], world: World) -> int:
    """The number that a table has once this plan is applied."""
    return before[table_id].seq if table_id in before else world.state.table(table_id).seq


def _columns(table_id: str, before: Mapping[str, Step], world: World) -> Sequence[Column]:
    """The columns that others find in a table once this plan is applied."""
    seen = world.tables.get(table_id)
    return columns_found(
        before.get(table_id), world.state.table(table_id).target_columns, seen.target if seen else None
    )


def _unexpanded(spec: Spec, world: World) -> Iterator[Step]:
    for table in spec.tables:
        if error := world.unexpanded.get(table.id):
            yield Step(
                id=table.id,
                action="stop",
                reason=error.message,
                hint=error.hint,
                mark=error.mark or table.mark_of("from"),
                source=str(table.source),
                target=str(table.target),
                mode=table.mode,
                stopped_by="error",
            )


def _of_the_whole_flow(spec: Spec, resolved: Resolved, world: World) -> Iterator[Step]:
    for pattern in resolved.unmatched:
        yield Step(
            id=pattern.id,
            action="stop",
            reason=f"{pattern.source} matches nothing",
            hint="Correct it, or let the connection's user see the tables; allow_none: true if that may be",
            mark=pattern.mark_of("from"),
            source=str(pattern.source),
            target=str(pattern.target),
            mode=pattern.mode,
            stopped_by="policy",
        )
    yield from _removed(spec, resolved, world)


def _removed(spec: Spec, resolved: Resolved, world: World) -> Iterator[Step]:
    """Tables that state knows and the spec does not, unless a pattern that could not be listed may make them."""
    there = {table.id for table in resolved.tables}
    maybe = [pattern_ids(pattern) for pattern in world.unexpanded]
    for table_id, state in sorted(world.state.tables.items()):
        if table_id not in there and not state.forgotten and not any(matches(table_id) for matches in maybe):
            yield _removed_step(spec, table_id, state)


def _removed_step(spec: Spec, table_id: str, state: TableState) -> Step:
    recorded = state.definition
    return Step(
        id=table_id,
        action="removed",
        reason="no longer in the spec; its target and state are left alone",
        hint=f"Forget it with {state_command('reset', spec.argument, table_id)}",
        mark=Mark(spec.path, 1),
        source="",
        target=str(recorded.get("to", "")),
        mode=recorded.get("mode", "append"),
        seq=state.seq,
        state_before=reading.state_for_people(state.seq, state.position),
        state_after=reading.state_for_people(state.seq, state.position),
    )
