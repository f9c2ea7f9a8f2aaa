"""Spark expressions that convert one type to another exactly, or raise a refusal that names the column.

Spark's own casts silently round decimals, ignore what follows a date and drop the zone of a local timestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.connectors.refusal import refusal
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression


def exactly(value: Expression, found: Column, wanted: Column, hint: str = "") -> Expression:
    """Converts ``value`` from ``found.type`` to ``wanted.type``; the session has ANSI on and is in UTC. ``hint``
    replaces the default hint, which suggests `columns.types`."""
    from pyspark.sql import functions as f

    if found.type == wanted.type:
        return value
    require_possible(found, wanted)
    kind = types.spark_ddl(wanted.type)
    refused = f.raise_error(f.lit(refusal(found.name, found.native, wanted.type, hint=hint))).cast(kind)
    cast = value.try_cast(kind)
    if types.BOOL in (found.type, wanted.type) and types.is_number(found.type, wanted.type):
        is_flag = found.type == types.BOOL
        # Sail has no cast between flags and decimals.
        cast = value.cast("int").try_cast(kind) if is_flag else value == 1
        same = cast.isNotNull() if is_flag else value.isin(0, 1)
    elif found.type == types.STRING:
        same = value.rlike(text_shape(wanted.type)) & cast.isNotNull()
        if wanted.type in (types.FLOAT, types.DOUBLE):  # 1e999 is not infinity
            same &= value.contains("Infinity") | (f.abs(cast) != float("inf"))
    elif wanted.type == types.STRING:
        same = cast.isNotNull()
    else:
        same = cast.try_cast(types.spark_ddl(found.type)).eqNullSafe(value)
    return f.when(value.isNull(), f.lit(None).cast(kind)).when(same, cast).otherwise(refused)


def require_possible(found: Column, wanted: Column) -> None:
    """Raises ``TableError`` if the two types share no values: bytes have no canonical text, and text no canonical
    bytes."""
    is_nested = isinstance(found.type, Array | Struct) or isinstance(wanted.type, Array | Struct)
    if is_nested or types.BINARY in (found.type, wanted.type):
        raise TableError(
            f"column {found.name} cannot be read as {types.short(wanted.type)}: it is {types.short(found.type)}",
            hint="Read it as it is, or as string",
        )


def text_shape(kind: DataType) -> str:
    """A regular expression (Java and RE2) for the texts that a cast reads without dropping any part."""
    match kind:
        case Decimal(_, scale):
            return rf"^\s*[+-]?(\d+(\.\d{{0,{scale}}}0*)?|\.\d{{1,{max(scale, 1)}}}0*)\s*$"
        case types.INT8 | types.INT16 | types.INT32 | types.INT64:
            return r"^\s*[+-]?\d+\s*$"
        case types.FLOAT | types.DOUBLE:
            return r"^\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|Infinity|NaN)\s*$"
        case types.DATE:
            return rf"^{_DAY}$"
        case types.TIMESTAMP_NTZ:
            return rf"^{_MOMENT}$"
        case types.TIMESTAMP:
            return rf"^{_MOMENT}(Z|[+-]\d{{2}}(:?\d{{2}})?)?$"
        case _:
            return r"(?i)^\s*(true|false|t|f|yes|no|y|n|1|0)\s*$"


#: Readers of dates do not agree on a year 0.
_DAY = r"(\d{3}[1-9]|\d{2}[1-9]\d|\d[1-9]\d{2}|[1-9]\d{3})-\d{2}-\d{2}"
_MOMENT = _DAY + r"([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?"
