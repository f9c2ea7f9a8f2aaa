"""The bounds of a range that is read again, as values of the cursor's type."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from dataclasses import dataclass

from flowctl.model import types, value
from flowctl.model.backfill import Backfill
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue


@dataclass(frozen=True)
class Range:
    """Both bounds are included. ``first`` None: from the beginning. ``is_cut``: the range as given goes on above the
    position, where the next run begins."""

    first: TypedValue | None
    last: TypedValue
    is_cut: bool = False

    @property
    def is_empty(self) -> bool:
        return self.first is not None and self.last < self.first


def range_of(backfill: Backfill, kind: DataType, position: TypedValue, beginning: str | None) -> Range:
    """The rows of ``backfill`` up to ``position``, which has the type ``kind``. ``beginning`` is `cursor.start`. Raises
    ``ValueError`` or ``ArithmeticError`` for text that is no value of that type."""
    given = backfill.start if backfill.start is not None else beginning
    first = value.from_person(kind, given) if given is not None else None
    if backfill.stop is None:
        return Range(first, position)
    last = _before(value.from_person(kind, backfill.stop))
    return Range(first, min(last, position), is_cut=position < last)


def _before(bound: TypedValue) -> TypedValue:
    """The greatest value of the type below ``bound``."""
    match bound.value:
        case dt.datetime() as at:
            return TypedValue(bound.type, at - dt.timedelta(microseconds=1))
        case dt.date() as day:
            return TypedValue(bound.type, day - dt.timedelta(days=1))
        case int() as number:
            return TypedValue(bound.type, number - 1)
        case float() as number:
            return TypedValue(bound.type, math.nextafter(number, -math.inf))
        case decimal.Decimal() as number:
            scale = bound.type.scale if isinstance(bound.type, types.Decimal) else 0
            step = decimal.Decimal(1).scaleb(-scale)
            return TypedValue(bound.type, number.quantize(step, rounding=decimal.ROUND_CEILING) - step)
        case str():
            raise ValueError("a range that ends before a text is not supported; leave out --to")
