"""A table that reads: its columns, interval and guards, and the resulting step."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator
from dataclasses import replace

from flowctl.model import position
from flowctl.model.commit import Intent
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, OffsetsPosition, Position, VersionPosition
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.sidecars import OBSERVED
from flowctl.model.slices import count_slices
from flowctl.model.step import Load, PlannedTable, Progress, SeenTarget, Stopped, UpToDate
from flowctl.model.table_info import Estimate, RowEstimate, TableInfo
from flowctl.observe.lower_bound import read_from
from flowctl.plan import backfill, checks, intervals
from flowctl.plan.case import Case
from flowctl.plan.column_names import dropped_exclusions
from flowctl.plan.commands import BLANK
from flowctl.plan.cursors import new_rows
from flowctl.plan.delete_flag import flag_notes
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.plan.projection import read_columns
from flowctl.plan.refusals import refuse_columns
from flowctl.plan.shape import known_columns, shape
from flowctl.plan.ties import with_columns
from flowctl.plan.versions import reads_changes
from flowctl.spec.spec import Cursor, DetectMissingKeys
from flowctl.text import counted


def rfc3339(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def planned_table(case: Case) -> PlannedTable:
    table, target, commit = case.table, case.observed.target, case.observed.commit
    carried = commit.name if commit else ""
    return PlannedTable(
        id=table.id,
        mark=table.mark,
        source=str(table.source),
        target=str(table.target),
        mode=table.mode,
        key=table.key,
        needs=tuple(sorted(case.upstream)),
        via=checks.via(table),
        definition=case.definition,
        progress=Progress(case.state.seq, case.state.position),
        seen=SeenTarget(True, target.identity, target.version, target.shape, carried)
        if target
        else SeenTarget(commit=carried),
    )


def stopped(case: Case, stop: Stop, columns: Columns | RuntimeColumns | None = None) -> Stopped:
    """``columns`` are those that were evaluated."""
    return Stopped(
        table=replace(planned_table(case), mark=stop.mark or case.table.mark_of(stop.path)),
        reason=stop.reason,
        hint=stop.hint,
        by=stop.by,
        changes=columns.changes if isinstance(columns, Columns) else (),
        checks=stop.checks,
    )


def columns_of(case: Case) -> Columns | RuntimeColumns:
    columns = known_columns(case)
    if columns is not None:
        return shape(case, columns)
    source, target = case.observed.source, case.observed.target
    return RuntimeColumns(
        source=read_columns(case.table, source.columns) if source else (),
        target=target.columns if target else (),
    )


def read(case: Case, now: str, estimate: Estimate) -> Load | UpToDate | Stopped:
    """Decides what the table reads and changes, or why it does nothing."""
    columns = columns_of(case)
    finding = find(case)
    # The interval first: no column policy helps if the cursor's order has changed.
    if stop := finding if isinstance(finding, Stop) else refuse_columns(case, columns):
        return stopped(case, stop, columns)
    due = _compares_keys_now(case, finding, now)
    match finding:
        case Idle(_, upper, notes) if due and upper is not None:
            work = Work(_only_deletes(case, upper), "looks for deleted keys", notes)
        case Idle(reason, _, notes):
            return _up_to_date(case, columns, reason, notes)
        case Work():
            work = finding
    return working(case, planned_table(case), columns, work, estimate, check_deletes=due)


def _up_to_date(case: Case, columns: Columns | RuntimeColumns, reason: str, notes: tuple[str, ...]) -> UpToDate:
    """No change is applied, so the columns are the target's current ones: those that dependent SQL tables find."""
    target = case.observed.target
    if isinstance(columns, Columns):
        if columns.statements and target:
            notes = (*notes, "schema changes are applied with the next rows")
        columns = replace(columns, target=target.columns if target else columns.target, statements=())
    return UpToDate(table=planned_table(case), reason=reason, columns=columns, notes=notes)


def working(
    case: Case,
    table: PlannedTable,
    columns: Columns | RuntimeColumns,
    work: Work,
    estimate: Estimate,
    *,
    check_deletes: bool,
) -> Load | Stopped:
    guarded = checks.checks(case, check_deletes=check_deletes, reads_nothing=work.interval.upper is None)
    if stop := checks.failed(guarded):
        return stopped(case, stop, columns)
    batch_rows = _batch_rows(case, work.interval)
    return Load(
        table=table,
        reason=("full refresh" if case.full_refresh else work.reason) + _commits(work.interval, batch_rows),
        seq=max(case.state.next_seq, (case.observed.commit.seq if case.observed.commit else 0) + 1),
        interval=work.interval,
        columns=columns,
        rows=_rows(case, work, estimate),
        checks=guarded,
        write_full=case.replaces,
        refresh=case.full_refresh,
        check_deletes=check_deletes,
        destructive=replaced_content(case),
        notes=(
            *work.notes,
            *checks.of_nulls(case.table, columns),
            *_giving_up(case),
            *taking_over(case),
            *_maintenance(case),
            *dropped_exclusions(case),
            *flag_notes(case),
        ),
        batch_rows=batch_rows,
    )


def _batch_rows(case: Case, interval: Interval) -> int | None:
    """How many messages one commit takes, if there must be several. Content that is there is replaced in one."""
    rows = case.table.batch_rows or case.rules.batch_rows
    is_replaced = case.replaces and case.observed.target is not None
    return None if is_replaced or count_slices(interval, rows) == 1 else rows


def _commits(interval: Interval, batch_rows: int | None) -> str:
    if batch_rows is None:
        return ""
    return f", in {count_slices(interval, batch_rows):,} commits of at most {counted(batch_rows, 'message')}"


def find(case: Case) -> Finding:
    if case.backfill is not None:
        return backfill.find(case, case.backfill)
    recorded = None if case.full_refresh else case.state.position
    if case.is_sql:
        waiting = sorted(table_id for table_id, seq in case.sequences.items() if seq == 0)
        if waiting:
            names = ", ".join(waiting)
            return Idle(f"{names} has no rows yet", notes=(f"runs once {names} has rows",))
        return intervals.find_upstream(case.sequences, recorded)
    source, watermark = case.observed.source, case.observed.watermark
    assert source is not None and watermark is not None, "stops has dealt with what was not observed"
    recorded = with_columns(recorded, case.state.schema, case.table, source)
    log = None if case.full_refresh else case.observed.file_log
    found = intervals.find(case.table, source, watermark, recorded, case.observed.positions, case.spec_path, log)
    if isinstance(found, Idle) and case.full_refresh and case.table.cursor is not None:
        return _without_rows(case, case.table.cursor, source, found)
    is_asked = case.state.replay is not None and case.table.reads_letters_again
    return _with_letters(case, found) if is_asked and not case.full_refresh else found


def _without_rows(case: Case, cursor: Cursor, source: TableInfo, found: Idle) -> Finding:
    """A full refresh that finds no rows acts on those that are there, as it does without a cursor."""
    column = source.column(cursor.column)
    if column is None or case.observed.target is None:
        return found
    if not (case.replaces or isinstance(case.table.deletes, DetectMissingKeys)):
        return found
    interval = Interval(None, None, cursor.column, read_from=read_from(cursor, column.type, None))
    left = f"{found.reason}: none is left in {case.table.target}" if case.replaces else found.reason
    return Work(interval, "full refresh", (*found.notes, left))


def _with_letters(case: Case, found: Finding) -> Finding:
    """Dead letters are read again with the new messages, or alone."""
    assert case.state.replay is not None
    replays = f"replays {counted(case.state.replay.letters, 'dead letter')}"
    match found:
        case Work(interval, reason):
            work = replace(found, reason=f"{reason}, {replays}")
        case Idle(_, upper, notes) if upper is not None:
            interval = Interval(upper, upper)
            work = Work(interval, replays, notes)
        case _:
            return found
    return replace(work, interval=replace(interval, letters=case.state.seq))


def _compares_keys_now(case: Case, finding: Finding, now: str) -> bool:
    """Changes by version report deletions themselves: keys are compared if all rows are read again."""
    if case.backfill is not None:
        return False
    if not isinstance(_upper(finding), VersionPosition):
        return checks_deletes(case, now)
    if not isinstance(finding, Work) or reads_changes(finding.interval):
        return False
    return isinstance(case.table.deletes, DetectMissingKeys) and compares_keys(case)


def _upper(finding: Finding) -> Position | None:
    match finding:
        case Work(interval):
            return interval.upper
        case Idle(_, upper):
            return upper
        case _:
            return None


def checks_deletes(case: Case, now: str) -> bool:
    """Whether a comparison of keys is due."""
    return compares_keys(case) and checks.deletes_due(case.table, case.state.deletes_checked_at, now)


def compares_keys(case: Case) -> bool:
    """Whether missing keys can be detected: the target has the key columns."""
    target = case.observed.target
    if target is None or case.lacks_history:
        return False
    return {*case.table.key} <= {column.name for column in target.columns}


def _only_deletes(case: Case, upper: Position) -> Interval:
    """The interval if only keys are compared: from the position to itself."""
    cursor = case.table.cursor
    match upper:
        case CursorPosition(at) if cursor is not None:
            return Interval(upper, upper, cursor.column, read_from=at, lag_seconds=cursor.lag)
        case _:
            return Interval(upper, upper)


def _rows(case: Case, work: Work, estimate: Estimate) -> RowEstimate:
    if estimate == "none":
        return RowEstimate(method="none")
    watermark, source = case.observed.watermark, case.observed.source
    lower, upper = work.interval.lower, work.interval.upper
    if upper is None:
        return RowEstimate(0, "count")
    if watermark is None or (work.interval.letters is not None and lower == upper):
        return RowEstimate()
    if isinstance(lower, OffsetsPosition) and isinstance(upper, OffsetsPosition):
        return RowEstimate(upper.messages_since(lower), "stats")
    if isinstance(lower, VersionPosition) and watermark.changes is not None:
        return watermark.changes.rows
    if case.table.mode == "append" and not isinstance(upper, VersionPosition):
        return new_rows(watermark.rows, work.interval, watermark.rows_at_position)
    is_again = (
        case.state.position is not None and not case.full_refresh and isinstance(watermark.position, CursorPosition)
    )
    if is_again and work.interval.lower is None and source is not None:
        return source.rows  # everything is read; the count covers only rows above the position
    return watermark.rows


def _maintenance(case: Case) -> Iterator[str]:
    """Notes maintenance that is due; never for a table whose content is replaced."""
    target = case.observed.target
    if target is not None and not case.replaces and (due := case.rules.maintenance_due(target)):
        command = f"flowctl maintain {case.spec_path} --select {shlex.quote(case.table.id)}"
        yield f"due for maintenance: {due}. Run `{command}`"


def _giving_up(case: Case) -> Iterator[str]:
    intent = case.state.intent
    if intent is not None and case.is_committed:
        yield f"{_begun(intent)}, is committed in the target: it is recorded first"
    elif intent is not None:
        yield f"{_begun(intent)}, is given up: it is committed as void first"


def _begun(intent: Intent) -> str:
    return f"sequence number {intent.seq}, begun by run {intent.run_id}"


def replaced_content(case: Case) -> str:
    """Describes what a full refresh replaces; empty if nothing exists."""
    target = case.observed.target
    is_anew = case.full_refresh or case.begun_refresh is not None
    if target is None and is_anew and case.observed.sidecars.get(OBSERVED) is not None:
        return f"the observations in {case.table.target}{OBSERVED}: a new history begins"
    if not case.rebuilds or target is None:
        return ""
    known = target.rows.value
    return f"everything in {case.table.target}" + (f" ({known:,} rows)" if known is not None else "")


def taking_over(case: Case) -> Iterator[str]:
    begun = case.begun_refresh
    if case.state.append_again and case.table.mode == "append" and not case.full_refresh:
        since = position.describe(case.state.position)
        yield f"appends all above {since}, including what {case.table.target} already has (state set)"
    has_history = case.table.mode == "scd2" and case.observed.target is not None and not case.replaces
    if (case.full_refresh or begun) and has_history:
        yield "reads everything again; the existing history is kept"
    if begun is not None:
        way = case.state_command("set", "--position", BLANK)
        yield f"the full refresh was begun by run {begun.run_id}; {way} gives it up and continues from there"
