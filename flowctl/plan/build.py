"""The plan: pure decisions over what was resolved and observed, one step per table in DAG order.

For each table, in this order: what cannot go on (``stops``), what was begun and is finished first (recover), the
columns (``shape``), the interval (``intervals``), the guards (``checks``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace

import flowctl
from flowctl.diagnostics import Mark
from flowctl.model import position
from flowctl.model.commit import Intent
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, Position
from flowctl.model.step import Plan, Step
from flowctl.model.table_info import RowEstimate
from flowctl.observe.observation import Request
from flowctl.observe.world import Estimate, World
from flowctl.plan import checks, engine, intervals, places
from flowctl.plan.case import Case, Stop
from flowctl.plan.how import how
from flowctl.plan.intervals import Finding, Idle, Refused, Work
from flowctl.plan.projection import read_columns
from flowctl.plan.shape import known_columns, refusal, shaped
from flowctl.plan.stops import first_stop
from flowctl.plan.ties import with_columns
from flowctl.resolve.resolve import Resolved
from flowctl.spec.names import pattern_ids
from flowctl.spec.spec import Spec, TableSpec
from flowctl.state.document import TableState


def build(spec: Spec, resolved: Resolved, world: World, request: Request) -> Plan:
    """One step for each selected table, in DAG order, then patterns that could not be listed and tables that the spec
    no longer has."""
    steps: dict[str, Step] = {}
    taken = places.shared(world.places)
    for table in resolved.tables:
        if table.id in resolved.selected:
            case = case_of(spec, table, resolved, world, steps, taken)
            steps[table.id] = step_for(case, world.at, request.estimate)
    whole = not (request.select or request.exclude)
    others = [*_unexpanded(spec, world), *(_of_the_whole_flow(spec, resolved, world) if whole else ())]
    return Plan(
        flow=spec.flow,
        lineage=world.state.lineage,
        serial=world.state.serial,
        spec_digest=spec.digest,
        created_at=rfc3339(world.at),
        flowctl=flowctl.__version__,
        select=request.select,
        steps=(*steps.values(), *others),
    )


def case_of(
    spec: Spec,
    table: TableSpec,
    resolved: Resolved,
    world: World,
    before: Mapping[str, Step],
    shared: Mapping[str, str],
) -> Case:
    """Everything known about ``table``; ``before`` holds the steps of the tables that run before it, ``shared`` what
    :func:`flowctl.plan.places.shared` finds."""
    needed = resolved.needs[table.id]
    return Case(
        table=table,
        observed=world.tables[table.id],
        state=world.state.table(table.id),
        ddl=world.ddl.get(table.target.connection),
        full_refresh=table.id in resolved.full_refresh,
        upstream={other: before[other] for other in needed if other in before},
        sequences={other: _sequence(other, before, world) for other in needed},
        spec_path=spec.path,
        spark_url=spec.spark.url,
        shared=shared.get(table.id, ""),
    )


def step_for(case: Case, now: dt.datetime, estimate: Estimate = "stats") -> Step:
    """The table's step. Pure: the same case gives the same step."""
    step = _decided(case, now, estimate)
    return replace(step, how=how(step, case))


def _decided(case: Case, now: dt.datetime, estimate: Estimate) -> Step:
    step = _blank(case)
    if case.may_match_nothing and case.observed.error is None and case.observed.source is None:
        return replace(step, reason="nothing matches (allow_none)")
    if stop := first_stop(case):
        return _stopped(step, case, stop)
    if case.begun is not None:
        intent = replace(case.begun, interval=_pending_interval(case, case.begun))
        if case.has_landed or intervals.can_be_read_again(intent.interval, case.observed.head):
            return _recover(step, case, intent, rfc3339(now))
        case = _giving_up_begun(case)
    step = _with_columns(step, case)
    if stop := refusal(step.schema or ()) or engine.refusal(case, step):
        return _stopped(step, case, stop)
    return _read(step, case, rfc3339(now), estimate)


def rfc3339(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _blank(case: Case) -> Step:
    table, target = case.table, case.observed.target
    return Step(
        id=table.id,
        action="none",
        reason="",
        mark=table.mark,
        source=str(table.source),
        target=str(table.target),
        mode=table.mode,
        key=table.key,
        seq=case.state.seq,
        needs=tuple(sorted(case.upstream)),
        via=checks.via(table),
        target_exists=target is not None,
        target_id=target.identity if target else "",
        target_version=target.version if target else None,
        definition=case.definition,
        state_before=_state(case.state.seq, case.state.position),
        state_after=_state(case.state.seq, case.state.position),
    )


def _stopped(step: Step, case: Case, stop: Stop) -> Step:
    return replace(
        step,
        action="stop",
        reason=stop.reason,
        hint=stop.hint,
        mark=stop.mark or case.table.mark_of(stop.path),
        stopped_by=stop.by,
        checks=stop.checks,
        statements=(),
    )


def _with_columns(step: Step, case: Case) -> Step:
    columns = known_columns(case)
    if columns is not None:
        return shaped(step, case, columns)
    target = case.observed.target
    return replace(step, schema=None, target_columns=target.columns if target else ())


def _recover(step: Step, case: Case, intent: Intent, now: str) -> Step:
    """The begun number again, with its own interval; or, when the target carries it, only its record. Keys that are
    due to be compared are compared now: that is no part of the interval."""
    step = replace(
        step,
        action="recover",
        seq=intent.seq,
        refresh=case.begun_refresh is not None,
        interval=intent.interval,
        definition=intent.definition,
        state_after=_state(intent.seq, intent.interval.upper),
    )
    if case.has_landed:
        return replace(
            step,
            record_only=True,
            reason=f"number {intent.seq} of run {intent.run_id} is committed: it is only recorded",
            source_columns=read_columns(case.table, known_columns(case) or ()),
            target_columns=case.observed.target.columns if case.observed.target else (),
        )
    interval = _with_written_rows(case, intent.interval)
    if isinstance(interval, Refused):
        return _stopped(step, case, _as_stop(interval))
    step = _with_columns(replace(step, interval=interval), case)
    if stop := refusal(step.schema or ()) or engine.refusal(case, step):
        return _stopped(step, case, stop)
    due = _compares_keys(case, step) and checks.deletes_due(case.table, case.state.deletes_checked_at, now)
    return replace(
        step,
        reason=f"finishes number {intent.seq} of the interrupted run {intent.run_id}"
        + (", a full refresh" if step.refresh else ""),
        checks=checks.checks(case, check_deletes=due),
        check_deletes=due,
        write_full=case.replaces,
        notes=tuple(_taking_over(case)),
    )


def _with_written_rows(case: Case, interval: Interval) -> Interval | Refused:
    source = case.observed.source
    if source is None:
        return interval
    lower = with_columns(interval.lower, case.state.schema, case.table, source)
    return intervals.with_written_rows(replace(interval, lower=lower), case.table, source, case.spec_path)


def _pending_interval(case: Case, intent: Intent) -> Interval:
    """With the files that it reads, where only their log has them."""
    if intent.interval.files_read is not None:
        return intent.interval
    return replace(intent.interval, files=case.observed.pending_files)


def _giving_up_begun(case: Case) -> Case:
    """A begun interval that can never be read as it was: somebody fixed a file, say. Nothing of it is in the target, so
    it is given up, and what is there now is read under the next number; by a full refresh, where it was one."""
    is_refresh = case.begun_refresh is not None
    return replace(case, state=replace(case.state, given_up=True), full_refresh=is_refresh)


def _read(step: Step, case: Case, now: str, estimate: Estimate) -> Step:
    finding = _finding(case)
    due = _compares_keys(case, step) and checks.deletes_due(case.table, case.state.deletes_checked_at, now)
    match finding:
        case Refused():
            return _stopped(step, case, _as_stop(finding))
        case Idle(_, upper, notes) if due and upper is not None:
            work = Work(_only_deletes(case, upper), "looks for deleted keys", notes)
        case Idle(reason, _, notes):
            later = ("schema changes are made with the next rows",) if step.statements and step.target_exists else ()
            return replace(step, reason=reason, notes=(*notes, *later), statements=(), rows=_rows(case, None, estimate))
        case Work():
            work = finding
    return _working(step, case, work, estimate, check_deletes=due)


def _working(step: Step, case: Case, work: Work, estimate: Estimate, *, check_deletes: bool) -> Step:
    guarded = checks.checks(case, check_deletes=check_deletes)
    if stop := checks.failed(guarded):
        return _stopped(replace(step, interval=work.interval), case, stop)
    seq = max(case.state.next_seq, (case.observed.commit.seq if case.observed.commit else 0) + 1)
    return replace(
        step,
        action="change" if step.target_exists else "create",
        reason="full refresh" if case.full_refresh else work.reason,
        refresh=case.full_refresh,
        seq=seq,
        interval=work.interval,
        rows=_rows(case, work, estimate),
        checks=guarded,
        write_full=case.replaces,
        check_deletes=check_deletes,
        notes=(*work.notes, *_giving_up(case), *_taking_over(case)),
        state_after=_state(seq, work.interval.upper),
    )


def _finding(case: Case) -> Finding:
    recorded = None if case.full_refresh else case.state.position
    if case.is_sql:
        waiting = sorted(table_id for table_id, seq in case.sequences.items() if seq == 0)
        if waiting:
            return Idle(f"{', '.join(waiting)} has no rows yet")
        return intervals.find_upstream(case.sequences, recorded)
    source, head = case.observed.source, case.observed.head
    assert source is not None and head is not None, "stops has dealt with what was not observed"
    recorded = with_columns(recorded, case.state.schema, case.table, source)
    log = None if case.full_refresh else case.observed.file_log
    return intervals.find(case.table, source, head, recorded, case.observed.positions, case.spec_path, log)


def _compares_keys(case: Case, step: Step) -> bool:
    """Whether the target's rows have the keys that missing ones are looked for by."""
    target = case.observed.target
    names = {column.name for column in target.columns} if target else set()
    return step.target_exists and {*step.key} <= names and not case.lacks_history


def _only_deletes(case: Case, upper: Position) -> Interval:
    """Nothing new to read, but keys to compare: the interval from the position to itself."""
    cursor = case.table.cursor
    match upper:
        case CursorPosition(at) if cursor is not None:
            return Interval(upper, upper, cursor.column, read_from=at, lag_seconds=cursor.lag)
        case _:
            return Interval(upper, upper)


def _rows(case: Case, work: Work | None, estimate: Estimate) -> RowEstimate:
    if work is None or estimate == "none":
        return RowEstimate(method="none")
    head, source = case.observed.head, case.observed.source
    if head is None:
        return RowEstimate()
    if case.table.mode == "append":
        return intervals.new_rows(head.rows, work.interval, head.rows_at_position)
    is_again = case.state.position is not None and not case.full_refresh and isinstance(head.position, CursorPosition)
    if is_again and work.interval.lower is None and source is not None:
        return source.rows  # everything; what was counted lies above the position
    return head.rows


def _giving_up(case: Case) -> Iterator[str]:
    intent = case.state.intent
    if intent is not None:
        yield f"number {intent.seq}, begun by run {intent.run_id}, is given up: it is committed as void first"


def _taking_over(case: Case) -> Iterator[str]:
    target, begun = case.observed.target, case.begun_refresh
    if case.rebuilds and target is not None:
        known = target.rows.value
        rows = f" ({known:,} rows)" if known is not None else ""
        yield f"destructive: replaces all that {case.table.target} holds now{rows}"
    if case.state.append_again and case.table.mode == "append" and not case.full_refresh:
        since = position.describe(case.state.position)
        yield f"appends all above {since}, also what {case.table.target} has already (state set --append-again)"
    if (case.full_refresh or begun) and case.table.mode == "scd2" and not case.replaces:
        yield "reads all again; the history that is there stays"
    if begun is not None:
        way = case.command("state set {spec} {id} --position …")
        yield f"the full refresh was begun by run {begun.run_id}; {way} gives it up and continues from there"


def _as_stop(refused: Refused) -> Stop:
    return Stop(refused.reason, refused.hint, refused.path)


def _state(seq: int, at: Position | None) -> dict[str, object]:
    return {"seq": seq, "position": position.to_json(at) if at else None}


def _sequence(table_id: str, before: Mapping[str, Step], world: World) -> int:
    """The number that a table has once this plan is applied."""
    return before[table_id].seq if table_id in before else world.state.table(table_id).seq


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
        hint=f"`flowctl state reset {spec.path} {table_id}` forgets it",
        mark=Mark(spec.path, 1),
        source="",
        target=str(recorded.get("to", "")),
        mode=recorded.get("mode", "append"),
        seq=state.seq,
        state_before=_state(state.seq, state.position),
        state_after=_state(state.seq, state.position),
    )
