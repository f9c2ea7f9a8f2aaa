"""WHERE conditions for the rows that an interval reads and that a plan queries.

Which rows these are is the same for every database; how a value of a cursor column is compared is not.
"""

from __future__ import annotations

import datetime as dt
import re
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
    """A condition on rows (empty: every row), or a value. ``parameters`` are those of the markers in ``sql``, in
    order."""

    sql: str = ""
    parameters: tuple[Any, ...] = ()

    def or_null(self, name: str) -> Condition:
        return Condition(f"{self.sql} OR {name} IS NULL", self.parameters) if self.sql else self


EVERY_ROW = Condition()


def all_of(*conditions: Condition) -> Condition:
    tests = [one for one in conditions if one.sql]
    return Condition(" AND ".join(one.sql for one in tests), tuple(value for one in tests for value in one.parameters))


class Comparisons(ABC):
    """Compares cursor values. ``column`` is the cursor column as in the database; a value has the type that the flow
    gives it."""

    @abstractmethod
    def quoted(self, name: str) -> str: ...

    @abstractmethod
    def table(self, parts: tuple[str, ...]) -> str: ...

    @abstractmethod
    def greatest(self, request: WatermarkRequest, column: Column) -> Condition:
        """The greatest cursor value that `cursor.delay` admits, as text or as it is stored."""

    @abstractmethod
    def bound(self, column: Column, operator: Operator, value: TypedValue) -> Condition:
        """Compares in the order of the value's type, whatever the database's own order of the column is."""

    @abstractmethod
    def delayed(self, column: Column, kind: types.DataType, delay: float, zone: str | None) -> Condition:
        """Values at least ``delay`` seconds before the source's current time, in ``zone`` if ``kind`` has none (None:
        the source's own)."""

    def from_clause(self, relation: Relation, *conditions: Condition) -> str:
        """The text after FROM: the object or the wrapped query, the spec's ``where`` and ``conditions``."""
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
        """The interval's rows; every row if it has no cursor (``column`` None)."""
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
        """Rows from ``first`` to ``value``, both included."""
        lower = self.bound(column, ">=", first) if first is not None else EVERY_ROW
        return all_of(self.bound(column, "<=", value), lower)

    def until(self, request: WatermarkRequest, column: Column) -> Condition:
        """The rows that `cursor.delay` admits; every row without a delay."""
        cursor = request.cursor
        if cursor is None or request.delay is None:
            return EVERY_ROW
        if cursor.type not in (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE):
            raise TableError(
                f"cursor.delay needs a date or timestamp cursor, but {cursor.name} is {types.short(cursor.type)}",
                hint="Remove `delay`, or choose a timestamp column",
            )
        return self.delayed(column, cursor.type, request.delay, request.zone)

    def wanted(self, request: WatermarkRequest, column: Column | None) -> Condition:
        """The rows that will be read, as far as that is known before the high watermark."""
        if column is None:
            return EVERY_ROW
        lower = self.bound(column, ">=", request.lower) if request.lower is not None else self.not_null(column)
        upper = self.bound(column, "<=", request.upper) if request.upper is not None else EVERY_ROW
        condition = all_of(lower, upper, self.until(request, column) if request.appends else EVERY_ROW)
        if request.upper is not None:
            return condition  # of a range, which has no null
        return condition.or_null(self.quoted(column.name)) if request.null_rows else condition


def unsorted_text(column: Column) -> TableError:
    """Refuses a cursor that is read as text although its values do not sort as their texts do: newer values would be
    taken for older ones, and never read."""
    native = column.native or types.short(column.type)
    return TableError(
        f"cursor column {column.name} ({native}) is read as text, in which 10 comes before 9",
        hint=f"Give it a type if it holds numbers, `columns: {{types: {{{column.name}: 'decimal(38,0)'}}}}`; otherwise "
        "choose another column",
    )


def no_cursor(column: Column) -> TableError:
    """Refuses a cursor of a type whose values cannot be a position."""
    native = f" ({column.native})" if column.native else ""
    return TableError(
        f"cursor column {column.name}{native} is {types.short(column.type)}, which cannot be a cursor",
        hint="Choose another column, such as a number or a timestamp that grows",
    )


def bare_query(relation: Relation) -> str:
    return (relation.query or "").strip().rstrip(";")


def earliest_local(moment: dt.datetime, zone: str) -> dt.datetime:
    """The least local time in ``zone`` of ``moment`` and every later moment: that of ``moment`` itself, or an earlier
    one if clocks are about to be set back, which happens at whole minutes."""
    known = _time_zone(zone)
    minute = moment.replace(second=0, microsecond=0)
    ahead = [moment, *(minute + dt.timedelta(minutes=number) for number in range(1, _AHEAD_MINUTES + 1))]
    return min(one.astimezone(known).replace(tzinfo=None) for one in ahead)


def _time_zone(name: str) -> dt.tzinfo:
    """By its name, or by its offset, such as ``+05:30``, as a server may have it."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if offset := _OFFSET.fullmatch(name):
        ahead = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return dt.timezone(-ahead if offset[1] == "-" else ahead)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        hint = "Set `cursor.zone` to the name of the zone in which these times are, such as Europe/Amsterdam"
        raise TableError(f"there is no time zone {name!r}", hint=hint) from error


_OFFSET = re.compile(r"([+-])(\d\d?):(\d\d)")
#: Clocks set back later than this do not matter: they are usually set back by one hour at most.
_AHEAD_MINUTES = 180
