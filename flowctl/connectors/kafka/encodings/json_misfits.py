"""Which field of a message does not fit, as Python's own parser reads it.

:mod:`.json_values` decides what fits, and says only that some message of a batch does not. This finds most of those
without decoding every message alone, which takes a hundred times as long. It is never stricter.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from flowctl.connectors.exact import text_shape
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

_UNROUNDED = decimal.Context(prec=100, traps=[decimal.Inexact])
_BITS = {types.INT8: 8, types.INT16: 16, types.INT32: 32, types.INT64: 64}


def misfit(fields: Mapping[str, Any], columns: Sequence[Column]) -> Column | None:
    """The first of ``columns`` for which a message with these ``fields`` certainly does not fit. None: it may fit."""
    return next((column for column in columns if _is_unfit(fields.get(column.name), column.type)), None)


def _is_unfit(value: Any, kind: DataType) -> bool:
    if value is None:
        return False
    match kind:
        case Array(item):
            return not isinstance(value, list) or any(_is_unfit(one, item) for one in value)
        case Struct(fields):
            return not isinstance(value, dict) or any(_is_unfit(value.get(name), of) for name, of in fields)
        case Decimal(precision, scale):
            return isinstance(value, bool | list | dict) or _is_inexact(value, precision, scale)
        case types.BOOL:
            return not isinstance(value, bool)
        case types.INT8 | types.INT16 | types.INT32 | types.INT64:
            limit = 1 << (_BITS[kind] - 1)
            return isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit
        case types.FLOAT | types.DOUBLE:
            return isinstance(value, bool | str | list | dict)
        case types.DATE | types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return not isinstance(value, str) or not _shape(kind).search(value) or not _is_day(value[:10])
        case _:
            return not isinstance(value, str)


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return text.startswith("0000")  # Python has no such year
    return True


def _is_inexact(value: Any, precision: int, scale: int) -> bool:
    try:
        number = decimal.Decimal(value)
        exponent = number.normalize(_UNROUNDED).as_tuple().exponent
    except decimal.Inexact:
        return False
    except (decimal.DecimalException, ValueError):
        return True
    if not isinstance(exponent, int):
        return False  # infinity and the like: left to the parser
    return number != 0 and (number.adjusted() >= precision - scale or exponent < -scale)


@cache
def _shape(kind: DataType) -> re.Pattern[str]:
    return re.compile(text_shape(kind), re.ASCII)
