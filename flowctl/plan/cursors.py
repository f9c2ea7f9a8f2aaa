"""The interval of a table with a cursor: from the recorded position to the source's newest row, or why there is none.

A position claims that the source's rows up to it are exactly those that were read. If the source shows otherwise,
append stops, because it can neither retract rows nor distinguish old ones from new ones. merge and scd2 read everything
again, which has no effect on unchanged rows.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import assert_never

from flowctl.connectors.source import HighWatermark
from flowctl.model.interval import Interval
from flowctl.model.mode import Mode
from flowctl.model.position import CursorPosition, Position, Ties
from flowctl.model.table_info import RowEstimate, TableInfo
from flowctl.model.types import DATE, DataType, keeps_order, short
from flowctl.model.value import PythonValue, TypedValue
from flowctl.observe.lower_bound import before, read_from, retyped
from flowctl.plan import ties
from flowctl.plan.commands import state_command
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.spec.spec import Cursor, TableSpec

#: A cursor this far ahead of the source's clock is an error; it would freeze the table until that time.
FUTURE = dt.timedelta(minutes=5)
#: Times without a zone may be in any zone: the largest offset ahead of UTC.
_FURTHEST_ZONE = dt.timedelta(hours=14)


def cursor_interval(
    table: TableSpec,
    cursor: Cursor,
    info: TableInfo,
    watermark: HighWatermark,
    recorded: Position | None,
    spec_path: str,
) -> Finding:
    column = info.column(cursor.column)
    if column is None:
        return Stop(
            f'the cursor column "{cursor.column}" is not in the source',
            "Name a column that exists",
            "cursor.column",
        )
    if watermark.has_null_cursor and cursor.nulls == "fail":
        return Stop(
            f'nulls: fail — rows with a null "{cursor.column}" would never be read',
            "Fill them, or set cursor.nulls to always or skip",
            "cursor.nulls",
        )
    if isinstance(recorded, CursorPosition) and not keeps_order(column.type, recorded.at.type):
        return _other_order(table, cursor, recorded.at, column.type, spec_path)
    try:
        lower = retyped(recorded.at, column.type) if isinstance(recorded, CursorPosition) else None
        start = read_from(cursor, column.type, recorded)
        first = read_from(cursor, column.type, None)
    except (ValueError, ArithmeticError) as error:
        path = "cursor.lag" if cursor.lag and recorded else "cursor.start"
        return Stop(f'"{cursor.column}" is {short(column.type)}: {error}', f"Correct {path} or the column", path)
    since = replace(recorded, at=lower) if isinstance(recorded, CursorPosition) and lower is not None else None
    found = _found(_Bounds(table, cursor, watermark, since, start, first, spec_path))
    if isinstance(found, Work):
        interval = with_written_rows(found.interval, table, info, spec_path)
        if isinstance(interval, Stop):
            return interval
        return replace(found, interval=interval, notes=(*found.notes, *_warnings(table.mode, watermark)))
    return found


def _other_order(table: TableSpec, cursor: Cursor, at: TypedValue, now: DataType, spec_path: str) -> Stop:
    """Stops because the column's type has changed, so it is unknown on which side of the position its rows are."""
    was = f"was {short(at.type)} when {at.text()} was recorded"
    position = f'{{"kind": "cursor", "type": "{now}", "value": "VALUE"}}'
    again = ["--append-again"] if table.mode == "append" else []
    return Stop(
        f'the cursor column "{cursor.column}" is {short(now)}, {was}: its rows are now ordered differently',
        f"Read all again with --full-refresh {table.id}; or give the position that it continues from as one of the "
        f"new type: {state_command('set', spec_path, table.id, '--position', position, *again)}",
        "cursor.column",
    )


def _warnings(mode: Mode, watermark: HighWatermark) -> Iterator[str]:
    """Warnings about conditions at the source that may lose rows, with the key that prevents it."""
    if watermark.zone:
        yield f"cursor.delay is counted in {watermark.zone}, the source's own time zone; cursor.zone names another one"
    if watermark.writers:
        who = "1 open transaction has" if watermark.writers == 1 else f"{watermark.writers:,} open transactions have"
        key = "cursor.delay leaves rows" if mode == "append" else "cursor.lag reads rows"
        until = "until no more can come before them" if mode == "append" else "again that may have come late"
        yield f"{who} written to it: rows committed later with a lower cursor are not read; {key} {until}"


def with_written_rows(interval: Interval, table: TableSpec, info: TableInfo, spec_path: str) -> Interval | Stop:
    """Returns the interval with the current versions of the columns that identify the rows append has written at its
    lower bound; or a stop if these can no longer be identified."""
    match interval.lower:
        case CursorPosition(at, Ties() as written) if table.mode == "append":
            found = ties.as_of_now(written, table, info)
            if isinstance(found, Ties):
                return replace(interval, lower=CursorPosition(at, found))
            reason = f'rows at "{interval.cursor_column}" {at.text()} that are new cannot be told from written ones'
            return Stop(f"{reason}: {found}", ties.taking_all_for_written(table.id, at, spec_path), "cursor")
        case _:
            return interval


def new_rows(counted: RowEstimate, interval: Interval, rows_at_position: int | None) -> RowEstimate:
    """Subtracts the rows that append has already written at the lower bound from a count that includes them."""
    lower = interval.lower
    if counted.method != "count" or counted.value is None or not rows_at_position:
        return counted
    if not isinstance(lower, CursorPosition) or interval.read_from != lower.at:
        return counted
    written = lower.ties.rows if lower.ties is not None else None
    left_out = rows_at_position if written is None else min(written, rows_at_position)
    return replace(counted, value=max(0, counted.value - left_out))


@dataclass(frozen=True)
class _Bounds:
    """``since`` is the recorded position, ``start`` where this read begins, ``first`` where a first run begins."""

    table: TableSpec
    cursor: Cursor
    watermark: HighWatermark
    since: CursorPosition | None
    start: TypedValue | None
    first: TypedValue | None
    spec_path: str

    def to(self, upper: TypedValue) -> Interval:
        return Interval(
            lower=self.since,
            upper=CursorPosition(upper),
            cursor_column=self.cursor.column,
            read_from=self.start,
            read_to=_last_read(self.table.mode, upper),
            include_null=self.cursor.nulls == "always",
            lag_seconds=self.cursor.lag,
            is_complete=ties.is_complete(self.table, upper, self.newest),
        )

    def again(self, since: CursorPosition) -> Interval:
        return replace(self.to(since.at), upper=since)

    @property
    def newest(self) -> TypedValue | None:
        return self.watermark.position.at if isinstance(self.watermark.position, CursorPosition) else None

    @property
    def has_null_rows(self) -> bool:
        """Whether rows with a null cursor exist and are to be read."""
        return self.watermark.has_null_cursor and self.cursor.nulls == "always"


def _last_read(mode: Mode, upper: TypedValue) -> TypedValue | None:
    match mode:
        case "append" | "truncate":
            return upper
        case "merge" | "scd2":
            return None
        case _:
            assert_never(mode)


def _found(bounds: _Bounds) -> Finding:
    newest, since = bounds.newest, bounds.since
    if newest is not None and (refused := refuse_newest(bounds.cursor, newest, bounds.watermark.clock)):
        return refused
    if since is None:
        return _no_newest(bounds) if newest is None else _first_run(bounds, newest)
    if bounds.table.mode == "append" and (
        refused := _more_came(bounds, since) or _written_rows_are_gone(bounds, since)
    ):
        return refused
    return _no_newest(bounds) if newest is None else _between(bounds, since, newest)


def _first_run(bounds: _Bounds, newest: TypedValue) -> Finding:
    if bounds.start is not None and newest < bounds.start:
        return Idle(f"no rows from cursor.start {bounds.start.text()} on")
    return Work(bounds.to(newest), "first run")


def _no_newest(bounds: _Bounds) -> Finding:
    """No row has a cursor value, or `cursor.delay` holds back all that do."""
    since, name, has_younger = bounds.since, bounds.cursor.column, bounds.watermark.has_younger
    if bounds.has_null_rows and since is None and not has_younger:
        return Stop(f'every "{name}" is null: there is no position to record', "Leave the cursor out", "cursor")
    if since is None:
        return Idle("all rows are younger than cursor.delay" if has_younger else "the source has no rows")
    had = f"it had some up to {since.at.text()}"
    notes = (f"no rows but some younger than cursor.delay; {had}" if has_younger else f"the source has no rows; {had}",)
    if bounds.has_null_rows:
        return Work(bounds.again(since), f'rows with a null "{name}"', notes)
    return Idle("no new rows", since, notes)


def _between(bounds: _Bounds, since: CursorPosition, newest: TypedValue) -> Finding:
    if since.at < newest:
        purged = f"the source has deleted all rows up to {since.at.text()} (allow_purged)"
        return Work(bounds.to(newest), "new rows", (purged,) if _is_purged(bounds, since) else ())
    notes: tuple[str, ...] = ()
    if newest < since.at and bounds.table.mode != "append":
        notes = (f"the newest row, at {since.at.text()}, is gone; the newest now is {newest.text()}",)
        if refused := _moved_back(bounds.cursor, since.at, newest):
            return refused
        if not bounds.cursor.lag:
            everything = replace(bounds.to(newest), lower=None, read_from=bounds.first)
            return Work(everything, "reads everything again: a row may have moved back behind the position", notes)
    if bounds.has_null_rows:
        return Work(bounds.again(since), f'rows with a null "{bounds.cursor.column}"', notes)
    if again := _reason_to_look_again(bounds, since):
        return Work(bounds.again(since), again, notes)
    return Idle("no new rows", since, notes)


def _reason_to_look_again(bounds: _Bounds, since: CursorPosition) -> str | None:
    """Returns why there may be new rows although the newest cursor value is not above the recorded one."""
    if bounds.cursor.lag:
        return "no newer rows; looks again for late ones (lag)"
    if since.at.type == DATE and (bounds.table.mode != "append" or since.ties is not None):
        return "no newer day; looks again for rows of the same day"
    there, written = bounds.watermark.rows_at_position, since.ties.rows if since.ties is not None else None
    if bounds.table.mode == "append" and there is not None and written is not None and there > written:
        return f'no newer rows, but more than were written at "{bounds.cursor.column}" {since.at.text()}'
    return None


def _more_came(bounds: _Bounds, since: CursorPosition) -> Stop | None:
    more = (bounds.watermark.rows_at_position or 0) - (since.rows or 0)
    return (
        ties.more_came(bounds.table, since.at, more, bounds.spec_path) if since.rows is not None and more > 0 else None
    )


def _written_rows_are_gone(bounds: _Bounds, since: CursorPosition) -> Stop | None:
    """Stops if the source no longer holds any row at append's position. The rows below it are then unlikely to be the
    written ones and may include new ones."""
    newest, name, at = bounds.newest, bounds.cursor.column, since.at
    if bounds.watermark.rows_at_position or _is_purged(bounds, since):
        return None
    steps = ties.starting_over(bounds.table, at, newest, bounds.spec_path)
    if newest is not None and newest < at:
        reason = f'the newest "{name}" is {newest.text()}, below the recorded {at.text()}, where no row exists any more'
        return Stop(f"{reason}: {ties.CAUSES}", steps, "cursor")
    expected = since.ties is not None and since.ties.counts and not since.ties.may_be_gone
    if expected and bounds.watermark.rows_at_position == 0:
        return Stop(ties.rows_are_gone(name, at), steps, "cursor")
    return None


def _is_purged(bounds: _Bounds, since: CursorPosition) -> bool:
    """Whether the source deletes old rows (``allow_purged``) and all remaining rows are above the position: none of
    them can have been written or skipped."""
    is_above = bounds.newest is None or since.at < bounds.newest
    return bounds.table.guard.allow_purged and not bounds.watermark.has_older and is_above


def _moved_back(cursor: Cursor, recorded: TypedValue, newest: TypedValue) -> Stop | None:
    if not cursor.lag or not newest < before(recorded, cursor.lag):
        return None
    return Stop(
        f'the newest "{cursor.column}" is {newest.text()}, more than lag before the recorded {recorded.text()}',
        "Read all again with --full-refresh if the source was restored, or `flowctl state set` to the right position",
        "cursor",
    )


def refuse_newest(cursor: Cursor, newest: TypedValue, clock: dt.datetime | None) -> Stop | None:
    if _is_infinite(newest.value):
        problem = "is infinite or not a number"
    elif clock is not None and _is_future(newest.value, clock):
        problem = f"is in the future; the source's clock says {clock.isoformat(timespec='seconds')}"
    else:
        return None
    return Stop(
        f'the newest "{cursor.column}", {newest.text()}, {problem}: no later row would be seen',
        "Correct that row in the source, or leave it out with `where`",
        "cursor",
    )


def _is_infinite(value: PythonValue) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case Decimal():
            return not value.is_finite()
        case _:
            return False


def _is_future(value: PythonValue, clock: dt.datetime) -> bool:
    latest = clock.astimezone(dt.UTC).replace(tzinfo=None) + _FURTHEST_ZONE + FUTURE
    match value:
        case dt.datetime():
            return value > (clock + FUTURE if value.tzinfo is not None else latest)
        case dt.date():
            return value > latest.date()
        case _:
            return False
