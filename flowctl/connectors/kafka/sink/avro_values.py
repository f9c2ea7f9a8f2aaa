"""Rows as Avro: the schema of their columns, and each row after the id under which it is registered."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS: dict[DataType, Any] = {
    types.BOOL: "boolean",
    **dict.fromkeys((types.INT8, types.INT16, types.INT32), "int"),
    types.INT64: "long",
    types.FLOAT: "float",
    types.DOUBLE: "double",
    types.STRING: "string",
    types.BINARY: "bytes",
    types.DATE: {"type": "int", "logicalType": "date"},
    types.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    types.TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def schema_text(name: str, columns: Sequence[Column], *, nullable: bool = True) -> str:
    """A record whose fields may be null if ``nullable``, and are if they are missing. Equal columns have an equal text.
    Raises ``TableError`` for a name of a column that Avro does not have."""
    whole = _record(_suggested(name), [(column.name, column.type) for column in columns], nullable)
    return json.dumps(whole, ensure_ascii=False)


def _record(name: str, fields: Sequence[tuple[str, DataType]], nullable: bool = True) -> dict[str, Any]:
    """The records within have the names of their fields, each after that of the record that it is in."""
    made: list[dict[str, Any]] = []
    for field, kind in fields:
        if not _NAME.fullmatch(field):
            quoted = json.dumps(field, ensure_ascii=False)
            raise TableError(
                f"column {field} has a name that Avro does not have: letters, digits and _, and no digit first",
                hint=f"Rename it: columns: {{rename: {{{quoted}: {_suggested(field)}}}}}",
            )
        of = _kind(kind, f"{name}_{field}")
        made.append({"name": field, "type": ["null", of], "default": None} if nullable else {"name": field, "type": of})
    return {"type": "record", "name": name, "fields": made}


def _suggested(name: str) -> str:
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return found if _NAME.fullmatch(found) else f"_{found}"


def _kind(kind: DataType, name: str) -> Any:
    match kind:
        case Decimal(precision, scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case Array(item):
            return {"type": "array", "items": ["null", _kind(item, name)]}
        case Struct(fields):
            return _record(name, fields)
        case _:
            return _KINDS[kind]


class AvroSerializer:
    """``header`` comes before each value. ``text`` is the schema of the columns."""

    def __init__(self, text: str, header: bytes) -> None:
        from fastavro import parse_schema, schemaless_writer

        self._schema = parse_schema(json.loads(text))
        self._write = schemaless_writer
        self._header = header

    def __call__(self, rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.Array:
        import pyarrow as pa

        names = [column.name for column in columns]
        lists = [_stored(rows.column(column.name), column).to_pylist() for column in columns]
        made = []
        for values in zip(*lists, strict=True):
            stream = io.BytesIO()
            stream.write(self._header)
            try:
                self._write(stream, self._schema, dict(zip(names, values, strict=True)))
            except (ValueError, TypeError) as error:
                raise TableError(
                    "a row does not fit the Avro schema of its columns", hint="Report this, with the columns' types"
                ) from error
            made.append(stream.getvalue())
        return pa.array(made, pa.binary())


def _stored(values: pa.Array, column: Column) -> pa.Array:
    """As Avro stores them, which needs no objects of Python for each: times and days as numbers."""
    import pyarrow as pa

    match column.type:
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return values.cast(pa.int64())
        case types.DATE:
            return values.cast(pa.int32())
        case _:
            return values
