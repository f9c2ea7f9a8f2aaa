"""Which field of a message does not fit, as Python's own parser reads it.

:mod:`.json_values` decides what fits, and says only that some message of a batch does not. This finds most of those
without decoding every message alone, which takes a hundred times as long. It is never stricter.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowctl.connectors.exact import text_shape
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

_UNROUNDED = decimal.Context(prec=100, traps=[decimal.Inexact])
_BITS = {types.INT8: 8, types.INT16: 16, types.INT32: 32, types.INT64: 64}


#: Whether a value certainly does not fit.
Check = Callable[[Any], bool]


def checks_of(columns: Sequence[Column]) -> list[tuple[Column, Check]]:
    """Made once for many messages."""
    return [(column, _check(column.type)) for column in columns]


def misfit(fields: Mapping[str, Any], checks: Sequence[tuple[Column, Check]]) -> Column | None:
    """The first column for which a message with these ``fields`` certainly does not fit. None: it may fit."""
    for column, is_unfit in checks:
        value = fields.get(column.name)
        if value is not None and is_unfit(value):
            return column
    return None


def _check(kind: DataType) -> Check:
    match kind:
        case Array(item):
            return _array(_check(item))
        case Struct(fields):
            return _struct([(name, _check(of)) for name, of in fields])
        case Decimal(precision, scale):
            return lambda value: isinstance(value, bool | list | dict) or _is_inexact(value, precision, scale)
        case types.BOOL:
            return lambda value: not isinstance(value, bool)
        case types.INT8 | types.INT16 | types.INT32 | types.INT64:
            limit = 1 << (_BITS[kind] - 1)
            return lambda value: type(value) is not int or not -limit <= value < limit
        case types.FLOAT | types.DOUBLE:
            return lambda value: isinstance(value, bool | str | list | dict)
        case types.DATE | types.TIMESTAMP | types.TIMESTAMP_NTZ:
            shape = re.compile(text_shape(kind), re.ASCII)
            return lambda value: type(value) is not str or not shape.search(value) or not _is_day(value[:10])
        case _:
            return lambda value: type(value) is not str


def _array(of: Check) -> Check:
    return lambda value: type(value) is not list or any(one is not None and of(one) for one in value)


def _struct(checks: Sequence[tuple[str, Check]]) -> Check:
    def is_unfit(value: Any) -> bool:
        if type(value) is not dict:
            return True
        return any((one := value.get(name)) is not None and of(one) for name, of in checks)

    return is_unfit


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return text.startswith("0000")  # Python has no such year
    return True


def _is_inexact(value: Any, precision: int, scale: int) -> bool:
    if type(value) is int:
        return bool(abs(value) >= 10 ** (precision - scale))
    try:
        number = decimal.Decimal(value)
        given = number.as_tuple().exponent
        if isinstance(given, int) and given >= -scale and number.adjusted() < precision - scale:
            return False  # most values
        exponent = number.normalize(_UNROUNDED).as_tuple().exponent
    except decimal.Inexact:
        return False
    except (decimal.DecimalException, ValueError):
        return True
    if not isinstance(exponent, int):
        return False  # infinity and the like: left to the parser
    return number != 0 and (number.adjusted() >= precision - scale or exponent < -scale)
