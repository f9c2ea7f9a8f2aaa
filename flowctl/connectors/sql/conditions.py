"""Which rows an interval reads, and a plan asks about, as conditions for WHERE.

Which rows they are is the same for every database. How a value of a cursor column is compared is each one's own.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from flowctl.connectors.source import ReadRequest, Relation, WatermarkRequest
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.value import TypedValue

Operator = Literal["<=", ">", ">="]


@dataclass(frozen=True)
class Condition:
    """Of rows (empty: every row), or a value. ``parameters`` stand for the markers in ``sql``, in order."""

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
    def table(self, parts: tuple[str, ...]) -> str: ...

    @abstractmethod
    def greatest(self, request: WatermarkRequest, column: Column) -> Condition:
        """A value: the greatest one of the cursor that `cursor.delay` leaves, as text or as it is stored."""

    @abstractmethod
    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        """In the order of the value's type, whatever the database's own order of the column is."""

    @abstractmethod
    def delayed(self, column: Column, kind: types.DataType, delay: float, zone: str | None) -> Condition:
        """At most ``delay`` seconds before the source's now, in ``zone`` where ``kind`` has none (None: its own)."""

    def from_clause(self, relation: Relation, *conditions: Condition) -> str:
        """What stands after FROM: the object or the wrapped query, the spec's ``where`` and ``conditions``."""
        query = f"({bare_query(relation)}\n) AS query"  # the line break ends a trailing comment
        base = self.table(relation.object.parts) if relation.object is not None else query
        tests = [f"({relation.where}\n)"] if relation.where else []
        tests += [f"({condition.sql})" for condition in conditions if condition.sql]
        return base + (" WHERE " + " AND ".join(tests) if tests else "")

    def exists(self, relation: Relation, condition: Condition) -> Condition:
        return Condition(f"EXISTS (SELECT 1 FROM {self.from_clause(relation, condition)})", condition.parameters)

    def count(self, relation: Relation, condition: Condition) -> Condition:
        return Condition(f"(SELECT count(*) FROM {self.from_clause(relation, condition)})", condition.parameters)

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


def bare_query(relation: Relation) -> str:
    return (relation.query or "").strip().rstrip(";")


def earliest_local(moment: dt.datetime, zone: str) -> dt.datetime:
    """The local time in ``zone`` that no moment from ``moment`` on falls behind: its own, or an earlier one where
    clocks are about to be set back. They are set at whole minutes."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise TableError(f"there is no time zone {zone!r}", hint="Correct `cursor.zone`") from error
    minute = moment.replace(second=0, microsecond=0)
    ahead = [moment, *(minute + dt.timedelta(minutes=number) for number in range(1, _AHEAD_MINUTES + 1))]
    return min(one.astimezone(known).replace(tzinfo=None) for one in ahead)


#: No zone sets its clocks back further ahead than this matters: an hour is the most that is common.
_AHEAD_MINUTES = 180
