"""A begun number that is finished first, and what has come since: the same run reads that too, under the next number.

The second step stands on the first: its interval begins where the begun one ends, which is known, and its intent is
written once the first is recorded. Which rows append has written at that position is known only then.
"""

from __future__ import annotations

from dataclasses import replace

from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, Position
from flowctl.model.step import Step
from flowctl.model.table_info import Estimate
from flowctl.plan import checks, intervals
from flowctl.plan.case import Case
from flowctl.plan.fills import columns_to_record
from flowctl.plan.finding import Idle, Refused, Work
from flowctl.plan.projection import read_columns
from flowctl.plan.reading import (
    as_stop,
    blank,
    compares_keys,
    find,
    read,
    refused,
    state_for_people,
    stopped,
    taking_over,
    with_source_columns,
    working,
)
from flowctl.plan.repetition import repetition
from flowctl.plan.shape import known_columns
from flowctl.plan.ties import with_columns
from flowctl.state import document as documents
from flowctl.state.document import Recorded, StateDocument


def can_be_finished(case: Case, begun: Intent) -> bool:
    seen = case.observed
    return case.has_landed or intervals.can_be_read_again(_interval(case, begun), seen.head, seen.source)


def giving_up(case: Case) -> Case:
    """A begun interval that can never be read as it was: a file was fixed, a cursor's type changed. Nothing of it is in
    the target, so it is given up, and what is there now is read under the next number; by a full refresh, where it was
    one."""
    is_refresh = case.begun_refresh is not None
    return replace(case, state=replace(case.state, given_up=True), full_refresh=is_refresh)


def finish(case: Case, begun: Intent, now: str) -> Step:
    """The begun number again, with its own interval; or, when the target carries it, only its record. Keys that are
    due to be compared are compared now: that is no part of the interval."""
    step = replace(
        blank(case),
        action="recover",
        seq=begun.seq,
        refresh=case.begun_refresh is not None,
        interval=_interval(case, begun),
        definition=begun.definition,
        state_after=state_for_people(begun.seq, begun.interval.upper),
    )
    if case.has_landed:
        return replace(
            step,
            record_only=True,
            reason=f"sequence number {begun.seq} of run {begun.run_id} is committed: it is only recorded",
            source_columns=read_columns(case.table, known_columns(case) or ()),
            target_columns=columns_to_record(case),
        )
    interval = _with_written_rows(case, _interval(case, begun))
    if isinstance(interval, Refused):
        return stopped(step, case, as_stop(interval))
    step = with_source_columns(replace(step, interval=interval), case)
    if stop := refused(step, case):
        return stopped(step, case, stop)
    due = compares_keys(case, step) and checks.deletes_due(case.table, case.state.deletes_checked_at, now)
    return replace(
        step,
        reason=f"finishes sequence number {begun.seq} of the interrupted run {begun.run_id}"
        + (", a full refresh" if step.refresh else ""),
        checks=checks.checks(case, check_deletes=due),
        check_deletes=due,
        write_full=case.replaces,
        notes=tuple(note for note in (*taking_over(case), repetition(begun, case.spec_path, case.table.id)) if note),
    )


def read_since(case: Case, begun: Intent, finished: Step, now: str, estimate: Estimate) -> Step | None:
    """What the next run would do once ``finished`` is recorded; None where that is nothing. A source without a position
    is read as it is now by the begun number already, unless that had landed before."""
    after = _recorded(case, begun, finished)
    if finished.record_only:
        step = read(blank(after), after, now, estimate)
    else:
        step = _above(after, begun, finished, estimate)
    if step.action == "none":
        return None
    reason = f"{step.reason}, once sequence number {begun.seq} is recorded" if step.action == "change" else step.reason
    return replace(step, follows=begun.seq, reason=reason, target_commit=finished.target_commit)


def _above(after: Case, begun: Intent, finished: Step, estimate: Estimate) -> Step:
    """The columns are those that ``finished`` reads, writes and leaves behind; those of others only where all content
    is replaced again."""
    columns = finished.target_columns if after.replaces else finished.recorded_columns
    names = {column.name for column in columns}
    step = replace(
        blank(after),
        source_columns=finished.source_columns,
        target_columns=columns,
        projection=tuple(part for part in finished.projection if part.column.name in names),
        schema=None if finished.schema is None else (),
        target_exists=True,
    )
    match finding := find(after):
        case Refused():
            return stopped(step, after, as_stop(finding))
        case Idle():
            return step
        case Work():
            if _is_same(finding.interval.upper, begun.interval.upper):
                return step  # late rows, rows without a cursor, the whole source: all read just now
            return working(step, after, finding, estimate, check_deletes=False)


def _recorded(case: Case, begun: Intent, finished: Step) -> Case:
    """The case once ``finished`` is recorded, whose target has then the columns that it leaves behind."""
    table_id, observed = case.table.id, case.observed
    landed = observed.commit if case.has_landed else None
    commit = landed or Commit("", table_id, begun.seq, begun.id, begun.target_id, begun.interval.upper)
    recorded = Recorded(
        finished.definition,
        finished.source_columns,
        finished.recorded_columns,
        begun.run_id,
        upstream_shape=case.state.upstream_shape,
    )
    document = documents.with_commit(StateDocument("", tables={table_id: case.state}), commit, recorded)
    since = replace(observed, commit=commit, file_log=observed.pending_log or observed.file_log, pending_log=None)
    return replace(case, state=document.table(table_id), observed=since)


def _is_same(one: Position, other: Position) -> bool:
    """Whether two positions are one, whatever is known of the rows there."""
    if isinstance(one, CursorPosition) and isinstance(other, CursorPosition):
        return one.at == other.at
    return one == other


def _interval(case: Case, begun: Intent) -> Interval:
    """With the files that it reads, where only their log has them."""
    log = case.observed.pending_log
    if begun.interval.files_read is not None or log is None:
        return begun.interval
    return replace(begun.interval, files=log.entries[-1].read)


def _with_written_rows(case: Case, interval: Interval) -> Interval | Refused:
    source = case.observed.source
    if source is None:
        return interval
    lower = with_columns(interval.lower, case.state.schema, case.table, source)
    return intervals.with_written_rows(replace(interval, lower=lower), case.table, source, case.spec_path)
