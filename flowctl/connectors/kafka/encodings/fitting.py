"""Values of one schema as the columns of a table: by name, and exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.kafka.encodings.json_values import typed
from flowctl.connectors.written_fields import Field
from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa


def fitted(values: pa.Array, field: Field, kind: DataType, reader: Mapping[str, Field]) -> pa.Array:
    """``values`` of a writer's ``field`` as ``kind``. ``reader`` are the fields of the same record, or of the records
    in the same list, in the schema that a table was planned by, with their defaults. Raises ``pyarrow.ArrowInvalid``
    for a value that is not exactly of it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from flowctl.connectors.decimal_text import decimals

    if field.type == kind:
        return values
    match field.type, kind:
        case Struct(fields), Struct(wanted):
            places = [name for name, _ in fields]
            parts = []
            for name, of in wanted:
                if name in field.fields:
                    part = pc.struct_field(values, [places.index(name)])
                    inner = reader[name].fields if name in reader else {}
                    parts.append(fitted(part, field.fields[name], of, inner))
                elif name in places:
                    parts.append(pc.struct_field(values, [places.index(name)]).cast(arrow_type(of)))
                else:
                    parts.append(constant(reader.get(name), of, len(values)))
            return pa.StructArray.from_arrays(parts, [name for name, _ in wanted], mask=values.is_null())
        case Array(one), Array(other):
            items = fitted(values.values, replace(field, type=one), other, reader)
            return pa.ListArray.from_arrays(values.offsets, items, mask=values.is_null())
        case types.STRING, Decimal():
            return decimals(values, arrow_type(kind))
        case (one, Decimal(_, scale)) if one in types.INTEGERS or isinstance(one, Decimal):
            exact = values.cast(pa.decimal256(76, max(scale, one.scale if isinstance(one, Decimal) else 0)))
            return exact.cast(arrow_type(kind))
        case (one, other) if one in types.INTEGERS and other in (*types.INTEGERS, *types.FLOATS, types.STRING):
            return values.cast(arrow_type(kind))
        case (types.FLOAT, types.DOUBLE) | (types.BINARY, types.STRING) | (types.STRING, types.BINARY):
            return values.cast(arrow_type(kind))
        case types.STRING, (types.DATE | types.TIMESTAMP | types.TIMESTAMP_NTZ):
            return typed(values, kind)
        case _:
            raise pa.ArrowInvalid(f"{field.type} is not {kind}")


def constant(field: Field | None, kind: DataType, count: int) -> pa.Array:
    """The field's default as ``kind``, or nothing, so often. Raises as :func:`fitted`."""
    import pyarrow as pa

    if field is None or field.default is None:
        return pa.nulls(count, arrow_type(kind))
    default = pa.array([field.default], arrow_type(field.type))
    return fitted(default, field, kind, field.fields).take(pa.array([0] * count, pa.int64()))
