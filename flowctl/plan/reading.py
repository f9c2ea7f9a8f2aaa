"""A step that reads: what it starts as, its columns, its interval, its guards."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

from flowctl.model import position
from flowctl.model.commit import Intent
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, Position
from flowctl.model.step import Step
from flowctl.model.table_info import Column, Estimate, RowEstimate
from flowctl.plan import checks, engine, fills, intervals, partitions
from flowctl.plan.case import Case, Stop
from flowctl.plan.column_names import dropped_exclusions, unwritten_column
from flowctl.plan.commands import BLANK
from flowctl.plan.finding import Finding, Idle, Refused, Work
from flowctl.plan.projection import read_columns
from flowctl.plan.shape import known_columns, refusal, shaped
from flowctl.plan.ties import with_columns


def rfc3339(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def blank(case: Case) -> Step:
    table, target = case.table, case.observed.target
    at = state_for_people(case.state.seq, case.state.position)
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
        target_shape=target.shape if target else "",
        target_commit=case.observed.commit.name if case.observed.commit else "",
        definition=case.definition,
        state_before=at,
        state_after=at,
    )


def stopped(step: Step, case: Case, stop: Stop) -> Step:
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


def with_source_columns(step: Step, case: Case) -> Step:
    columns = known_columns(case)
    if columns is not None:
        return shaped(step, case, columns)
    source, target = case.observed.source, case.observed.target
    return replace(
        step,
        schema=None,
        source_columns=read_columns(case.table, source.columns) if source else (),
        target_columns=target.columns if target else (),
    )


def refused(step: Step, case: Case) -> Stop | None:
    """Why the columns stop the table: a policy, a name that none of them has, or what its engine cannot do."""
    filled = fills.refusal(case, step.projection)
    named = filled or refusal(step.schema or (), case) or unwritten_column(case, step)
    return named or partitions.refusal(case, step) or engine.refusal(case, step)


def read(step: Step, case: Case, now: str, estimate: Estimate) -> Step:
    """``step`` with all that it reads and changes, or with why it does nothing."""
    step = with_source_columns(step, case)
    finding = find(case)
    # The interval first: no policy for columns helps where a cursor has lost its order.
    if stop := as_stop(finding) if isinstance(finding, Refused) else refused(step, case):
        return stopped(step, case, stop)
    due = compares_keys(case, step) and checks.deletes_due(case.table, case.state.deletes_checked_at, now)
    match finding:
        case Idle(_, upper, notes) if due and upper is not None:
            work = Work(_only_deletes(case, upper), "looks for deleted keys", notes)
        case Idle(reason, _, notes):
            later = ("schema changes are made with the next rows",) if step.statements and step.target_exists else ()
            return replace(
                step,
                reason=reason,
                rows=_rows(case, None, estimate),
                notes=(*notes, *later),
                statements=(),
                target_columns=_as_they_are(step, case),
            )
        case Work():
            work = finding
    return working(step, case, work, estimate, check_deletes=due)


def _as_they_are(step: Step, case: Case) -> tuple[Column, ...]:
    """The target's columns where no change is made: tables by SQL read these."""
    return case.observed.target.columns if case.observed.target else step.target_columns


def working(step: Step, case: Case, work: Work, estimate: Estimate, *, check_deletes: bool) -> Step:
    guarded = checks.checks(case, check_deletes=check_deletes)
    if stop := checks.failed(guarded):
        return stopped(replace(step, interval=work.interval), case, stop)
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
        notes=(*work.notes, *_giving_up(case), *taking_over(case), *_maintenance(case), *dropped_exclusions(case)),
        state_after=state_for_people(seq, work.interval.upper),
    )


def find(case: Case) -> Finding:
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


def compares_keys(case: Case, step: Step) -> bool:
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


def _maintenance(case: Case) -> Iterator[str]:
    """Of a table whose rows stay."""
    if case.observed.target is None or case.replaces or case.ddl is None:
        return
    if due := case.ddl.maintenance_due(case.observed.target):
        yield due


def _giving_up(case: Case) -> Iterator[str]:
    intent = case.state.intent
    if intent is not None and case.has_landed:
        yield f"{_begun(intent)}, is committed in the target: it is recorded first"
    elif intent is not None:
        yield f"{_begun(intent)}, is given up: it is committed as void first"


def _begun(intent: Intent) -> str:
    return f"sequence number {intent.seq}, begun by run {intent.run_id}"


def taking_over(case: Case) -> Iterator[str]:
    target, begun = case.observed.target, case.begun_refresh
    if case.rebuilds and target is not None:
        known = target.rows.value
        rows = f" ({known:,} rows)" if known is not None else ""
        yield f"destructive: replaces all that {case.table.target} holds now{rows}"
    if case.state.append_again and case.table.mode == "append" and not case.full_refresh:
        since = position.describe(case.state.position)
        yield f"appends all above {since}, also what {case.table.target} has already (state set)"
    if (case.full_refresh or begun) and case.table.mode == "scd2" and not case.replaces:
        yield "reads all again; the history that is there stays"
    if begun is not None:
        way = case.state_command("set", "--position", BLANK)
        yield f"the full refresh was begun by run {begun.run_id}; {way} gives it up and continues from there"


def as_stop(refused: Refused) -> Stop:
    return Stop(refused.reason, refused.hint, refused.path)


def state_for_people(seq: int, at: Position | None) -> dict[str, object]:
    return {"seq": seq, "position": position.to_json(at) if at else None}
