"""Rows as JSON, exactly: a column at a time, as Arrow text.

Numbers that most parsers would round are texts: decimals. Integers are numbers; dates and times are texts in RFC 3339,
binary values texts in base64. What JSON has no value for is refused: NaN, infinity, years after 9999.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import CALENDAR_DAYS, CALENDAR_MICROSECONDS, arrow_type
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct

if TYPE_CHECKING:
    import pyarrow as pa

_NULL = "null"
#: What a text in JSON cannot hold as it is.
_ESCAPED = r'["\\\x00-\x1f]'


def objects(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.StringArray:
    """Each row as one JSON object of ``columns``, in this order; a null is ``null``. Equal values have equal text.
    Raises ``TableError`` for a value that JSON cannot hold."""
    import pyarrow.compute as pc

    parts: list[pa.StringArray | str] = []
    for column in columns:
        values = rows.column(column.name).cast(arrow_type(column.type))
        parts += [f"{',' if parts else '{'}{_string(column.name)}:", _values(values, column.type, column.name)]
    return pc.binary_join_element_wise(*parts, "}", "")


def texts(values: pa.Array, column: Column, *, as_base64: bool = False) -> pa.Array:
    """The values alone, as text or bytes, as headers have them: strings without quotes, binary values as they are or,
    with ``as_base64``, as text."""
    values = values.cast(arrow_type(column.type))
    if column.type == types.STRING or (column.type == types.BINARY and not as_base64):
        return values
    if isinstance(column.type, Array | Struct):
        return _values(values, column.type, column.name)
    return _plain(values, column.type, column.name)


def _values(values: pa.Array, kind: DataType, name: str) -> pa.StringArray:
    """``values``, of this type, in JSON. ``name`` is the column's, for errors."""
    import pyarrow.compute as pc

    match kind:
        case types.STRING:
            found = _quoted(_mapped(values, pc.match_substring_regex(values, _ESCAPED), _escaped))
        case Scalar() if kind in (types.BOOL, types.FLOAT, types.DOUBLE, *types.INTEGERS):
            found = _plain(values, kind, name)
        case Scalar() | Decimal():
            found = _quoted(_plain(values, kind, name))
        case Array():
            found = _arrays(values, kind, name)
        case Struct(fields):
            parts: list[pa.StringArray | str] = []
            for (field, of), inner in zip(fields, values.flatten(), strict=True):
                parts += [f"{',' if parts else '{'}{_string(field)}:", _values(inner, of, name)]
            whole = pc.binary_join_element_wise(*parts, "}", "")
            return pc.if_else(values.is_null(), _NULL, whole)
    return pc.fill_null(found, _NULL)


def _arrays(values: pa.Array, kind: Array, name: str) -> pa.StringArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    items = _values(values.values, kind.item, name)
    joined = pc.binary_join(pa.ListArray.from_arrays(values.offsets, items), ",")
    return pc.if_else(values.is_null(), _NULL, pc.binary_join_element_wise("[", joined, "]", ""))


def _plain(values: pa.Array, kind: DataType, name: str) -> pa.StringArray:
    """Scalars as text without quotes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match kind:
        case types.FLOAT | types.DOUBLE:
            if pc.any(pc.invert(pc.is_finite(values))).as_py():
                raise _refused(name, "NaN or infinity, for which JSON has no number")
            found = values.cast(pa.string())
            whole = pc.match_substring_regex(found, r"^-?\d+$")  # readers that infer types would take it for an integer
            return pc.if_else(whole, pc.binary_join_element_wise(found, ".0", ""), found)
        case Decimal():
            found = values.cast(pa.string())
            return _mapped(found, pc.match_substring(found, "E"), _without_exponent)
        case types.BINARY:
            return _mapped(values, values.is_valid(), _base64).cast(pa.string())
        case types.DATE:
            require_calendar(values.cast(pa.int32()), CALENDAR_DAYS, name)
            return values.cast(pa.string())
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            require_calendar(values.cast(pa.int64()), CALENDAR_MICROSECONDS, name)
            return pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
        case _:
            return values.cast(pa.string())


def require_calendar(values: pa.Array, bounds: tuple[int, int], name: str) -> None:
    """Raises ``TableError`` for a number of days or microseconds that is not within ``bounds``."""
    import pyarrow.compute as pc

    found = pc.min_max(values).as_py()
    if found["min"] is not None and not (bounds[0] <= found["min"] and found["max"] <= bounds[1]):
        raise _refused(name, "a time before the year 1 or after 9999, which RFC 3339 cannot write")


def _refused(name: str, what: str) -> TableError:
    return TableError(
        f"column {name} holds {what}",
        hint=f"Fix the value, or send the column as text with `columns: {{types: {{{name}: string}}}}`",
    )


def _mapped(values: pa.Array, which: pa.BooleanArray, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """``values``, some of them changed in Python: these are few, or have no function in Arrow."""
    import pyarrow.compute as pc

    which = pc.fill_null(which, False)
    chosen = values.filter(which)
    return pc.replace_with_mask(values, which, change(chosen)) if len(chosen) else values


def _escaped(values: pa.StringArray) -> pa.StringArray:
    import pyarrow as pa

    return pa.array([_string(value)[1:-1] for value in values.to_pylist()], pa.string())


def _without_exponent(values: pa.StringArray) -> pa.StringArray:
    import decimal

    import pyarrow as pa

    return pa.array([format(decimal.Decimal(value), "f") for value in values.to_pylist()], pa.string())


def _base64(values: pa.BinaryArray) -> pa.BinaryArray:
    import pyarrow as pa

    return pa.array([base64.b64encode(value) for value in values.to_pylist()], pa.binary())


def _quoted(values: pa.StringArray) -> pa.StringArray:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise('"', values, '"', "")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
