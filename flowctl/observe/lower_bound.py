"""Where reading from a cursor starts: the bound that the plan records and from which a source counts rows."""

from __future__ import annotations

import datetime as dt

from flowctl.model import types, value
from flowctl.model.position import CursorPosition, Position
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue
from flowctl.spec.spec import Cursor


def read_from(cursor: Cursor, kind: DataType, recorded: Position | None) -> TypedValue | None:
    """The inclusive lower bound: the recorded position minus ``lag``, or ``start``; None: from the beginning.

    ``kind`` is the cursor column's current type. Raises ``ValueError`` if the recorded value or ``start`` is not valid
    for it, or if ``lag`` does not apply to it.
    """
    match recorded:
        case CursorPosition(at):
            return before(retyped(at, kind), cursor.lag)
        case _:
            return value.from_person(kind, cursor.start) if cursor.start is not None else None


def retyped(bound: TypedValue, kind: DataType) -> TypedValue:
    """Converts the value to the column's current type (an int that became a bigint). Raises ``ValueError`` if the
    column is now ordered differently: the rows above the value are then not those that were above it before."""
    if bound.type == kind:
        return bound
    if not types.keeps_order(kind, bound.type):
        raise ValueError(f"{types.short(kind)} is ordered differently from {types.short(bound.type)}")
    return value.from_text(kind, bound.text())


def before(bound: TypedValue, seconds: float) -> TypedValue:
    """``bound`` minus a duration. For dates, whole days are subtracted, rounded up: more is read again, never less."""
    if not seconds:
        return bound
    match bound.value:
        case dt.datetime() as at:
            return TypedValue(bound.type, at - dt.timedelta(seconds=seconds))
        case dt.date() as day:
            return TypedValue(bound.type, day - dt.timedelta(days=-(-seconds // 86400)))
        case _:
            raise ValueError(f"a duration cannot be subtracted from {types.short(bound.type)}")
