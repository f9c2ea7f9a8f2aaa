"""Columns that are wanted as another type than their own, for sources whose rows this process converts from texts: the
type has changed since the plan was made. What an engine converts, for `columns.types`, follows the same rules:
:mod:`flowctl.connectors.exact`."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import text_shape
from flowctl.model import types
from flowctl.model.types import DataType, Decimal

if TYPE_CHECKING:
    import pyarrow as pa

TIMES: frozenset[DataType] = frozenset({types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ})


def from_text(texts: pa.Array, kind: DataType) -> pa.Array:
    """``texts`` as a scalar ``kind``, by the rules for text files: Arrow alone takes 0x1F for an integer and 1e999 for
    infinity. Raises ``ArrowInvalid`` for a text that is not exactly of the type."""
    import pyarrow as pa

    from flowctl.connectors.csv_text import Field, Misfit, converted

    try:
        return converted(texts, Field("", arrow_type(kind), text_shape(kind), ""))
    except Misfit as error:
        raise pa.ArrowInvalid(f"a text is not exactly {kind}") from error


def as_number(texts: pa.Array, found: DataType, kind: DataType) -> pa.Array:
    """``texts`` of numbers of the type ``found`` as another type of numbers. Raises ``ArrowInvalid`` for a number that
    is not exactly of it."""
    import pyarrow as pa

    from flowctl.connectors.decimal_text import decimals

    if isinstance(kind, Decimal):
        return decimals(texts, arrow_type(kind))
    if kind in types.INTEGERS:
        whole = texts if found in types.INTEGERS else decimals(texts, pa.decimal128(38, 0))
        return whole.cast(arrow_type(kind))
    if found in types.FLOATS:
        return unchanged(texts.cast(arrow_type(found)), kind)
    made = texts.cast(arrow_type(kind))
    for text, shortest in zip(texts.to_pylist(), made.cast(pa.string()).to_pylist(), strict=True):
        if text is not None and not _is_same(decimal.Decimal(text), decimal.Decimal(shortest)):
            raise pa.ArrowInvalid(f"a number is not exactly {kind}")
    return made


def unchanged(values: pa.Array, kind: DataType) -> pa.Array:
    """``values`` cast to a type from which all of them come back: of floating-point numbers, or of dates and timestamps
    (a date is its midnight, what has no zone is in UTC). Raises ``ArrowInvalid`` for one that does not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    made = values.cast(arrow_type(kind), safe=False)
    back = made.cast(values.type)
    same = pc.equal(back, values)
    if pa.types.is_floating(values.type):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(values)))
    if not pc.all(same, min_count=0).as_py():
        raise pa.ArrowInvalid(f"a value is not exactly {kind}")
    return made


def _is_same(one: decimal.Decimal, other: decimal.Decimal) -> bool:
    return one == other or (one.is_nan() and other.is_nan())
