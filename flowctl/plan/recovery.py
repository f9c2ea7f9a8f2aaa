"""Recovery: a pending sequence number is finished first; the same run then reads newer rows under the next number.

The second step builds on the first: its interval starts where the pending one ends, which is known, and its intent is
written once the first is recorded. Only then is it known which rows append has written at that position.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, Position
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.step import Load, RecordOnly, Recover, Stopped, UpToDate
from flowctl.model.table_info import Estimate
from flowctl.plan import checks, intervals
from flowctl.plan.case import Case
from flowctl.plan.commands import state_command
from flowctl.plan.cursors import with_written_rows
from flowctl.plan.fills import columns_to_record
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.plan.projection import read_columns
from flowctl.plan.reading import (
    checks_deletes,
    columns_of,
    find,
    planned_table,
    read,
    replaced_content,
    stopped,
    taking_over,
    working,
)
from flowctl.plan.refusals import refuse_columns
from flowctl.plan.shape import known_columns
from flowctl.plan.ties import is_complete, with_columns
from flowctl.plan.versions import reads_changes
from flowctl.state import document as documents
from flowctl.state.document import Recorded, StateDocument


def can_be_finished(case: Case, begun: Intent) -> bool:
    seen = case.observed
    return case.is_committed or intervals.can_be_read_again(_interval(case, begun), seen.watermark, seen.source)


def giving_up(case: Case) -> Case:
    """Gives up a pending interval that can no longer be read as it was: a file was fixed, a cursor's type changed.
    Nothing of it is in the target, so it is abandoned, and the current rows are read under the next sequence number; by
    a full refresh if it was one."""
    is_refresh = case.begun_refresh is not None
    return replace(case, state=replace(case.state, given_up=True), full_refresh=is_refresh)


def finish(case: Case, begun: Intent, now: str) -> Recover | RecordOnly | Stopped:
    """Retries the pending sequence number with its original interval; if the target already carries it, only records
    it. A due comparison of keys is done now, since it is not part of the interval."""
    table = replace(planned_table(case), definition=begun.definition)
    is_refresh = case.begun_refresh is not None
    interval = _interval(case, begun)
    if case.is_committed:
        return RecordOnly(
            table=table,
            reason=f"sequence number {begun.seq} of run {begun.run_id} is committed: it is only recorded",
            seq=begun.seq,
            interval=interval,
            columns=_committed_columns(case, begun),
            refresh=is_refresh,
        )
    readable = _with_written_rows(case, interval)
    if isinstance(readable, Stop):
        return stopped(case, readable)
    columns = columns_of(case)
    if stop := refuse_columns(case, columns):
        return stopped(case, stop, columns)
    due = checks_deletes(case, now) and not interval.is_backfill and not reads_changes(interval)
    return Recover(
        table=table,
        reason=f"finishes sequence number {begun.seq} of the interrupted run {begun.run_id}"
        + (", a full refresh" if is_refresh else ""),
        seq=begun.seq,
        interval=readable,
        columns=columns,
        checks=checks.checks(case, check_deletes=due, reads_nothing=interval.upper is None),
        write_full=case.replaces,
        refresh=is_refresh,
        check_deletes=due,
        destructive=replaced_content(case),
        notes=(
            *checks.of_nulls(case.table, columns),
            *taking_over(case),
            *filter(None, [describe_repetition(begun, case.spec_path, case.table.id)]),
        ),
    )


def _committed_columns(case: Case, begun: Intent) -> Columns:
    """Those with which the sequence number was committed: source and target may have others since. Where the intent
    lacks them, those of now."""
    intended, before = begun.columns, case.state
    if intended is None:
        return Columns(read_columns(case.table, known_columns(case) or ()), columns_to_record(case))
    return Columns(
        source=before.schema if intended.source is None else intended.source,
        target=before.target_columns if intended.target is None else intended.target,
    )


def describe_repetition(begun: Intent, spec_path: str, table_id: str) -> str:
    """Describes how many runs have attempted the pending sequence number without success, since when, and the two
    possible next steps: the output of a single run would not show this. Empty after a single attempt."""
    if begun.runs < 2:
        return ""
    giving_up = state_command("set", spec_path, table_id, "--accept-definition")
    return (
        f"sequence number {begun.seq} has been tried by {begun.runs} runs since {begun.at[:19]}Z: fix the cause, or "
        f"give it up with {giving_up}, which reads its rows again under the next sequence number"
    )


def read_since(
    case: Case, begun: Intent, finished: Recover | RecordOnly, now: str, estimate: Estimate
) -> Load | Stopped | None:
    """Returns what the next run would do once ``finished`` is recorded; None if nothing. The pending sequence number
    already reads the current rows of a source without positions, unless it is committed."""
    if case.backfill is not None and _reads_same(find(case), begun.interval):
        return None
    after = recorded(case, begun, finished)
    step: Load | UpToDate | Stopped | None
    match finished:
        case RecordOnly():
            step = read(after, now, estimate)
        case Recover():
            step = _above(after, begun, finished, estimate)
        case _:
            assert_never(finished)
    if step is None or isinstance(step, UpToDate):
        return None
    if isinstance(step, Load) and not step.creates:
        step = replace(step, reason=f"{step.reason}, once sequence number {begun.seq} is recorded")
    seen = replace(step.table.seen, commit=finished.table.seen.commit)
    return replace(step, table=replace(step.table, seen=seen), follows=begun.seq)


def _above(after: Case, begun: Intent, finished: Recover, estimate: Estimate) -> Load | Stopped | None:
    """The step for newer rows. Its columns are those that ``finished`` reads, writes and leaves in the target; foreign
    columns only if all content is replaced again."""
    match finding := find(after):
        case Stop():
            return stopped(after, finding)
        case Idle():
            return None
        case Work():
            if after.backfill is None and _is_same(finding.interval.upper, begun.interval.upper):
                return None  # late rows, rows without a cursor, the whole source: ``finished`` reads them all
            table = planned_table(after)
            table = replace(table, seen=replace(table.seen, exists=True))
            columns = left_behind(finished.columns, is_replaced=after.replaces)
            return working(after, table, columns, finding, estimate, check_deletes=False)


def left_behind(columns: Columns | RuntimeColumns, *, is_replaced: bool) -> Columns | RuntimeColumns:
    """The columns of a commit that follows one with ``columns``, in the target as that leaves it."""
    target = columns.target if is_replaced else columns.recorded
    if isinstance(columns, RuntimeColumns):
        return RuntimeColumns(columns.source, target)
    names = {column.name for column in target}
    return Columns(columns.source, target, tuple(part for part in columns.projection if part.column.name in names))


def recorded(case: Case, begun: Intent, finished: Recover | RecordOnly) -> Case:
    """The case once ``finished`` is recorded; the target then has the columns that ``finished`` leaves there."""
    table_id, observed = case.table.id, case.observed
    landed = observed.commit if case.is_committed else None
    commit = landed or Commit("", table_id, begun.seq, begun.id, begun.target_id, begun.interval.upper)
    record = Recorded(
        finished.table.definition,
        finished.columns.source,
        finished.columns.recorded,
        begun.run_id,
        upstream_shape=case.state.upstream_shape,
    )
    document = documents.with_commit(StateDocument("", tables={table_id: case.state}), commit, record)
    since = replace(observed, commit=commit, file_log=observed.pending_log or observed.file_log, pending_log=None)
    return replace(case, state=document.table(table_id), observed=since)


def _reads_same(asked: Finding, begun: Interval) -> bool:
    """Whether the pending sequence number is the range that is asked for."""
    if not isinstance(asked, Work) or not begun.is_backfill:
        return False
    return (asked.interval.read_from, asked.interval.read_to) == (begun.read_from, begun.read_to)


def _is_same(one: Position | None, other: Position | None) -> bool:
    """Whether two positions are equal, ignoring ties."""
    if isinstance(one, CursorPosition) and isinstance(other, CursorPosition):
        return one.at == other.at
    return one == other


def _interval(case: Case, begun: Intent) -> Interval:
    """The pending interval, with its files filled in if only the file log lists them."""
    log = case.observed.pending_log
    if begun.interval.files_read is not None or log is None:
        return begun.interval
    return replace(begun.interval, files=log.entries[-1].read)


def _with_written_rows(case: Case, interval: Interval) -> Interval | Stop:
    """With what is known now of the rows at both ends."""
    source, watermark = case.observed.source, case.observed.watermark
    if source is None:
        return interval
    newest = watermark.position if watermark is not None else None
    if isinstance(interval.upper, CursorPosition) and isinstance(newest, CursorPosition):
        known = interval.is_complete or is_complete(case.table, interval.upper.at, newest.at)
        interval = replace(interval, is_complete=known)
    lower = with_columns(interval.lower, case.state.schema, case.table, source)
    return with_written_rows(replace(interval, lower=lower), case.table, source, case.spec_path)
