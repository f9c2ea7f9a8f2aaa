"""Cursor bounds in SQLite's SQL, compared in the cursor's declared type.

SQLite orders stored values: numbers before text before blobs, text by its bytes. That is the declared type's order for
integers, floats, text (C collation) and dates. Timestamps and decimals are compared by ``flowctl_order``, a function
registered on the connection; for timestamps a comparison of the first ten characters, which can use an index on the
column, narrows the rows down first.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flowctl.connectors.source import Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import EVERY_ROW, Comparisons, Condition, Operator, all_of, earliest_local
from flowctl.connectors.sql.values import needs_order_key, order_key
from flowctl.connectors.sqlite.database import names_only, quoted
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Decimal
from flowctl.model.value import TypedValue

#: The zone of SQLite's own CURRENT_TIMESTAMP and datetime('now').
OWN_ZONE = "UTC"


def prepare(connection: sqlite3.Connection, *columns: Column) -> None:
    """Registers the order functions of these columns' types."""
    for column in columns:
        if needs_order_key(column.type):
            key = partial(order_key, column.type)
            connection.create_function(_order_function(column.type), 1, key, deterministic=True)


@dataclass(frozen=True)
class SqliteComparisons(Comparisons):
    """``now`` is aware UTC."""

    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    def quoted(self, name: str) -> str:
        return quoted(name)

    def table(self, parts: tuple[str, ...]) -> str:
        return quoted(parts[-1])

    def from_clause(self, relation: Relation, *conditions: Condition) -> str:
        """Names that the spec has in double quotes are names only: SQLite would read one that no column has, as after a
        rename, as a text."""
        where, query = (names_only(sql) if sql else sql for sql in (relation.where, relation.query))
        return super().from_clause(replace(relation, where=where, query=query), *conditions)

    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        column, name = replace(column, type=value.type), quoted(column.name)
        match value.type:
            case types.TIMESTAMP | types.TIMESTAMP_NTZ:
                parameters = (_a_day_further(value.value, operator), order_key(value.type, value.text()))
                return Condition(f"{name} {operator[0]}= ? AND {_order(column)} {operator} ?", parameters)
            case Decimal():
                return Condition(f"{_order(column)} {operator} ?", (order_key(value.type, value.text()),))
            case types.DATE:
                return Condition(f"{name} {operator} ?", (value.text(),))
            case _:
                return Condition(f"{_order(column)} {operator} ?", (value.value,))

    def delayed(self, column: Column, kind: DataType, delay: float, zone: str | None) -> Condition:
        limit = self.now - dt.timedelta(seconds=delay)
        local = earliest_local(limit, zone or OWN_ZONE)
        at: dt.date = limit if kind == types.TIMESTAMP else local.date() if kind == types.DATE else local
        return self.bound(column, "<=", TypedValue(kind, at))

    def greatest(self, request: WatermarkRequest, column: Column) -> Condition:
        """As it is stored. A value of a storage class that does not belong to the type comes first, so that it is
        detected and refused."""
        name, relation = quoted(column.name), request.relation
        limit = self.until(request, column) if request.delay is not None else self._near_the_end(column, relation)
        candidates = all_of(self.not_null(column), limit)
        misfits = Condition(f"typeof({name}) NOT IN ({', '.join(map(repr, _storage(column.type)))}, 'null')")
        misfit = f"SELECT {name} FROM {self.from_clause(relation, misfits)} LIMIT 1"
        greatest = f"SELECT {name} FROM {self.from_clause(relation, candidates)} ORDER BY {_order(column)} DESC LIMIT 1"
        return Condition(f"coalesce(({misfit}), ({greatest}))", candidates.parameters)

    def _near_the_end(self, column: Column, relation: Relation) -> Condition:
        """For timestamps: rows within two days of the greatest text, so that few rows go through ``flowctl_order``."""
        if column.type not in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
            return EVERY_ROW
        name = quoted(column.name)
        near = f"SELECT coalesce(date(substr(max({name}), 1, 10), '-2 days'), '') FROM {self.from_clause(relation)}"
        return Condition(f"{name} >= ({near})")


def _a_day_further(at: Any, operator: str) -> str:
    """For a lower (upper) bound: a text below (above) that of every moment from (up to) ``at``, whatever its offset."""
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


def is_sortable(stored: Any, kind: DataType) -> bool:
    """Whether a cursor's value belongs to a storage class that sorts as ``kind`` does: SQLite sorts every number before
    every text."""
    return isinstance(stored, tuple(_CLASSES[name] for name in _storage(kind)))


_CLASSES = {"text": str, "integer": int, "real": float}


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
