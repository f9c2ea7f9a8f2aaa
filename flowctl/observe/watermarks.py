"""What a source is asked about the cursor or the versions of a table, before a plan is made."""

from __future__ import annotations

from dataclasses import replace

from flowctl.connectors.source import WatermarkRequest
from flowctl.model.position import CursorPosition, Position, VersionPosition
from flowctl.model.table_info import Estimate, TableInfo
from flowctl.observe.lower_bound import read_from, retyped
from flowctl.observe.ranges import range_of
from flowctl.observe.relations import read_request, relation
from flowctl.resolve.resolve import Resolved
from flowctl.spec.spec import DetectFlag, TableSpec, TopicSource
from flowctl.state.document import TableState


def watermark_request(
    table: TableSpec, info: TableInfo, state: TableState, resolved: Resolved, estimate: Estimate
) -> WatermarkRequest:
    """``info`` is the source's table, as described. Bounds that mean nothing for the cursor are left out, as the plan
    stops the table with the reason."""
    cursor, read = table.cursor, relation(table)
    column = info.column(cursor.column) if cursor else None
    recorded = None if table.id in resolved.full_refresh else _continues_from(state)
    if cursor is None or column is None:
        return _without_cursor(table, WatermarkRequest(read, info, column, estimate=estimate), state, recorded)
    lower = position = first = upper = None
    appends = table.mode == "append"
    try:
        lower, first = read_from(cursor, column.type, recorded), read_from(cursor, column.type, None)
        if resolved.backfill is not None and isinstance(recorded, CursorPosition):
            range = range_of(resolved.backfill, column.type, retyped(recorded.at, column.type), cursor.start)
            lower, upper = range.first, range.last
        if appends and isinstance(recorded, CursorPosition):
            position = retyped(recorded.at, column.type)
    except (ValueError, ArithmeticError):
        lower = None
    return WatermarkRequest(
        relation=read,
        info=info,
        cursor=column,
        lower=lower,
        upper=upper,
        delay=cursor.delay,
        appends=appends,
        position=position,
        null_rows=cursor.nulls == "always",
        zone=cursor.zone,
        count_writers=cursor.delay is None and not cursor.lag,
        check_older=table.guard.allow_purged,
        first=first,
        estimate="count" if upper is not None and estimate == "stats" else estimate,
    )


def _continues_from(state: TableState) -> Position | None:
    """The position where new rows start: after the pending sequence number, if there is one."""
    return state.pending.interval.upper if state.pending is not None else state.position


def _without_cursor(
    table: TableSpec, request: WatermarkRequest, state: TableState, since: Position | None
) -> WatermarkRequest:
    """The request of a table without a cursor, or whose cursor does not exist, that continues from ``since``."""
    start = table.source.start if isinstance(table.source, TopicSource) else ""
    flag = table.deletes.column if isinstance(table.deletes, DetectFlag) else None
    taken = tuple(one for one in request.info.columns if table.columns.takes(one.name) or one.name == flag)
    return replace(
        request,
        delay=table.cursor.delay if table.cursor else None,
        start=start if isinstance(start, str) else "",
        since=since if isinstance(since, VersionPosition) else None,
        changes=read_request(table, taken, None),
        begun=state.pending.interval if state.pending is not None else None,
    )
