"""Maps Delta's types and names to flowctl's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct

#: A log action as JSON.
Action = dict[str, Any]

_REFUSED = " ,;{}()\n\t="
_SIMPLE = {
    "boolean": types.BOOL, "byte": types.INT8, "short": types.INT16, "integer": types.INT32, "long": types.INT64,
    "float": types.FLOAT, "double": types.DOUBLE, "string": types.STRING, "binary": types.BINARY, "date": types.DATE,
    "timestamp": types.TIMESTAMP, "timestamp_ntz": types.TIMESTAMP_NTZ,
}  # fmt: skip


def widens(old: DataType, new: DataType) -> bool:
    """Whether Delta's type widening can make this change in place. Its list (docs.delta.io, *Type widening*) has every
    scalar change that flowctl calls wider; it also has integers to decimal or double, which flowctl never requests."""
    return not isinstance(old, (Array, Struct)) and types.is_wider(new, old)


def refused_name(name: str) -> str | None:
    """Why a column cannot have this name. Column mapping would allow it, but excludes readers that lack it."""
    refused = sorted({char for char in name if char in _REFUSED})
    if not refused:
        return None
    return (
        f"Delta column names cannot have {' or '.join(repr(char) for char in refused)}; rename it with columns.rename"
    )


def refused_path(path: str, *, is_local: bool) -> str | None:
    """Why no table can have this path. `deltalake` 1.6.6 treats a backslash as a slash and decodes ``%25``, so it looks
    for the log elsewhere than Spark. Object stores limit the whole key only."""
    if _UNREACHABLE.search(path):
        return (
            "Delta readers cannot open a path with a backslash, a control character, or % before two hexadecimal digits"
        )
    is_long = is_local and any(len(name.encode()) > 255 for name in path.split("/"))
    return "file names are limited to 255 bytes" if is_long else None


_UNREACHABLE = re.compile(r"[\\\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")


def columns_of(schema: str) -> tuple[Column, ...]:
    """The columns of a schema in Delta's JSON. A type that flowctl does not support (map, variant) is shown as text."""
    return tuple(_column(field) for field in json.loads(schema)["fields"])


def has_nested_not_null(schema: str) -> bool:
    """Whether a part of a column may not be null, which ``columns_of`` does not show."""
    return any(_holds_not_null(field["type"]) for field in json.loads(schema)["fields"])


def _holds_not_null(written: Any) -> bool:
    match written:
        case {"type": "array", "elementType": item, "containsNull": may}:
            return not may or _holds_not_null(item)
        case {"type": "map", "valueType": item, "valueContainsNull": may}:
            return not may or _holds_not_null(item)
        case {"type": "struct", "fields": fields}:
            return any(not field["nullable"] or _holds_not_null(field["type"]) for field in fields)
        case _:
            return False


def _column(field: Mapping[str, Any]) -> Column:
    native = field["type"] if isinstance(field["type"], str) else json.dumps(field["type"])
    try:
        return Column(field["name"], _data_type(field["type"]), field["nullable"], native=native)
    except ValueError as error:
        return Column(field["name"], types.STRING, field["nullable"], native, as_text=True, note=str(error))


def _data_type(written: Any) -> DataType:
    match written:
        case str() as name if name in _SIMPLE:
            return _SIMPLE[str(name)]
        case str() as name if name.startswith("decimal("):
            return types.parse(str(name))
        case {"type": "array", "elementType": item}:
            return Array(_data_type(item))
        case {"type": "struct", "fields": fields}:
            return Struct(tuple((field["name"], _data_type(field["type"])) for field in fields))
        case _:
            name = written if isinstance(written, str) else written.get("type")
            raise ValueError(f"flowctl does not carry Delta's type {name}")


def schema_json(columns: tuple[Column, ...]) -> str:
    """The schema for a table's metadata; every column is nullable, as flowctl creates them."""
    return json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": column.name, "type": _written(column.type), "nullable": True, "metadata": {}}
                for column in columns
            ],
        }
    )


def _written(kind: DataType) -> Any:
    match kind:
        case Array(item):
            return {"type": "array", "elementType": _written(item), "containsNull": True}
        case Struct(fields):
            parts = [{"name": name, "type": _written(of), "nullable": True, "metadata": {}} for name, of in fields]
            return {"type": "struct", "fields": parts}
        case types.Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case _:
            return next(name for name, simple in _SIMPLE.items() if simple == kind)
