"""Which rows an interval reads, and a plan asks about, as conditions for WHERE.

Which rows they are is the same for every database. How a value of a cursor column is compared is each one's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from flowctl.connectors.source import ReadRequest, Relation, WatermarkRequest
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, RowEstimate
from flowctl.model.value import TypedValue

Operator = Literal["<=", ">", ">="]


@dataclass(frozen=True)
class Condition:
    """Empty: every row. ``parameters`` stand for the markers in ``sql``, in order."""

    sql: str = ""
    parameters: tuple[Any, ...] = ()

    def or_null(self, name: str) -> Condition:
        return Condition(f"{self.sql} OR {name} IS NULL", self.parameters) if self.sql else self


EVERY_ROW = Condition()


def all_of(*conditions: Condition) -> Condition:
    tests = [one for one in conditions if one.sql]
    return Condition(" AND ".join(one.sql for one in tests), tuple(value for one in tests for value in one.parameters))


class Comparisons(ABC):
    """``column`` is a cursor column as the database has it; the value's type is the one that the flow gives it."""

    @abstractmethod
    def quoted(self, name: str) -> str: ...

    @abstractmethod
    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        """In the order of the value's type, whatever the database's own order of the column is."""

    @abstractmethod
    def delayed(self, column: Column, kind: types.DataType, delay: float, zone: str | None) -> Condition:
        """At most ``delay`` seconds before the source's now, in ``zone`` where ``kind`` has none (None: its own)."""

    def not_null(self, column: Column) -> Condition:
        return Condition(f"{self.quoted(column.name)} IS NOT NULL")

    def between(self, request: ReadRequest, column: Column | None) -> Condition:
        """The interval's rows; all of them when it has no cursor (``column`` None)."""
        interval = request.interval
        if interval is None or column is None:
            return EVERY_ROW
        lower, upper = interval.read_from, interval.read_to
        given = all_of(
            self.bound(column, ">" if request.above else ">=", lower) if lower is not None else EVERY_ROW,
            self.bound(column, "<=", upper) if upper is not None else EVERY_ROW,
        )
        if interval.include_null:
            return given.or_null(self.quoted(column.name))
        return given if given.sql else self.not_null(column)

    def at_position(self, column: Column, value: TypedValue) -> Condition:
        return all_of(self.bound(column, ">=", value), self.bound(column, "<=", value))

    def up_to_position(self, column: Column, value: TypedValue, first: TypedValue | None) -> Condition:
        """From ``first`` to there, both included."""
        lower = self.bound(column, ">=", first) if first is not None else EVERY_ROW
        return all_of(self.bound(column, "<=", value), lower)

    def until(self, request: WatermarkRequest, column: Column) -> Condition:
        """What `cursor.delay` leaves; everything without one."""
        cursor = request.cursor
        if cursor is None or request.delay is None:
            return EVERY_ROW
        if cursor.type not in (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE):
            raise TableError(
                f"cursor.delay needs a cursor that tells time, but {cursor.name} is {types.short(cursor.type)}",
                hint="Remove `delay`, or choose a timestamp column",
            )
        return self.delayed(column, cursor.type, request.delay, request.zone)

    def wanted(self, request: WatermarkRequest, column: Column | None) -> Condition:
        """What will be read, as far as it is known before the high watermark is."""
        if column is None:
            return EVERY_ROW
        lower = self.bound(column, ">=", request.lower) if request.lower is not None else self.not_null(column)
        condition = all_of(lower, self.until(request, column) if request.appends else EVERY_ROW)
        return condition.or_null(self.quoted(column.name)) if request.null_rows else condition


def from_clause(relation: Relation, table: Callable[[tuple[str, ...]], str], *conditions: str) -> str:
    """What stands after FROM: the object or the wrapped query, the spec's ``where`` and ``conditions``."""
    query = f"({bare_query(relation)}\n) AS query"  # the line break ends a trailing comment
    base = table(relation.object.parts) if relation.object is not None else query
    tests = [f"({relation.where}\n)"] if relation.where else []
    tests += [f"({condition})" for condition in conditions if condition]
    return base + (" WHERE " + " AND ".join(tests) if tests else "")


def bare_query(relation: Relation) -> str:
    return (relation.query or "").strip().rstrip(";")


def estimated_rows(request: WatermarkRequest, count: Callable[[], int | None]) -> RowEstimate:
    """Statistics are of whole tables: of a part of one only ``count`` tells."""
    match request.estimate:
        case "none":
            return RowEstimate(method="none")
        case "count":
            return RowEstimate(count(), "count")
        case "stats":
            whole = request.lower is None and request.relation.where is None
            return request.info.rows if whole else RowEstimate()
        case _:
            assert_never(request.estimate)


def counts_in_zone(request: WatermarkRequest) -> bool:
    """Whether `delay` needs a time zone to be counted in."""
    kind = request.cursor.type if request.cursor else None
    return request.delay is not None and kind in (types.TIMESTAMP_NTZ, types.DATE)
