"""Columns that a spec reads as another type than their own, from texts of their values, for sources whose rows this
process converts. What an engine converts follows the same rules: :mod:`flowctl.connectors.exact`."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import text_shape
from flowctl.model import types
from flowctl.model.types import DataType, Decimal

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGERS = (types.INT8, types.INT16, types.INT32, types.INT64)
_FLOATS = (types.FLOAT, types.DOUBLE)


def from_text(texts: pa.Array, kind: DataType) -> pa.Array:
    """``texts`` as a scalar ``kind``, by the rules for text files: Arrow alone takes 0x1F for an integer and 1e999 for
    infinity. Raises ``ArrowInvalid`` for a text that is not exactly of the type."""
    import pyarrow as pa

    from flowctl.connectors.csv_text import Field, Misfit, converted

    try:
        return converted(texts, Field("", arrow_type(kind), text_shape(kind), ""))
    except Misfit as error:
        raise pa.ArrowInvalid(f"a text is not exactly {kind}") from error


def is_rounded(found: DataType, kind: DataType) -> bool:
    """Whether not every number of a type is one of ``kind``, a floating-point type."""
    return kind in _FLOATS and kind != found and (found in (*_INTEGERS, *_FLOATS) or isinstance(found, Decimal))


def floats(texts: pa.Array, found: DataType, kind: DataType) -> pa.Array:
    """``texts`` of numbers of the type ``found`` as ``kind``, of which :func:`is_rounded` is true. Raises
    ``ArrowInvalid`` for a number that does not come back: the shortest text of a float stands for it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if found in _FLOATS:
        own = texts.cast(arrow_type(found))
        made = own.cast(arrow_type(kind))
        back = made.cast(own.type)
        same = pc.or_(pc.equal(back, own), pc.and_(pc.is_nan(back), pc.is_nan(own)))
    else:
        made = texts.cast(arrow_type(kind))
        both = zip(made.cast(pa.string()).to_pylist(), texts.to_pylist(), strict=True)
        same = pa.array([None if text is None else _is_same(shortest, text) for shortest, text in both], pa.bool_())
    if not pc.all(same, min_count=0).as_py():
        raise pa.ArrowInvalid(f"a number is not exactly {kind}")
    return made


def _is_same(first: str, second: str) -> bool:
    one, other = decimal.Decimal(first), decimal.Decimal(second)
    return one == other or (one.is_nan() and other.is_nan())
