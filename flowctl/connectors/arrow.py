"""flowctl's types as pyarrow types, for buffers and for everything that the driver itself reads or writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, assert_never

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """All fields are nullable: a frame loses its nullability when it passes through Parquet."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def arrow_type(kind: DataType) -> pa.DataType:
    import pyarrow as pa

    match kind:
        case types.TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        case types.TIMESTAMP_NTZ:
            return pa.timestamp("us")
        case types.DATE:
            return pa.date32()
        case types.BOOL:
            return pa.bool_()
        case Scalar(name):
            return pa.type_for_alias(name)
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(item):
            return pa.list_(arrow_type(item))
        case Struct(fields):
            return pa.struct([(name, arrow_type(of)) for name, of in fields])
        case _:
            assert_never(kind)


#: The first and the last moment and day that a calendar has (the years 1 to 9999), in microseconds and in days since
#: 1970. Arrow has others.
CALENDAR_MICROSECONDS, CALENDAR_DAYS = (-62_135_596_800_000_000, 253_402_300_799_999_999), (-719_162, 2_932_896)


def pieces(data: Any, starts: Any, ends: Any, is_valid: Any, kind: pa.DataType) -> pa.Array:
    """The pieces of ``data``, an array of ``uint8``, between ``starts`` and ``ends``, which ascend, as ``kind``:
    ``large_binary``, or ``large_string`` where the bytes are known to be UTF-8. Null where not ``is_valid``."""
    import numpy as np
    import pyarrow as pa

    count = len(starts)
    # The pieces and the gaps between them, as one array without copying; then only the pieces are taken.
    bounds = np.empty(2 * count + 1, np.int64)
    bounds[0:-1:2], bounds[1::2] = starts, ends
    bounds[-1] = ends[-1] if count else 0
    both = pa.Array.from_buffers(pa.large_binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    _, offsets, content = both.take(pa.array(np.arange(0, 2 * count, 2))).buffers()
    validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [validity, offsets, content])


def moment(text: str) -> pa.Scalar:
    """Parses an instant in UTC, written as RFC 3339 or without a zone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.assume_timezone(pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")), "UTC")


def data_type(kind: pa.DataType) -> DataType | None:
    """The exact counterpart of an Arrow type, or None. Seconds and milliseconds widen to microseconds, unsigned
    integers to the next wider signed type (64 bits to ``decimal(20, 0)``); nanoseconds have no counterpart."""
    import pyarrow as pa

    is_type = pa.types
    if is_type.is_timestamp(kind):
        return None if kind.unit == "ns" else (types.TIMESTAMP if kind.tz else types.TIMESTAMP_NTZ)
    if is_type.is_decimal128(kind):
        return Decimal(kind.precision, kind.scale) if 0 <= kind.scale <= kind.precision else None
    if is_type.is_list(kind) or is_type.is_large_list(kind):
        item = data_type(kind.value_type)
        return Array(item) if item else None
    if is_type.is_struct(kind):
        fields = [(field.name, data_type(field.type)) for field in kind]
        return Struct(tuple((name, of) for name, of in fields if of)) if all(of for _, of in fields) else None
    return _SIMPLE.get(str(kind))


_SIMPLE: dict[str, DataType] = {
    "bool": types.BOOL,
    "int8": types.INT8,
    "int16": types.INT16,
    "int32": types.INT32,
    "int64": types.INT64,
    "uint8": types.INT16,
    "uint16": types.INT32,
    "uint32": types.INT64,
    "uint64": Decimal(20, 0),
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "large_string": types.STRING,
    "binary": types.BINARY,
    "large_binary": types.BINARY,
    "date32[day]": types.DATE,
}
