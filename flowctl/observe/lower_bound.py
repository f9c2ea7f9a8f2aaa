"""Where reading of a cursor starts: what the plan records and what a source is asked to count from."""

from __future__ import annotations

import datetime as dt

from flowctl.model import types, value
from flowctl.model.position import CursorPosition, Position
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue
from flowctl.spec.spec import Cursor


def read_from(cursor: Cursor, kind: DataType, recorded: Position | None) -> TypedValue | None:
    """The inclusive lower bound: the recorded position less ``lag``, or ``start``; None from the very beginning.

    ``kind`` is the cursor column's type now. ``ValueError`` when the recorded value or ``start`` cannot be one of it,
    or when ``lag`` has no meaning for it.
    """
    match recorded:
        case CursorPosition(at):
            return before(retyped(at, kind), cursor.lag)
        case _:
            return value.from_text(kind, cursor.start) if cursor.start is not None else None


def retyped(bound: TypedValue, kind: DataType) -> TypedValue:
    """The same value in the column's type of today (an int that became a bigint). ``ValueError`` where the column's
    order is another since: what lies above the value now is not what did then."""
    if bound.type == kind:
        return bound
    if not types.keeps_order(kind, bound.type):
        raise ValueError(f"{types.short(kind)} has another order than {types.short(bound.type)}")
    return value.from_text(kind, bound.text())


def before(bound: TypedValue, seconds: float) -> TypedValue:
    """``bound`` less a duration. Dates lose whole days, rounded up: more is read again, never less."""
    if not seconds:
        return bound
    match bound.value:
        case dt.datetime() as at:
            return TypedValue(bound.type, at - dt.timedelta(seconds=seconds))
        case dt.date() as day:
            return TypedValue(bound.type, day - dt.timedelta(days=-(-seconds // 86400)))
        case _:
            raise ValueError(f"a duration cannot be taken from {types.short(bound.type)}")
