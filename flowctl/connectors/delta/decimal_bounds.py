"""Bounds of decimals, as wide as a file's statistics may be wrong.

``deltalake`` 1.6.6, and with it Polars, writes decimals in statistics as floating-point numbers, and those of scale 0
as integers of 64 bits (tested): with more than 15 digits, a bound may exclude the very value that it stands for. What
it compacts gets such bounds, too. Nothing tells them from exact ones.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

from flowctl.model import types

#: Digits of a decimal that a floating-point number keeps.
_EXACT_DIGITS = 15
#: A part of the value, larger than the error of three roundings of a floating-point number, which were seen.
_MARGIN = Decimal("1e-14")
#: Integers beyond these are written as these.
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_ANY_DIGITS = 100


def below(low: Any) -> Decimal | None:
    """No value of a file whose statistics have ``low`` as the least one is less; None if that is unknown."""
    if not isinstance(low, int | Decimal):
        return None
    return Decimal("-Infinity") if low <= _LEAST else low - abs(Decimal(low)) * _MARGIN


def above(high: Any) -> Decimal | None:
    """As :func:`below`, for the greatest value."""
    if not isinstance(high, int | Decimal):
        return None
    return Decimal("Infinity") if high >= _GREATEST else high + abs(Decimal(high)) * _MARGIN


def around(low: Decimal, high: Decimal, kind: types.Decimal) -> tuple[Decimal, Decimal] | None:
    """Bounds, of type ``kind``, that every file's statistics overlap if a value of it is from ``low`` to ``high``; None
    if the type does not have them."""
    if kind.precision <= _EXACT_DIGITS:
        return low, high
    with localcontext() as context:
        context.prec = _ANY_DIGITS
        unit = Decimal(1).scaleb(-kind.scale)
        least = min(low - abs(low) * _MARGIN, Decimal(_GREATEST)).quantize(unit, ROUND_FLOOR)
        most = max(high + abs(high) * _MARGIN, Decimal(_LEAST)).quantize(unit, ROUND_CEILING)
        fits = max(abs(least), abs(most)) < Decimal(10) ** (kind.precision - kind.scale)
    return (least, most) if fits else None
