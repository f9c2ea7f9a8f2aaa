"""Rows as JSON whose schema is registered: the JSON Schema of their columns, and each row after its id.

A registry compares a schema with the versions before it. Under BACKWARD, its default, a property may be added where
others are not allowed, and under FORWARD where they are; removing one is the reverse. So no property is ever removed,
and a subject keeps what its newest version says of other properties; the first one allows none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors import json_text
from flowctl.connectors.kafka.sink.schema import RowType
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa

    from flowctl.connectors.kafka.registry import Schema

#: Formats are named as in OpenAPI's registry of formats. JSON has one number for all widths: a wider type is no change.
_KINDS: dict[DataType, dict[str, Any]] = {
    types.BOOL: {"type": "boolean"},
    **{kind: {"type": "integer"} for kind in (types.INT8, types.INT16, types.INT32, types.INT64)},
    types.FLOAT: {"type": "number"},
    types.DOUBLE: {"type": "number"},
    types.STRING: {"type": "string"},
    types.BINARY: {"type": "string", "contentEncoding": "base64"},
    types.DATE: {"type": "string", "format": "date"},
    types.TIMESTAMP: {"type": "string", "format": "date-time"},
    types.TIMESTAMP_NTZ: {"type": "string", "format": "date-time-local"},
}


def schema_text(row: RowType, versions: Iterable[Schema] = ()) -> str:
    """An object whose properties may be null, or missing, if ``row`` is nullable. ``versions`` are those of its
    subject, the newest first."""
    made = _object([(column.name, column.type) for column in row.columns], nullable=row.nullable)
    if not row.nullable:
        made["required"] = [column.name for column in row.columns]
    newest = next(iter(versions), None)
    if newest is not None and newest.kind == "JSON":
        made = _keep_properties(made, json.loads(newest.text))
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", "title": row.name, **made}
    return json.dumps(whole, ensure_ascii=False)


class RegisteredJsonSerializer:
    """``header`` comes before each object."""

    def __init__(self, _text: str, header: bytes) -> None:
        self._header = header

    def __call__(self, rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        objects = json_text.objects(rows, columns).cast(pa.binary())
        return pc.binary_join_element_wise(pa.scalar(self._header), objects, pa.scalar(b""))


def _object(fields: Sequence[tuple[str, DataType]], *, nullable: bool = True) -> dict[str, Any]:
    properties = {name: _or_null(_kind(kind)) if nullable else _kind(kind) for name, kind in fields}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _kind(kind: DataType) -> dict[str, Any]:
    match kind:
        case Decimal(precision, scale):
            return {"type": "string", "format": "decimal", "precision": precision, "scale": scale}
        case Array(item):
            return {"type": "array", "items": _or_null(_kind(item))}
        case Struct(fields):
            return _object(fields)
        case _:
            return _KINDS[kind]


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _keep_properties(schema: dict[str, Any], newest: Any) -> dict[str, Any]:
    """With the properties that only ``newest`` has, in its order; and what that says of others."""
    if not isinstance(newest, dict):
        return schema
    made = dict(schema)
    if "properties" in schema and isinstance(newest.get("properties"), dict):
        own, earlier = schema["properties"], newest["properties"]
        kept = {name: _keep_properties(own[name], of) if name in own else of for name, of in earlier.items()}
        made["properties"] = {**kept, **{name: of for name, of in own.items() if name not in earlier}}
        made["additionalProperties"] = newest.get("additionalProperties", True)
    if "items" in schema and "items" in newest:
        made["items"] = _keep_properties(schema["items"], newest["items"])
    return made
