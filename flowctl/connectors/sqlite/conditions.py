"""Cursor bounds in SQLite's SQL, compared in the cursor's declared type.

SQLite orders stored values: numbers before text before blobs, text by its bytes. That is the declared type's order for
integers, floats, text (C collation) and dates. For timestamps and decimals the comparison goes through
``flowctl_order``, a function registered on the connection; for timestamps the first ten characters narrow the rows
down first, which an index on the column can serve.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowctl.connectors.source import HeadRequest, ReadRequest, Relation
from flowctl.connectors.sqlite.database import quoted
from flowctl.connectors.sqlite.values import needs_order_key, order_key
from flowctl.connectors.zones import earliest_local
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Decimal
from flowctl.model.value import TypedValue

#: What SQLite's own CURRENT_TIMESTAMP and datetime('now') give.
OWN_ZONE = "UTC"


@dataclass(frozen=True)
class Condition:
    """SQL for WHERE (empty: none), its parameters, and the columns that :func:`prepare` must know before."""

    sql: str = ""
    parameters: tuple[Any, ...] = ()
    compared: tuple[Column, ...] = ()


def from_clause(relation: Relation, condition: Condition = Condition()) -> str:
    """What stands after FROM: the object or the wrapped query, the spec's ``where`` and the condition."""
    if relation.object is not None:
        base = quoted(relation.object.parts[-1])
    else:
        base = f"({(relation.query or '').strip().rstrip(';')}\n)"  # the line break ends a trailing comment
    tests = [f"({relation.where}\n)"] if relation.where else []
    tests += [f"({condition.sql})"] if condition.sql else []
    return base + (" WHERE " + " AND ".join(tests) if tests else "")


def prepare(connection: sqlite3.Connection, *columns: Column) -> None:
    """Registers the order of these columns' types."""
    for column in columns:
        if needs_order_key(column.type):
            key = partial(order_key, column.type)
            connection.create_function(_order_function(column.type), 1, key, deterministic=True)


def between(request: ReadRequest) -> Condition:
    """The interval's rows; all of them when it has no cursor."""
    interval = request.interval
    if interval is None or interval.cursor_column is None:
        return Condition()
    bounds = [(">" if request.above else ">=", interval.read_from), ("<=", interval.read_to)]
    given = [(operator, bound) for operator, bound in bounds if bound is not None]
    name = quoted(interval.cursor_column)
    if not given:
        return Condition() if interval.include_null else Condition(f"{name} IS NOT NULL")
    column = Column(interval.cursor_column, given[0][1].type)
    parts = [_bound(column, operator, bound) for operator, bound in given]
    sql = " AND ".join(part for part, _ in parts)
    return Condition(
        sql=f"{sql} OR {name} IS NULL" if interval.include_null else sql,
        parameters=tuple(value for _, values in parts for value in values),
        compared=(column,),
    )


def at_position(column: Column, value: TypedValue) -> Condition:
    """Exactly there, in the order of the column's type."""
    bounds = (_bound(column, ">=", value), _bound(column, "<=", value))
    return Condition(" AND ".join(sql for sql, _ in bounds), tuple(one for _, values in bounds for one in values))


def up_to_position(column: Column, value: TypedValue, first: TypedValue | None) -> Condition:
    """From ``first`` to there, both included."""
    bounds = [_bound(column, "<=", value), *([_bound(column, ">=", first)] if first is not None else [])]
    return Condition(" AND ".join(sql for sql, _ in bounds), tuple(one for _, values in bounds for one in values))


def not_null(column: Column) -> Condition:
    return Condition(f"{quoted(column.name)} IS NOT NULL")


def wanted(request: HeadRequest, now: dt.datetime) -> Condition:
    """What will be read, as far as it is known before the head is."""
    column = request.cursor
    if column is None:
        return Condition()
    name = quoted(column.name)
    lower = _bound(column, ">=", request.lower) if request.lower is not None else (f"{name} IS NOT NULL", ())
    tests = [lower]
    if request.appends and request.delay is not None:
        until = _until(column, now - dt.timedelta(seconds=request.delay), request.zone)
        tests.append((until.sql, until.parameters))
    sql = " AND ".join(sql for sql, _ in tests)
    parameters = tuple(value for _, values in tests for value in values)
    return Condition(f"{sql} OR {name} IS NULL" if request.null_rows else sql, parameters)


def newest(column: Column, request: HeadRequest, now: dt.datetime) -> tuple[str, tuple[Any, ...]]:
    """One row: the stored value of the greatest cursor (at most ``now - delay``), and whether any is null.
    A value of a storage class that the type does not have comes first, so that it is seen and refused."""
    name = quoted(column.name)
    if request.delay is not None:
        limit = _until(column, now - dt.timedelta(seconds=request.delay), request.zone)
    else:
        limit = Condition(_near_the_end(column, request.relation))
    candidates = Condition(f"{name} IS NOT NULL AND {limit.sql or '1'}", limit.parameters)
    misfits = Condition(f"typeof({name}) NOT IN ({', '.join(map(repr, _storage(column.type)))}, 'null')")
    source = request.relation
    return (
        f"SELECT coalesce((SELECT {name} FROM {from_clause(source, misfits)} LIMIT 1),"
        f" (SELECT {name} FROM {from_clause(source, candidates)} ORDER BY {_order(column)} DESC LIMIT 1)),"
        f" EXISTS (SELECT 1 FROM {from_clause(source, Condition(f'{name} IS NULL'))})",
        candidates.parameters,
    )


def _near_the_end(column: Column, relation: Relation) -> str:
    """For timestamps: within two days of the greatest text, so that few rows go through ``flowctl_order``."""
    if column.type not in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        return ""
    name = quoted(column.name)
    greatest = f"substr(max({name}), 1, 10)"
    return f"{name} >= (SELECT coalesce(date({greatest}, '-2 days'), '') FROM {from_clause(relation)})"


def counts_in_zone(request: HeadRequest) -> bool:
    """Whether `delay` needs a time zone to be counted in."""
    kind = request.cursor.type if request.cursor else None
    return request.delay is not None and kind in (types.TIMESTAMP_NTZ, types.DATE)


def _until(column: Column, limit: dt.datetime, zone: str | None) -> Condition:
    match column.type:
        case types.TIMESTAMP:
            bound = TypedValue(column.type, limit)
        case types.TIMESTAMP_NTZ:
            bound = TypedValue(column.type, earliest_local(limit, zone or OWN_ZONE))
        case types.DATE:
            bound = TypedValue(column.type, earliest_local(limit, zone or OWN_ZONE).date())
        case _:
            raise TableError(
                f"cursor.delay needs a cursor that tells time, but {column.name} is {types.short(column.type)}",
                hint="Remove `delay`, or choose a timestamp column",
            )
    sql, values = _bound(column, "<=", bound)
    return Condition(sql, values)


def _bound(column: Column, operator: str, bound: TypedValue) -> tuple[str, tuple[Any, ...]]:
    name, value = quoted(column.name), bound.value
    match column.type:
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            values = (_a_day_further(value, operator), order_key(column.type, bound.text()))
            return f"{name} {operator[0]}= ? AND {_order(column)} {operator} ?", values
        case Decimal():
            return f"{_order(column)} {operator} ?", (order_key(column.type, bound.text()),)
        case types.DATE:
            return f"{name} {operator} ?", (bound.text(),)
        case _:
            return f"{_order(column)} {operator} ?", (value,)


def _a_day_further(at: Any, operator: str) -> str:
    """Text below (above) every text of a moment not before (not after) ``at``, whatever its offset."""
    day: dt.date = at.date()
    if operator in (">", ">="):
        return "" if day == dt.date.min else (day - dt.timedelta(days=1)).isoformat()
    return "~" if day == dt.date.max else (day + dt.timedelta(days=1)).isoformat() + "~"


def _order(column: Column) -> str:
    name = quoted(column.name)
    if needs_order_key(column.type):
        return f"{_order_function(column.type)}({name})"
    return f"{name} COLLATE BINARY" if column.type == types.STRING else name


def _order_function(kind: DataType) -> str:
    return f"flowctl_order_{kind.precision}_{kind.scale}" if isinstance(kind, Decimal) else "flowctl_order"


def _storage(kind: DataType) -> tuple[str, ...]:
    """The storage classes that a cursor of this type is stored in."""
    match kind:
        case Decimal():
            return ("text", "integer", "real")
        case types.INT8 | types.INT16 | types.INT32 | types.INT64:
            return ("integer",)
        case types.FLOAT | types.DOUBLE:
            return ("integer", "real")
        case _:
            return ("text",)
