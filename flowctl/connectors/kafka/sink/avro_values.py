"""Rows as Avro: the schema of their columns, and each row after the id under which it is registered."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.sink.schema import RowType, identifier, is_identifier
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa

    from flowctl.connectors.kafka.registry import Schema

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


def schema_text(row: RowType, _versions: Iterable[Schema] = ()) -> str:
    """A record whose fields are null if they are missing, if ``row`` is nullable. Fields go by their names, so earlier
    versions do not matter: equal columns have an equal text. Raises ``TableError`` for a name of a column that Avro
    does not have."""
    fields = [(column.name, column.type) for column in row.columns]
    return json.dumps(_record(identifier(row.name), fields, row.nullable), ensure_ascii=False)


def _record(name: str, fields: Sequence[tuple[str, DataType]], nullable: bool = True) -> dict[str, Any]:
    """The records within have the names of their fields, each after that of the record that it is in."""
    made: list[dict[str, Any]] = []
    for field, kind in fields:
        if not is_identifier(field):
            quoted = json.dumps(field, ensure_ascii=False)
            raise TableError(
                f"column {field} has a name that Avro does not have: letters, digits and _, and no digit first",
                hint=f"Rename it: columns: {{rename: {{{quoted}: {identifier(field)}}}}}",
            )
        of = _kind(kind, f"{name}_{field}")
        made.append({"name": field, "type": ["null", of], "default": None} if nullable else {"name": field, "type": of})
    return {"type": "record", "name": name, "fields": made}


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
        self._header, self._text = header, text

    def __reduce__(self) -> tuple[type, tuple[str, bytes]]:
        """The writer's function belongs to the process."""
        return type(self), (self._text, self._header)

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
