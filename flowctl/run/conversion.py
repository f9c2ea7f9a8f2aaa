"""Type conversion while rows are projected: exact, or an error that names the column."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl.connectors.exact import exactly
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

#: Digits of the largest value of each integer type.
_DIGITS = {types.INT8: 3, types.INT16: 5, types.INT32: 10, types.INT64: 19}


def converted(value: SparkColumn, found: Column, wanted: DataType) -> SparkColumn:
    """``value``, of the column ``found``, as ``wanted``; a plain cast, which is free, if that cannot change a value."""
    if found.type == wanted:
        return value
    if is_plain(found.type, wanted):
        return value.cast(types.spark_ddl(wanted))
    known = found if found.native else replace(found, native=types.short(found.type))
    return exactly(value, known, replace(known, type=wanted))


def is_plain(found: DataType, wanted: DataType) -> bool:
    """Whether a cast preserves every possible value: to a wider type, or to the text (or the bytes) of a value."""
    match found, wanted:
        case Array(old), Array(new):
            return is_plain(old, new)
        case Struct(old_fields), Struct(new_fields):
            alike = [name for name, _ in old_fields] == [name for name, _ in new_fields]
            return alike and all(is_plain(old, new) for (_, old), (_, new) in zip(old_fields, new_fields, strict=True))
        case types.Scalar(), Decimal(precision, scale) if found in _DIGITS:
            return precision - scale >= _DIGITS[found]
        case ((types.INT8 | types.INT16 | types.INT32), types.DOUBLE):
            return True
        case _, types.STRING:
            return found != types.BINARY
        case types.STRING, types.BINARY:
            return True
        case _:
            return found == wanted or types.is_wider(wanted, found)
