"""Whole columns of the log as Arrow, for the types where that needs no text in between: numbers, times, texts in UTF-8.

Each function gives what :func:`flowctl.connectors.mysql.columns.converted` gives for the same values. One that is not
exact gives nothing: the way over texts says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.mysql.changes.wire import CODECS, Wire
from flowctl.connectors.mysql.types import data_type
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Bytes = npt.NDArray[np.uint8]
    Numbers = npt.NDArray[np.int64]

_MICROSECONDS = 1_000_000


def whole_column(values: Sequence[bytes | None], wire: Wire, here: Column, wanted: Column) -> pa.Array | None:
    """``values`` as they lie in the log, in the type of ``wanted``; None if they have to be read one by one."""
    import numpy as np
    import pyarrow as pa

    kind = wanted.type
    if kind != data_type(here.native) or not values:
        return None
    if wire.size[1]:
        return _of_bytes(values, wire, kind)
    is_null = np.array([value is None for value in values])
    content = np.frombuffer(b"".join(value for value in values if value is not None), np.uint8)
    found = _fixed(content.reshape(-1, wire.size[0]), wire, kind)
    if found is None:
        return None
    whole = np.zeros(len(values), found.dtype)
    whole[~is_null] = found
    return pa.array(whole, mask=is_null).cast(arrow_type(kind))


def _of_bytes(values: Sequence[bytes | None], wire: Wire, kind: Any) -> pa.Array | None:
    import pyarrow as pa

    if wire.special or wire.is_padded:
        return None
    if kind == types.BINARY:
        return pa.array(values, pa.binary())
    if kind != types.STRING or CODECS.get(wire.charset) != "utf-8":
        return None
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _fixed(content: Bytes, wire: Wire, kind: Any) -> Any:
    """Of the values that are not null: numbers, or microseconds and days as Arrow counts them."""
    match wire.type:
        case 1 | 2 | 3 | 8 | 9 if kind in types.INTEGERS:
            return _integers(content, is_unsigned=wire.is_unsigned)
        case 4 | 5 if kind in (types.FLOAT, types.DOUBLE):
            return content.copy().view("<f4" if wire.type == 4 else "<f8")[:, 0]
        case 17 if kind == types.TIMESTAMP:
            seconds = _big_endian(content[:, :4])
            is_zero = (seconds == 0).any()
            return None if is_zero else _moments(seconds * _MICROSECONDS + _fraction(content[:, 4:]))
        case 18 if kind == types.TIMESTAMP_NTZ:
            return _datetimes(content)
        case _:
            return None


def _integers(content: Bytes, *, is_unsigned: bool) -> Numbers:
    import numpy as np

    size = content.shape[1]
    found = np.zeros(len(content), np.int64)
    for place in range(size):
        found |= content[:, place].astype(np.int64) << (8 * place)
    if not is_unsigned and size < np.int64().nbytes:
        found -= (found >> (8 * size - 1)) << (8 * size)
    return found


def _datetimes(content: Bytes) -> Any:
    import numpy as np

    packed = _big_endian(content[:, :5]) - 0x8000000000
    date, time = packed >> 17, packed & 0x1FFFF
    year, month, day = (date >> 5) // 13, (date >> 5) % 13, date & 31
    if not ((year > 0) & (month > 0) & (day > 0)).all():
        return None
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    days = months.astype("M8[D]") + (day - 1)
    if not (days.astype("M8[M]") == months).all():  # such as February 30
        return None
    seconds = days.astype(np.int64) * 86_400 + (time >> 12) * 3600 + ((time >> 6) & 63) * 60 + (time & 63)
    return _moments(seconds * _MICROSECONDS + _fraction(content[:, 5:]))


def _moments(microseconds: Numbers) -> Any:
    return microseconds.astype("M8[us]")


def _fraction(content: Bytes) -> Numbers:
    scale: int = 10 ** (6 - 2 * content.shape[1])
    return _big_endian(content) * scale


def _big_endian(content: Bytes) -> Numbers:
    import numpy as np

    found = np.zeros(len(content), np.int64)
    for place in range(content.shape[1]):
        found = found << 8 | content[:, place]
    return found
