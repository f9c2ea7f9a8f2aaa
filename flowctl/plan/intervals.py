"""What a step reads: the interval from the recorded position to the source's head, or why there is none."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, assert_never

from flowctl.connectors.base import Head
from flowctl.model.file_log import FileLog, log_of
from flowctl.model.interval import Interval
from flowctl.model.position import (
    CursorPosition,
    FilesPosition,
    FileStamp,
    NoPosition,
    Position,
    Ties,
    UpstreamPosition,
)
from flowctl.model.step import Mode
from flowctl.model.table_info import TableInfo
from flowctl.model.types import DATE, short
from flowctl.model.value import TypedValue
from flowctl.observe.bounds import before, read_from, retyped
from flowctl.observe.world import PositionKind
from flowctl.plan.ties import as_of_now, next_steps
from flowctl.spec.spec import Cursor, TableSpec

#: A cursor this far beyond the source's clock is a mistake; it would freeze the table until that time has come.
FUTURE = dt.timedelta(minutes=5)
#: Times without a zone may be of any zone: the most that one is ahead of UTC.
_FURTHEST_ZONE = dt.timedelta(hours=14)


@dataclass(frozen=True)
class Work:
    """Something to read. ``reason`` says why, ``notes`` warn."""

    interval: Interval
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Idle:
    """Nothing to read; ``upper`` is where the table stands (None: nowhere yet)."""

    reason: str
    upper: Position | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A guard stops the table: reading on would lose or freeze something. ``path`` is the spec key behind it."""

    guard: str
    reason: str
    hint: str
    path: str = "cursor"


Finding = Work | Idle | Refused


def find(
    table: TableSpec,
    info: TableInfo,
    head: Head,
    recorded: Position | None,
    positions: PositionKind,
    spec_path: str = "SPEC",
    log: FileLog | None = None,
) -> Finding:
    """The interval of a table with a source of its own. ``recorded`` is where state says it stands; None reads from
    the beginning. ``spec_path`` is for the commands in hints, ``log`` holds the files up to ``recorded``, where that
    does not list them."""
    if table.cursor is not None:
        return _cursor(table, table.cursor, info, head, recorded, spec_path)
    if positions == "files" and isinstance(head.position, FilesPosition | None):
        return _files(table, head.position or FilesPosition(()), recorded, log or log_of(table.id, recorded))
    return Work(Interval(None, NoPosition()), "always reads in full")


def find_upstream(sequences: Mapping[str, int], recorded: Position | None) -> Finding:
    """The interval of a SQL table: ``sequences`` is the number each table it reads will have when it runs."""
    upper = UpstreamPosition(tuple(sorted(sequences.items())))
    if not sequences:
        return Work(Interval(None, NoPosition()), "always runs in full")
    if recorded == upper:
        return Idle("nothing changed upstream", upper)
    known = dict(recorded.sequences) if isinstance(recorded, UpstreamPosition) else {}
    moved = sorted(table_id for table_id, seq in sequences.items() if known.get(table_id) != seq)
    reason = "never ran" if recorded is None else f"{', '.join(moved)} changed"
    return Work(Interval(recorded, upper), reason)


def with_written_rows(interval: Interval, table: TableSpec, info: TableInfo, spec_path: str) -> Interval | Refused:
    """The interval with the columns, as the source has them now, that tell which rows at its lower bound append has
    written; or why they no longer do."""
    match interval.lower:
        case CursorPosition(at, Ties() as ties) if table.mode == "append":
            found = as_of_now(ties, table, info)
            if isinstance(found, Ties):
                return replace(interval, lower=CursorPosition(at, found))
            reason = f'rows at "{interval.cursor_column}" {at.text()} that are new cannot be told from written ones'
            return Refused("written rows", f"{reason}: {found}", next_steps(table.id, at, spec_path))
        case _:
            return interval


def same_again(interval: Interval, head: Head | None) -> Refused | None:
    """Whether a pending interval can still be read: every file in it must be there, unchanged."""
    if interval.files_read is None or head is None:
        return None
    there = set(head.position.files) if isinstance(head.position, FilesPosition) else set()
    gone = sorted(stamp.path for stamp in set(interval.files_read) - there)
    if not gone:
        return None
    return Refused(
        "interrupted interval",
        f"the interrupted run read {_some(gone)}, gone or changed since",
        "Put the files back, or give the interval up with `flowctl state set`",
        "from",
    )


def _cursor(
    table: TableSpec, cursor: Cursor, info: TableInfo, head: Head, recorded: Position | None, spec_path: str
) -> Finding:
    column = info.column(cursor.column)
    if column is None:
        return Refused(
            "cursor",
            f'the cursor column "{cursor.column}" is not in the source',
            "Name a column that is there",
            "cursor.column",
        )
    if head.has_null_cursor and cursor.nulls == "fail":
        return Refused(
            "cursor.nulls",
            f'nulls: fail — rows with a null "{cursor.column}" would never be read',
            "Fill them, or set cursor.nulls to always or skip",
            "cursor.nulls",
        )
    try:
        lower = retyped(recorded.at, column.type) if isinstance(recorded, CursorPosition) else None
        start = read_from(cursor, column.type, recorded)
    except (ValueError, ArithmeticError) as error:
        path = "cursor.lag" if cursor.lag and recorded else "cursor.start"
        return Refused(
            "cursor", f'"{cursor.column}" is {short(column.type)}: {error}', f"Correct {path} or the column", path
        )
    since = CursorPosition(lower, recorded.ties) if isinstance(recorded, CursorPosition) and lower is not None else None
    bounds = _Bounds(table.mode, cursor, since, start, head.has_null_cursor and cursor.nulls == "always")
    if not isinstance(head.position, CursorPosition):
        return _no_head(bounds)
    found = _unusable(cursor, head.position.at, head.clock) or _between(bounds, head.position.at)
    if isinstance(found, Work):
        interval = with_written_rows(found.interval, table, info, spec_path)
        return interval if isinstance(interval, Refused) else replace(found, interval=interval)
    return found


@dataclass(frozen=True)
class _Bounds:
    """``since`` is the recorded position, ``start`` where reading begins, ``null_rows`` whether rows without a cursor
    are read too and are there."""

    mode: Mode
    cursor: Cursor
    since: CursorPosition | None
    start: TypedValue | None
    null_rows: bool

    def to(self, upper: TypedValue) -> Interval:
        return Interval(
            lower=self.since,
            upper=CursorPosition(upper),
            cursor_column=self.cursor.column,
            read_from=self.start,
            read_to=_last_read(self.mode, upper),
            include_null=self.cursor.nulls == "always",
            lag_seconds=self.cursor.lag,
        )


def _last_read(mode: Mode, upper: TypedValue) -> TypedValue | None:
    match mode:
        case "append" | "truncate":
            return upper
        case "merge" | "scd2":
            return None
        case _:
            assert_never(mode)


def _no_head(bounds: _Bounds) -> Finding:
    """Nothing has a cursor value."""
    since, name = bounds.since, bounds.cursor.column
    if bounds.null_rows and since is None:
        return Refused(
            "cursor.nulls", f'every "{name}" is null: there is no position to record', "Leave the cursor out"
        )
    if since is None:
        return Idle("the source has no rows")
    notes = (f"the source has no rows; it had some up to {since.at.text()}",)
    if bounds.null_rows:
        return Work(replace(bounds.to(since.at), upper=since), f'rows with a null "{name}"', notes)
    return Idle("no new rows", since, notes)


def _between(bounds: _Bounds, head: TypedValue) -> Finding:
    since = bounds.since
    if since is None:
        if bounds.start is not None and head < bounds.start:
            return Idle(f"no rows from cursor.start {bounds.start.text()} on")
        return Work(bounds.to(head), "first run")
    if since.at < head:
        return Work(bounds.to(head), "new rows")
    if head < since.at and (moved := _moved_back(bounds.cursor, since.at, head)):
        return moved
    gone = (f"the newest row, at {since.at.text()}, is gone; the newest now is {head.text()}",)
    notes = gone if head < since.at else ()
    if bounds.null_rows:
        return Work(replace(bounds.to(since.at), upper=since), f'rows with a null "{bounds.cursor.column}"', notes)
    if again := _reason_to_look_again(bounds.cursor, since.at):
        return Work(replace(bounds.to(since.at), upper=since), again, notes)
    return Idle("no new rows", since, notes)


def _reason_to_look_again(cursor: Cursor, newest: TypedValue) -> str | None:
    """Why rows may have come although the newest cursor value has not moved."""
    if cursor.lag:
        return "no newer rows; looks again for late ones (lag)"
    return "no newer day; looks again for rows of the same day" if newest.type == DATE else None


def _moved_back(cursor: Cursor, recorded: TypedValue, head: TypedValue) -> Refused | None:
    if not cursor.lag or not head < before(recorded, cursor.lag):
        return None
    return Refused(
        "position moved back",
        f'the newest "{cursor.column}" is {head.text()}, more than lag before the recorded {recorded.text()}',
        "If the source was restored: --full-refresh, or `flowctl state set` to the right position",
    )


def _unusable(cursor: Cursor, head: TypedValue, clock: dt.datetime | None) -> Refused | None:
    match head.value:
        case float() as number if not math.isfinite(number):
            problem = "is infinite or no number"
        case Decimal() as number if not number.is_finite():
            problem = "is infinite or no number"
        case dt.datetime() as at if clock is not None and at > _latest(at, clock):
            problem = f"is in the future; the source's clock says {clock.isoformat(timespec='seconds')}"
        case dt.date() as day if clock is not None and _is_day(day) and day > _latest_day(clock):
            problem = f"is in the future; the source's clock says {clock.isoformat(timespec='seconds')}"
        case _:
            return None
    return Refused(
        "cursor head",
        f'the newest "{cursor.column}", {head.text()}, {problem}: no later row would be seen',
        "Correct that row in the source, or leave it out with `where`",
    )


def _is_day(day: dt.date) -> bool:
    return not isinstance(day, dt.datetime)


def _latest(at: dt.datetime, clock: dt.datetime) -> dt.datetime:
    if at.tzinfo is not None:
        return clock + FUTURE
    return clock.astimezone(dt.UTC).replace(tzinfo=None) + _FURTHEST_ZONE + FUTURE


def _latest_day(clock: dt.datetime) -> dt.date:
    return (clock.astimezone(dt.UTC) + _FURTHEST_ZONE + FUTURE).date()


def _files(table: TableSpec, now: FilesPosition, recorded: Position | None, log: FileLog) -> Finding:
    if table.mode == "truncate":
        return _all_files(table, now, recorded)
    known = log.files
    new = tuple(stamp for stamp in now.files if known.get(stamp.path) != stamp)
    changed = [stamp.path for stamp in new if stamp.path in known]
    if changed and table.mode == "append":
        return Refused(
            "file changed",
            f"{_some(changed)} changed after being read: its rows would be there twice",
            "Give new content a new name, or --full-refresh",
            "from",
        )
    notes = tuple(_gone(known, now))
    if not new:
        return Idle("no new files", recorded, notes)
    upper = log.with_read(table.id, new).position
    assert upper is not None, "a log to which files were added has an entry"
    return Work(Interval(log.position, upper, files=new), f"{len(new):,} new file{'s' if len(new) > 1 else ''}", notes)


def _all_files(table: TableSpec, now: FilesPosition, recorded: Position | None) -> Finding:
    """Every file there is, whenever one of them changed. Without a file there is nothing to name: that is an empty
    source, and the guard's business."""
    upper = FileLog().with_read(table.id, now.files).position
    assert upper is not None, "a log to which files were added has an entry"
    if recorded in (now, upper):
        return Idle("the files are unchanged", recorded)
    return Work(Interval(None, upper, files=now.files), "first run" if recorded is None else "the files changed")


def _gone(known: Mapping[str, FileStamp], now: FilesPosition) -> Iterable[str]:
    gone = sorted(known.keys() - {stamp.path for stamp in now.files})
    if gone:
        yield f"{_some(gone)} {'is' if len(gone) == 1 else 'are'} gone since; the rows read from there stay"


def _some(names: Iterable[Any]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(map(str, listed[:3])) + more
