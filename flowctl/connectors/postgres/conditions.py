"""Cursor bounds and heads in PostgreSQL's SQL. Bounds are literals with type and offset: JDBC has no parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.connectors.postgres.types import ddl
from flowctl.connectors.source import Head, HeadRequest, ReadRequest, Relation
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.table_info import Column, RowEstimate, TableInfo
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue, from_text


def from_clause(relation: Relation, *conditions: str) -> str:
    """What stands after FROM: the object or the wrapped query, the spec's ``where`` and ``conditions``."""
    if relation.object is not None:
        base = ".".join(quoted(part) for part in relation.object.parts)
    else:
        base = f"({bare_query(relation)}\n) AS query"  # the line break ends a trailing comment
    tests = [f"({relation.where}\n)"] if relation.where else []
    tests += [f"({condition})" for condition in conditions if condition]
    return base + (" WHERE " + " AND ".join(tests) if tests else "")


def bare_query(relation: Relation) -> str:
    return (relation.query or "").strip().rstrip(";")


def between(request: ReadRequest, info: TableInfo) -> str:
    """The interval's rows; empty when it has no cursor."""
    interval = request.interval
    if interval is None or interval.cursor_column is None:
        return ""
    cursor = _found(info, interval.cursor_column)
    bounds = [(">" if request.above else ">=", interval.read_from), ("<=", interval.read_to)]
    tests = [_bound(cursor, operator, bound) for operator, bound in bounds if bound is not None]
    name = quoted(cursor.name)
    if interval.include_null:
        return f"{' AND '.join(tests)} OR {name} IS NULL" if tests else ""
    return " AND ".join(tests) or f"{name} IS NOT NULL"


def head_values(request: HeadRequest) -> str:
    """What one row selects, without a FROM: the greatest cursor as exact text, whether any is null, the row count, the
    clock, how many rows are at the position, whether the delay keeps any out, whether there are any up to the position;
    nulls where the request does not ask. ``TableError`` for a cursor that has no order of its own."""
    cursor, relation = request.cursor, request.relation
    newest, has_null, counted, there, any_row = "NULL::text", "false", "NULL::bigint", "NULL::bigint", "false"
    older = "true"
    if cursor is not None:
        found = _found(request.info, cursor.name)
        ordered, name = _ordered(found, cursor.type), quoted(cursor.name)
        newest = f"(SELECT max({ordered})::text FROM {from_clause(relation, _until(request, cursor, ordered))})"
        has_null = f"EXISTS (SELECT FROM {from_clause(relation, f'{name} IS NULL')})"
        if request.position is not None:
            there = f"(SELECT count(*) FROM {from_clause(relation, _bound(found, '=', request.position))})"
        if request.position is not None and request.minds_older:
            bounds = [_bound(found, "<=", request.position)]
            bounds += [_bound(found, ">=", request.first)] if request.first is not None else []
            older = f"EXISTS (SELECT FROM {from_clause(relation, ' AND '.join(bounds))})"
        if request.delay is not None:
            any_row = f"EXISTS (SELECT FROM {from_clause(relation, f'{name} IS NOT NULL')})"
    if request.estimate == "count":
        counted = f"(SELECT count(*) FROM {from_clause(relation, _read(request))})"
    return f"{newest}, {has_null}, {counted}, now(), {there}, {any_row}, {older}"


def _read(request: HeadRequest) -> str:
    """What will be read, as far as it is known before the head is."""
    cursor = request.cursor
    if cursor is None:
        return ""
    found, name = _found(request.info, cursor.name), quoted(cursor.name)
    tests = [_bound(found, ">=", request.lower)] if request.lower is not None else [f"{name} IS NOT NULL"]
    if request.appends and request.delay is not None:
        tests.append(_until(request, cursor, _ordered(found, cursor.type)))
    condition = " AND ".join(tests)
    return f"{condition} OR {name} IS NULL" if request.null_rows else condition


def head(request: HeadRequest, row: Sequence[Any]) -> Head:
    """What a row of :func:`head_values` says."""
    newest, has_null, counted, clock, there, any_row, older = row
    rows = _estimate(request, counted)
    if request.cursor is None:
        return Head(NoPosition(), rows, clock)
    found = Head(None, rows, clock, has_null, rows_at_position=there, has_older=older)
    if newest is None:
        return replace(found, has_younger=any_row)
    try:
        at = from_text(request.cursor.type, newest)
    except (ValueError, ArithmeticError):
        return replace(found, failure=_unusable(request.cursor, newest))
    if newest in ("Infinity", "-Infinity", "NaN"):
        return replace(found, failure=_unusable(request.cursor, newest))
    return replace(found, position=CursorPosition(at))


def has_part(request: HeadRequest, head: Head) -> bool:
    """Whether the relation goes on above the request's ``lower``, in a table whose statistics can tell how far."""
    newest = head.position.at if isinstance(head.position, CursorPosition) else None
    is_told = request.info.rows.value is not None and request.info.extra.get("changes") is not None
    return request.estimate == "stats" and request.lower is not None and newest != request.lower and is_told


def part_query(request: HeadRequest) -> str:
    """What is read from ``lower`` on, for the planner to look at."""
    assert request.cursor is not None and request.lower is not None
    lower = _bound(_found(request.info, request.cursor.name), ">=", request.lower)
    return f"SELECT FROM {from_clause(request.relation, lower)}"


def with_part(request: HeadRequest, head: Head, planned: int) -> Head:
    """``planned`` rows are expected, and those that came or changed since the last ANALYZE, of which the planner knows
    nothing: after an UPDATE of all rows, all of them are new."""
    return replace(head, rows=RowEstimate(planned + int(request.info.extra["changes"]), "stats"))


def _unusable(cursor: Column, newest: str) -> StoppedByPolicy:
    return StoppedByPolicy(
        f"the greatest value of cursor column {cursor.name} ({cursor.native}) is {newest}: it would freeze the table",
        hint=f'Fix that row, or leave it out: `where: "{cursor.name} < ..."`',
    )


def _estimate(request: HeadRequest, counted: int | None) -> RowEstimate:
    match request.estimate:
        case "none":
            return RowEstimate(method="none")
        case "count":
            return RowEstimate(counted, "count")
        case "stats":
            whole = request.lower is None and request.relation.where is None
            return request.info.rows if whole else RowEstimate()
        case _:
            assert_never(request.estimate)


def _found(info: TableInfo, name: str) -> Column:
    column = info.column(name)
    if column is None:
        raise TableError(f"{info.object} has no column {name}", hint="Check `cursor.column`")
    return column


def _ordered(found: Column, kind: DataType) -> str:
    """The column in the order of ``kind``, the type that the cursor has in flowctl: text in C collation."""
    name = quoted(found.name)
    is_number = found.native.startswith("numeric")
    if kind == types.STRING:
        if is_number:
            raise TableError(
                f"cursor column {found.name} ({found.native}) is read as text, in which 10 comes before 9",
                hint=f"Give it a precision: `columns: {{types: {{{found.name}: 'decimal(38,0)'}}}}`",
            )
        return f'({name}::text COLLATE "C")'
    return name if found.type != types.STRING or is_number else f"{name}::text::{ddl(kind)}"


def _bound(found: Column, operator: str, bound: TypedValue) -> str:
    return f"{_ordered(found, bound.type)} {operator} {_literal(bound)}"


def _literal(bound: TypedValue) -> str:
    """With its type, and timestamps with their offset: no setting of a session changes what it means."""
    text = bound.text().replace("Z", "+00") if bound.type == types.TIMESTAMP else bound.text()
    return f"{text_literal(text)}::{ddl(bound.type)}"


def _until(request: HeadRequest, cursor: Column, ordered: str) -> str:
    if request.delay is None:
        return ""
    if cursor.type not in (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE):
        raise TableError(
            f"cursor.delay needs a cursor that tells time, but {cursor.name} is {types.short(cursor.type)}",
            hint="Remove `delay`, or choose a timestamp column",
        )
    limit = f"now() - interval '{request.delay} seconds'"
    if cursor.type != types.TIMESTAMP:
        limit = _local(limit, request.zone or "UTC")
    return f"{ordered} <= ({limit})::{ddl(cursor.type)}"


def _local(moment: str, zone: str) -> str:
    """The local time there that no later moment falls behind: where clocks are about to be set back, an earlier one."""
    return (
        f"SELECT min(t AT TIME ZONE {text_literal(zone)}) FROM (SELECT {moment} AS t UNION ALL "
        f"SELECT date_trunc('minute', {moment}) + n * interval '1 minute' FROM generate_series(1, 180) n) AS ahead"
    )


def counts_in_zone(request: HeadRequest) -> bool:
    """Whether `delay` needs a time zone to be counted in."""
    kind = request.cursor.type if request.cursor else None
    return request.delay is not None and kind in (types.TIMESTAMP_NTZ, types.DATE)
