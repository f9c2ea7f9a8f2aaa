"""The plan: pure decisions over what was resolved and observed, one step per table in DAG order.

For each table, in this order: reasons to stop (``stops``), a pending sequence number to finish first (``recovery``),
the columns (``shape``), the interval (``intervals``), the guards (``checks``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import flowctl
from flowctl.diagnostics import Mark
from flowctl.model.commit import Intent
from flowctl.model.step import (
    Advance,
    Load,
    Plan,
    PlannedTable,
    Progress,
    Recover,
    Removed,
    Step,
    Stopped,
    StoppedBy,
    StreamPlan,
    StreamStep,
    UpToDate,
    progress_after,
)
from flowctl.model.table_info import Column, Estimate, same_identity
from flowctl.observe.world import World
from flowctl.plan import reading, recovery
from flowctl.plan.case import Case
from flowctl.plan.commands import state_command
from flowctl.plan.former_ids import left_behind
from flowctl.plan.how import how
from flowctl.plan.stops import first_stop
from flowctl.plan.streams import StreamCase, former_stream, plan_stream
from flowctl.plan.undecoded import undecoded_form, with_way
from flowctl.plan.upstream import columns_found
from flowctl.resolve.names import refused_name
from flowctl.resolve.places import SIDECARS
from flowctl.resolve.resolve import PlanOptions, Resolved
from flowctl.spec.names import pattern_ids
from flowctl.spec.spec import Spec, TableSpec, stream_of
from flowctl.state.document import TableState


def build(spec: Spec, resolved: Resolved, world: World, options: PlanOptions) -> Plan:
    """Builds the steps of each selected table in DAG order, then those of patterns that could not be listed and of
    tables no longer in the spec."""
    steps: list[Step] = []
    last: dict[str, StreamStep] = {}
    taken, left = shared_places(world.places), left_behind(resolved.tables, world.state)
    streams = tuple(_streams(spec, resolved, world, taken))
    for stream in streams:
        last |= {step.id: step for step in stream.steps}
    for table in resolved.tables:
        if table.id in resolved.selected and not stream_of(table):
            case = replace(case_of(spec, table, resolved, world, last, taken), left=left)
            is_after = any(isinstance(step, Advance) for step in case.upstream.values())
            steps += (_after_stream(step) if is_after else step for step in steps_for(case, world.at, options.estimate))
            last[table.id] = steps[-1]
    whole = not (options.select or options.exclude)
    former = [former_stream(name, seen, spec) for name, seen in world.former.items()] if whole else []
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
        streams=(*streams, *former),
    )


def _streams(spec: Spec, resolved: Resolved, world: World, taken: Mapping[str, str]) -> Iterator[StreamPlan]:
    for name, seen in world.streams.items():
        left = left_behind(resolved.tables, seen.state)
        cases = [
            replace(case_of(spec, table, resolved, world, {}, taken), left=left)
            for table in resolved.tables
            if table.id in resolved.selected and stream_of(table) == name
        ]
        yield plan_stream(StreamCase(spec.streams[name], seen, spec.argument), cases)


def case_of(
    spec: Spec,
    table: TableSpec,
    resolved: Resolved,
    world: World,
    before: Mapping[str, StreamStep],
    shared: Mapping[str, str],
) -> Case:
    """Collects everything known about ``table``. ``before`` holds the last step of each table that runs before it,
    ``shared`` the result of :func:`shared_places`."""
    needed = resolved.needs[table.id]
    return Case(
        table=table,
        observed=world.tables[table.id],
        state=world.document_of(table).table(table.id),
        ddl=world.ddl.get(table.target.connection),
        full_refresh=table.id in resolved.full_refresh,
        backfill=resolved.backfill,
        upstream={other: before[other] for other in needed if other in before},
        upstream_columns={other: _columns(other, before, world) for other in needed},
        sequences={other: _sequence(other, before, world) for other in needed},
        spec_path=spec.argument,
        spark_url=spec.spark.url,
        spark_conf=spec.spark.conf,
        undecoded=undecoded_form(spec, table),
        shared=shared.get(table.id, ""),
        owner=_owner(table.id, world),
        refused_name=refused_name(table, spec),
    )


def _owner(table_id: str, world: World) -> str:
    """The other table that has written this one's target, as state or the target itself records it."""
    target, own = world.tables[table_id].target, world.recorded(table_id).target_id
    if target is None or not target.identity or (own and same_identity(own, target.identity)):
        return ""
    written = {id: seen.commit.target_id for id, seen in world.tables.items() if seen.commit is not None}
    for document in (world.state, *world.documents.values()):
        written |= {id: state.target_id for id, state in document.tables.items() if state.target_id}
    return next((id for id in sorted(written) if id != table_id and same_identity(written[id], target.identity)), "")


def shared_places(places: Mapping[str, str]) -> dict[str, str]:
    """Describes conflicts between ``places``, both by table id. Both tables of a shared place are refused, since either
    may be the intended one."""
    by_place: dict[str, list[str]] = {}
    for table_id, place in places.items():
        by_place.setdefault(place, []).append(table_id)
    found = {
        table_id: f"writes the same table as {', '.join(sorted({*ids} - {table_id}))}"
        for ids in by_place.values()
        if len(ids) > 1
        for table_id in ids
    }
    for table_id, place in places.items():
        for suffix, what in SIDECARS.items():
            owners = by_place.get(place.removesuffix(suffix), []) if place.endswith(suffix) else []
            if owners:
                found[table_id] = f"writes to where {', '.join(sorted(owners))} keeps its {what}"
    return found


def steps_for(case: Case, now: dt.datetime, estimate: Estimate = "stats") -> tuple[Step, ...]:
    """Returns the table's step, or two if a pending sequence number is finished first and newer rows exist. Pure: the
    same case gives the same steps."""
    steps = (with_way(step, case) for step in _decided(case, reading.rfc3339(now), estimate))
    return tuple(replace(step, how=how(step, case)) if isinstance(step, Load | Recover) else step for step in steps)


def _decided(case: Case, now: str, estimate: Estimate) -> Iterator[Step]:
    if case.may_match_nothing and case.observed.error is None and case.observed.source is None:
        yield UpToDate(table=reading.planned_table(case), reason="nothing matches (allow_none)")
        return
    if stop := first_stop(case):
        yield reading.stopped(case, stop)
        return
    if case.begun is not None:
        if recovery.can_be_finished(case, case.begun):
            yield from _finished(case, case.begun, now, estimate)
            return
        case = recovery.giving_up(case)
    yield reading.read(case, now, estimate)


def _finished(case: Case, begun: Intent, now: str, estimate: Estimate) -> Iterator[Step]:
    step = recovery.finish(case, begun, now)
    since = None if isinstance(step, Stopped) else recovery.read_since(case, begun, step, now, estimate)
    yield replace(step, continues=True) if isinstance(step, Recover) and isinstance(since, Load) else step
    if since is not None:
        yield since


def _sequence(table_id: str, before: Mapping[str, StreamStep], world: World) -> int:
    """The table's sequence number after this plan is applied; for a table of a stream, before."""
    planned = progress_after(before[table_id]) if table_id in before else None
    return planned.seq if planned else world.recorded(table_id).seq


def _columns(table_id: str, before: Mapping[str, StreamStep], world: World) -> Sequence[Column]:
    """The columns that other tables find in a table after this plan is applied."""
    seen = world.tables.get(table_id)
    return columns_found(before.get(table_id), world.recorded(table_id).target_columns, seen.target if seen else None)


def _after_stream(step: Step) -> Step:
    """A table over those of a stream: which changes these take is known only then."""
    if isinstance(step, Load | UpToDate):
        return replace(step, notes=(*step.notes, "planned again once its stream has advanced"))
    return step


def _unexpanded(spec: Spec, world: World) -> Iterator[Step]:
    for table in spec.tables:
        if error := world.unexpanded.get(table.id):
            yield _stopped(table, error.message, error.hint, "error", error.mark)


def _of_the_whole_flow(spec: Spec, resolved: Resolved, world: World) -> Iterator[Step]:
    for pattern in resolved.unmatched:
        hint = "Correct it, or let the connection's user see the tables; allow_none: true if there may be none"
        yield _stopped(pattern, f"{pattern.source} matches nothing", hint, "policy")
    yield from _removed(spec, resolved, world)


def _stopped(pattern: TableSpec, reason: str, hint: str, by: StoppedBy, mark: Mark | None = None) -> Stopped:
    """The step of a pattern without tables."""
    table = PlannedTable(
        id=pattern.id,
        mark=mark or pattern.mark_of("from"),
        source=str(pattern.source),
        target=str(pattern.target),
        mode=pattern.mode,
    )
    return Stopped(table=table, reason=reason, hint=hint, by=by)


def _removed(spec: Spec, resolved: Resolved, world: World) -> Iterator[Step]:
    """Tables in state but not in the spec, unless a pattern that could not be listed may produce them."""
    maybe = [pattern_ids(pattern) for pattern in world.unexpanded]
    documents = {"": world.state, **{name: seen.state for name, seen in world.streams.items()}}
    for stream, document in documents.items():
        there = {table.id for table in resolved.tables if stream_of(table) == stream}
        for table_id, state in sorted(document.tables.items()):
            if table_id not in there and not state.forgotten and not any(matches(table_id) for matches in maybe):
                yield _removed_step(spec, table_id, state)


def _removed_step(spec: Spec, table_id: str, state: TableState) -> Step:
    table = PlannedTable(
        id=table_id,
        mark=Mark(spec.path, 1),
        source="",
        target=str(state.definition.get("to", "")),
        mode=state.definition.get("mode", "append"),
        progress=Progress(state.seq, state.position),
    )
    return Removed(
        table=table,
        reason="no longer in the spec; its target and state are left alone",
        hint=f"Forget it with {state_command('reset', spec.argument, table_id)}",
    )
