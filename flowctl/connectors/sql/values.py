"""Values of a column that may hold any type (SQLite's), or JSON text, as Arrow columns: exact, or :class:`Misfit`.

Booleans are 0 and 1. Dates are ``YYYY-MM-DD``, timestamps ISO 8601 with at most six digits. In a column with a zone, a
timestamp without an offset is in UTC (as SQLite's own functions write it); a column without a zone accepts no offset.
Decimals are text or integers; a float counts as the shortest decimal that reads back as the same float. Arrays are JSON
text.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import itertools
import json
import re
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_type
from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa


class Misfit(ValueError):
    """Some value of the column is not of its type."""


def to_arrow(values: Sequence[Any], kind: DataType) -> pa.Array:
    """``values`` (one column of one batch) as ``kind``; raises :class:`Misfit` if one of them is not exactly that."""
    import pyarrow as pa

    stored = set(map(type, values)) - {type(None)}
    try:
        return _converted(values, kind, stored)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise Misfit(str(kind)) from error


def _converted(values: Sequence[Any], kind: DataType, stored: set[type]) -> pa.Array:
    import pyarrow as pa

    arrow = arrow_type(kind)
    match kind:
        case types.STRING:
            _require(bytes not in stored)
            return pa.array(values if stored <= {str} else [_text(value) for value in values], arrow)
        case types.BINARY:
            _require(stored <= {bytes})
            return pa.array(values, arrow)
        case types.BOOL:
            _require(stored <= {int} and set(values) <= {0, 1, None})
            return pa.array(values, pa.int8()).cast(arrow)
        case types.FLOAT | types.DOUBLE:
            _require(stored <= {int, float})
            return _floats(values, arrow)
        case types.DATE:
            _require(stored <= {str})
            return in_calendar(_texts(values).cast(arrow))
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            _require(stored <= {str})
            return in_calendar(_timestamps(values, arrow))
        case Decimal():
            from flowctl.connectors.decimal_text import decimals

            _require(bytes not in stored)
            return decimals(_digits(values, stored), arrow)
        case Array(item):
            _require(stored <= {str})
            return _lists([None if value is None else json.loads(value) for value in values], item)
        case Struct():
            _require(stored <= {str})
            return pa.array([None if value is None else json.loads(value) for value in values], arrow)
        case _:
            _require(stored <= {int})
            return pa.array(values, arrow)


def _lists(values: Sequence[list[Any] | None], item: DataType) -> pa.Array:
    """Elements have the form of stored values: decimals, dates and timestamps are text in JSON too."""
    import pyarrow as pa

    _require(all(value is None or isinstance(value, list) for value in values))
    flat: list[Any] = [each for value in values for each in value or ()]
    if item == types.BOOL:
        flat = [int(each) if isinstance(each, bool) else each for each in flat]
    stored = set(map(type, flat)) - {type(None)}
    elements = _lists(flat, item.item) if isinstance(item, Array) else _converted(flat, item, stored)
    ends = list(itertools.accumulate((len(value or ()) for value in values), initial=0))
    absent = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), elements, mask=absent)


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError


def _digits(values: Sequence[Any], stored: set[type]) -> pa.Array:
    """The same texts as :func:`_text`, by Arrow where it can tell them: a column of decimals is mostly floats, and
    integers where the fraction is zero."""
    import pyarrow as pa

    if stored <= {int, float}:
        with contextlib.suppress(pa.ArrowInvalid, OverflowError):  # an integer that no float or int64 is equal to
            return pa.array(values, pa.float64() if float in stored else pa.int64()).cast(pa.string())
    return _converted(values, types.STRING, stored)


def _text(value: Any) -> str | None:
    """Integers as digits, floats as the shortest text that reads back as the same float."""
    return value if value is None or isinstance(value, str) else repr(value)


def _floats(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    import pyarrow as pa

    doubles = pa.array(values, pa.float64())
    narrow = doubles.cast(arrow)
    _require(narrow.cast(pa.float64()).equals(doubles))
    return narrow


def _timestamps(values: Sequence[str | None], arrow: pa.DataType) -> pa.Array:
    import pyarrow as pa

    texts = _texts(values)
    try:
        return texts.cast(arrow)
    except pa.ArrowInvalid:
        if arrow.tz is None:
            raise
        return pa.array([_with_offset(value) for value in values], pa.string()).cast(arrow)


def _texts(values: Sequence[str | None]) -> pa.Array:
    """Converts a single text, such as a high watermark, without ``pa.array``, which imports pandas: a third of the time
    of a run with nothing to do."""
    import pyarrow as pa

    match values:
        case [str(text)]:
            content = text.encode()
            ends = struct.pack("=ii", 0, len(content))
            return pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(content))
        case _:
            return pa.array(values, pa.string())


_OFFSET = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")


def _with_offset(text: str | None) -> str | None:
    if text is None or (len(text) > 10 and _OFFSET.search(text, 10)):
        return text
    return f"{text}T00:00Z" if len(text) == 10 else f"{text}Z"


def in_calendar(array: pa.Array) -> pa.Array:
    """Refuses the year 0: Arrow reads it, but Python and the readers of Parquet do not agree on it."""
    import pyarrow.compute as pc

    bounds = pc.min_max(array)
    _ = bounds["min"].as_py(), bounds["max"].as_py()  # OverflowError outside the years 1 to 9999
    return array


def order_key(kind: DataType, value: Any) -> int | str | None:
    """A stored value as an integer or text that SQLite sorts in the order of ``kind``. Raises ``ValueError`` or
    ``TypeError`` for a value that is obviously of another type. Only for types in :func:`needs_order_key`; SQLite calls
    it for each row it compares, so it is fast and leaves the exact check to :func:`to_arrow`."""
    if value is None:
        return None
    if isinstance(kind, Decimal):
        try:
            exact = _WIDE.create_decimal(str(value))
            if exact.adjusted() > _LARGEST:  # before all of its digits are computed
                raise ValueError(f"not {kind}")
            return f"{int(exact.scaleb(kind.scale, _WIDE)) + 10**38:039d}"
        except ArithmeticError as error:  # no number, an infinite one, or one that no decimal comes near
            raise ValueError(f"not {kind}") from error
    at = dt.datetime.fromisoformat(value)
    return ((at if at.tzinfo else at.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND


def needs_order_key(kind: DataType) -> bool:
    """Whether stored values do not sort in the order of ``kind``: '10.5' < '9.5', '2020-01-01 09:00' <
    '2020-01-01T08:00Z'."""
    return isinstance(kind, Decimal) or kind in (types.TIMESTAMP, types.TIMESTAMP_NTZ)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_WIDE = decimal.Context(prec=80)
#: The exponent of the largest decimals.
_LARGEST = 38
