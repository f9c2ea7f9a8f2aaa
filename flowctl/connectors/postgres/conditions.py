"""Cursor bounds and high watermarks in PostgreSQL's SQL. Bounds are literals with type and offset, as JDBC has no
parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flowctl.connectors.postgres.columns import quoted, text_literal
from flowctl.connectors.postgres.types import ddl
from flowctl.connectors.source import HighWatermark, ReadRequest, Relation, WatermarkRequest
from flowctl.connectors.sql import conditions as conditions_sql
from flowctl.connectors.sql.conditions import Comparisons, Condition, Operator, estimated_rows
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.table_info import Column, RowEstimate, TableInfo
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue, from_text


class PostgresComparisons(Comparisons):
    def quoted(self, name: str) -> str:
        return quoted(name)

    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        return Condition(f"{_ordered(column, value.type)} {operator} {_literal(value)}")

    def delayed(self, column: Column, kind: DataType, delay: float, zone: str | None) -> Condition:
        limit = f"now() - interval '{delay} seconds'"
        if kind != types.TIMESTAMP:
            limit = _local(limit, zone or "UTC")
        return Condition(f"{_ordered(column, kind)} <= ({limit})::{ddl(kind)}")


COMPARISONS = PostgresComparisons()


def from_clause(relation: Relation, *conditions: str) -> str:
    return conditions_sql.from_clause(relation, lambda parts: ".".join(map(quoted, parts)), *conditions)


def between(request: ReadRequest, info: TableInfo) -> str:
    """The interval's rows; empty when it has no cursor."""
    name = request.interval.cursor_column if request.interval else None
    return COMPARISONS.between(request, _found(info, name) if name is not None else None).sql


def watermark_values(request: WatermarkRequest) -> str:
    """What one row selects, without a FROM: the greatest cursor as exact text, whether any is null, the row count, the
    clock, how many rows are at the position, whether the delay keeps any out, whether there are any up to the position;
    nulls where the request does not ask. ``TableError`` for a cursor that has no order of its own."""
    cursor, relation = request.cursor, request.relation
    newest, has_null, counted, there, any_row = "NULL::text", "false", "NULL::bigint", "NULL::bigint", "false"
    older, found = "true", None
    if cursor is not None:
        found = _found(request.info, cursor.name)
        newest = f"max({_ordered(found, cursor.type)})::text"
        newest = f"(SELECT {newest} FROM {from_clause(relation, COMPARISONS.until(request, found).sql)})"
        has_null = _exists(relation, Condition(f"{quoted(cursor.name)} IS NULL"))
        if request.position is not None:
            there = _count(relation, COMPARISONS.at_position(found, request.position))
        if request.position is not None and request.minds_older:
            older = _exists(relation, COMPARISONS.up_to_position(found, request.position, request.first))
        if request.delay is not None:
            any_row = _exists(relation, COMPARISONS.not_null(found))
    if request.estimate == "count":
        counted = _count(relation, COMPARISONS.wanted(request, found))
    return f"{newest}, {has_null}, {counted}, now(), {there}, {any_row}, {older}"


def _exists(relation: Relation, condition: Condition) -> str:
    return f"EXISTS (SELECT FROM {from_clause(relation, condition.sql)})"


def _count(relation: Relation, condition: Condition) -> str:
    return f"(SELECT count(*) FROM {from_clause(relation, condition.sql)})"


def read_watermark(request: WatermarkRequest, row: Sequence[Any]) -> HighWatermark:
    """What a row of :func:`watermark_values` says."""
    newest, has_null, counted, clock, there, any_row, older = row
    rows = estimated_rows(request, lambda: counted)
    if request.cursor is None:
        return HighWatermark(NoPosition(), rows, clock)
    found = HighWatermark(None, rows, clock, has_null, rows_at_position=there, has_older=older)
    if newest is None:
        return replace(found, has_younger=any_row)
    try:
        at = from_text(request.cursor.type, newest)
    except (ValueError, ArithmeticError):
        return replace(found, failure=_unusable(request.cursor, newest))
    if newest in ("Infinity", "-Infinity", "NaN"):
        return replace(found, failure=_unusable(request.cursor, newest))
    return replace(found, position=CursorPosition(at))


def has_part(request: WatermarkRequest, watermark: HighWatermark) -> bool:
    """Whether the relation goes on above the request's ``lower``, in a table whose statistics can tell how far."""
    newest = watermark.position.at if isinstance(watermark.position, CursorPosition) else None
    is_told = request.info.rows.value is not None and request.info.extra.get("changes") is not None
    return request.estimate == "stats" and request.lower is not None and newest != request.lower and is_told


def part_query(request: WatermarkRequest) -> str:
    """What is read from ``lower`` on, for the planner to look at."""
    assert request.cursor is not None and request.lower is not None
    lower = COMPARISONS.bound(_found(request.info, request.cursor.name), ">=", request.lower)
    return f"SELECT FROM {from_clause(request.relation, lower.sql)}"


def with_part(request: WatermarkRequest, watermark: HighWatermark, planned: int) -> HighWatermark:
    """``planned`` rows are expected, and those that came or changed since the last ANALYZE, of which the planner knows
    nothing: after an UPDATE of all rows, all of them are new."""
    return replace(watermark, rows=RowEstimate(planned + int(request.info.extra["changes"]), "stats"))


def _unusable(cursor: Column, newest: str) -> StoppedByPolicy:
    return StoppedByPolicy(
        f"the greatest value of cursor column {cursor.name} ({cursor.native}) is {newest}: it would freeze the table",
        hint=f'Fix that row, or leave it out: `where: "{cursor.name} < ..."`',
    )


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


def _literal(bound: TypedValue) -> str:
    """With its type, and timestamps with their offset: no setting of a session changes what it means."""
    text = bound.text().replace("Z", "+00") if bound.type == types.TIMESTAMP else bound.text()
    return f"{text_literal(text)}::{ddl(bound.type)}"


def _local(moment: str, zone: str) -> str:
    """The local time there that no later moment falls behind: where clocks are about to be set back, an earlier one."""
    return (
        f"SELECT min(t AT TIME ZONE {text_literal(zone)}) FROM (SELECT {moment} AS t UNION ALL "
        f"SELECT date_trunc('minute', {moment}) + n * interval '1 minute' FROM generate_series(1, 180) n) AS ahead"
    )
