"""The bounds of a data file's columns, as its manifest has them. Source: Iceberg table spec, *Bounds*."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema

_EPOCH = dt.date(1970, 1, 1)


def bounds_of(schema: Schema, file: DataFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """The least and the greatest values by column, of integers, decimals, days and texts. Those of texts may be cut
    off, but still bound them."""
    return _decoded(schema, file.lower_bounds), _decoded(schema, file.upper_bounds)


def _decoded(schema: Schema, bounds: dict[int, bytes] | None) -> dict[str, Any]:
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, StringType

    found: dict[str, Any] = {}
    for field in schema.fields:
        value, kind = (bounds or {}).get(field.field_id), field.field_type
        if value is None:
            continue
        match kind:
            case IntegerType() | LongType():
                # A column that was promoted from int to long has bounds of four bytes in its older files.
                found[field.name] = int.from_bytes(value, "little", signed=True)
            case DecimalType() | StringType():
                found[field.name] = from_bytes(kind, value)
            case DateType():
                found[field.name] = _day(int.from_bytes(value, "little", signed=True))
            case _:
                continue
    return {name: value for name, value in found.items() if value is not None}


def _day(days: int) -> dt.date | None:
    """None for a day that Python cannot represent."""
    try:
        return _EPOCH + dt.timedelta(days=days)
    except OverflowError:
        return None
