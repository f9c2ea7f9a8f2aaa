"""A range of the cursor that is read again: the interval, whose position is the recorded one, or why there is none.

Rows above the position are left to the next run, which begins there. Deletions are not derived from a part of the rows,
and `lag`, `delay` and `nulls` do not matter: the range is read as it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flowctl.model.backfill import Backfill
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition
from flowctl.model.types import TIMESTAMP, keeps_order, short
from flowctl.model.value import TypedValue
from flowctl.observe.lower_bound import read_from, retyped
from flowctl.observe.ranges import Range, range_of
from flowctl.plan.case import Case
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.spec.spec import DetectMissingKeys, TableSpec


def find(case: Case, backfill: Backfill) -> Finding:
    """What of the table ``backfill`` reads. The source was observed."""
    table, info, recorded = case.table, case.observed.source, case.state.position
    if stop := _refuse(case):
        return stop
    assert table.cursor is not None
    assert info is not None
    name = table.cursor.column
    column = info.column(name)
    if column is None:
        return Stop(f'the cursor column "{name}" is not in the source', "Name a column that exists", "cursor.column")
    if not isinstance(recorded, CursorPosition):
        what = f"{table.id} has no position yet, so there is nothing to read again"
        return Stop(what, "Run it without --from and --to: the first run reads everything", "cursor")
    if not keeps_order(column.type, recorded.at.type):
        what = f'the cursor column "{name}" is {short(column.type)}, was {short(recorded.at.type)}'
        return Stop(what, f"Read all again with --full-refresh {table.id}", "cursor.column")
    position = retyped(recorded.at, column.type)
    try:
        range = range_of(backfill, column.type, position, table.cursor.start)
        start = read_from(table.cursor, column.type, None)
    except (ValueError, ArithmeticError) as error:
        what = f'{backfill} is no range of "{name}", which is {short(column.type)}: {error}'
        moment = "2026-10-01T12:00:00" + "Z" * (column.type == TIMESTAMP)
        return Stop(what, f"Give values of that type, as in 2026-10-01, {moment} or 1000", "cursor.column")
    if range.is_empty:
        return _nothing(case, backfill, range)
    if stop := _refuse_deleted_later(case, range, start):
        return stop
    interval = Interval(
        lower=replace(recorded, at=position),
        upper=replace(recorded, at=position),
        cursor_column=name,
        read_from=range.first,
        read_to=range.last,
        is_backfill=True,
    )
    return Work(interval, "reads a range again", tuple(_notes(case, position.readable(), range)))


def _refuse(case: Case) -> Stop | None:
    table, again = case.table, f"Read all of it again with --full-refresh {case.table.id}"
    if table.mode == "append":
        return Stop("append would write the rows of a range that is read again twice", again, "mode")
    if table.mode == "truncate":
        hint = "Run it without --from and --to, which reads all rows"
        return Stop("truncate replaces all rows, and a range has only some of them", hint, "mode")
    if table.cursor is None:
        return Stop(f"{table.id} has no cursor, so it has no ranges", again)
    return None


def _refuse_deleted_later(case: Case, range: Range, start: TypedValue | None) -> Stop | None:
    """Keys are compared with those of the rows from `cursor.start` on: rows before it do not stay."""
    if not isinstance(case.table.deletes, DetectMissingKeys) or start is None:
        return None
    if range.first is None or not range.first < start:
        return None
    what = (
        f"the range begins at {range.first.readable()}, below cursor.start {start.readable()}: the next comparison of "
        "keys (deletes: missing_keys) would delete its rows below cursor.start again"
    )
    return Stop(what, "Set cursor.start to where the range begins, or begin the range there", "cursor.start")


def _nothing(case: Case, backfill: Backfill, range: Range) -> Finding:
    assert isinstance(case.state.position, CursorPosition)
    if range.first is not None and case.state.position.at < range.first:
        what = f"the range begins above {case.state.position.at.readable()}, where the next run continues"
        return Idle(what, case.state.position)
    what = f"{backfill} is empty: --from is included, --to is not"
    return Stop(what, "Give a --to that is above --from", "cursor")


def _notes(case: Case, position: str, range: Range) -> Iterator[str]:
    yield f"the position stays at {position}"
    if range.is_cut:
        yield "rows above it are left to the next run"
    if replacing := _replacing(case.table):
        source, renamed = case.observed.source, case.table.columns.rename
        primary = {renamed.get(name, name) for name in source.primary_key} if source else set()
        if not (primary and primary <= set(case.table.key)):
            yield f"if the source has several rows of one key, those of the range {replacing}"


def _replacing(table: TableSpec) -> str:
    """What a row of the range does that is older than others of its key; empty if a history places it by its time."""
    if table.mode == "merge":
        return "replace newer ones"
    return "become current in place of newer ones" if table.valid_from == "now" else ""
