"""Schemas of Avro: their fields in flowctl's types, and values written with them.

Source of the types: the Avro specification 1.12 (logical types), and "Data type mappings" in the documentation of
Debezium's connectors for the names that Kafka Connect adds to them (`connect.name`).
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import json
import re
import struct
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from flowctl.connectors.written_fields import Field, record
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.types import Decimal, Struct

_EXACT = decimal.Context(prec=1000, traps=[decimal.Inexact, decimal.InvalidOperation])
_PRIMITIVES = {
    "boolean": types.BOOL,
    "int": types.INT32,
    "long": types.INT64,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "bytes": types.BINARY,
    "string": types.STRING,
}
_AS_JSON = "values of several types are read as JSON"
#: What fastavro raises for bytes that are no value of a schema.
_ERRORS = (
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    StopIteration,
    TypeError,
    ValueError,
    struct.error,
)


class AvroSchema:
    """``references`` are the schemas that ``text`` refers to, each after those that it needs itself."""

    def __init__(self, text: str, references: Mapping[str, str] | None = None, *, value: str = "value") -> None:
        """``value`` names the field of a schema that is no record. Raises ``TableError`` for what is no schema."""
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType

        self._named: dict[str, Any] = {}
        try:
            for one in (references or {}).values():
                fastavro.parse_schema(json.loads(one), self._named)
            whole = fastavro.parse_schema(json.loads(text), self._named)
            self._plain = fastavro.parse_schema(_without_logical_types(whole, set(), self._named))
        except (json.JSONDecodeError, SchemaParseException, UnknownType, TypeError, KeyError) as error:
            raise TableError(f"the schema is not valid Avro: {error}", hint="Correct the schema") from error
        found = self._field(whole, ())
        self.name = str(whole["name"]) if isinstance(whole, dict) and "name" in whole else _native(whole)
        is_record = isinstance(found.type, Struct)
        self._value = "" if is_record else value
        self.fields: Mapping[str, Field] = found.fields if is_record else {value: found}

    def parsed(self, data: bytes) -> Mapping[str, Any]:
        stream = io.BytesIO(data)
        (found,) = self.values(stream, 1)
        if stream.tell() != len(data):
            raise ValueError("there are more bytes than the value has")
        return found

    def values(self, stream: io.BytesIO, count: int) -> list[Mapping[str, Any]]:
        """So many values that follow each other, as :meth:`parsed` returns one."""
        read, plain, value = self._read, self._plain, self._value
        try:
            found = [read(stream, plain, None) for _ in range(count)]
        except _ERRORS as error:
            raise ValueError("the bytes are no value of the schema") from error
        return [{value: one} for one in found] if value else found

    @cached_property
    def _read(self) -> Any:
        from fastavro import schemaless_reader

        return schemaless_reader

    def _field(self, schema: Any, outer: tuple[str, ...]) -> Field:
        """``outer`` are the names of the records that it is in."""
        if isinstance(schema, str) and schema not in _PRIMITIVES and schema != "null":
            schema = self._named[schema]
        if isinstance(schema, list):
            branches = [one for one in schema if one != "null"]
            return self._field(branches[0], outer) if len(branches) == 1 else _json(schema)
        if isinstance(schema, str):
            return Field(_PRIMITIVES.get(schema, types.STRING), schema)
        kind, name = schema["type"], schema.get("name", "")
        if named := _of_connect(schema):
            return named
        if logical := _logical(schema):
            return logical
        match kind:
            case "record" | "error":
                if name in outer or not schema["fields"]:
                    return _json(schema)
                return record({one["name"]: self._of_record(one, (*outer, name)) for one in schema["fields"]}, name)
            case "enum":
                return Field(types.STRING, "enum")
            case "fixed":
                return Field(types.BINARY, "fixed")
            case "array":
                return self._field(schema["items"], outer).array()
            case "map":
                return _json(schema)
            case _:
                return self._field(kind, outer)

    def _of_record(self, schema: Mapping[str, Any], outer: tuple[str, ...]) -> Field:
        found = self._field(schema["type"], outer)
        default = _default(schema.get("default"), schema["type"])
        if default is not None and found.convert:
            default = found.convert(default)
        return replace(found, default=default)


def _native(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _json(schema: Any) -> Field:
    return Field(types.STRING, "union" if isinstance(schema, list) else _native(schema), _AS_JSON, True, _json_text)


def _json_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, default=_base64, ensure_ascii=False)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _logical(schema: Mapping[str, Any]) -> Field | None:
    """None: it has no logical type, or none that Avro knows for its type; which is to be ignored then."""
    logical, kind = schema.get("logicalType"), schema["type"]
    match logical, kind:
        case "decimal", "bytes" | "fixed":
            return _decimal(schema["precision"], schema.get("scale", 0))
        case "date", "int":
            return Field(types.DATE, "date")
        case "time-millis", "int":
            return Field(types.STRING, str(logical), "a time of day is read as text", True, _time(1_000))
        case "time-micros", "long":
            return Field(types.STRING, str(logical), "a time of day is read as text", True, _time(1))
        case "timestamp-millis", "long":
            return Field(types.TIMESTAMP, str(logical), convert=_microseconds)
        case "timestamp-micros", "long":
            return Field(types.TIMESTAMP, str(logical))
        case "local-timestamp-millis", "long":
            return Field(types.TIMESTAMP_NTZ, str(logical), convert=_microseconds)
        case "local-timestamp-micros", "long":
            return Field(types.TIMESTAMP_NTZ, str(logical))
        case "timestamp-nanos" | "local-timestamp-nanos", "long":
            return Field(types.INT64, str(logical), _NANOSECONDS)
        case "uuid", "fixed":
            return Field(types.STRING, "uuid", convert=lambda value: str(uuid.UUID(bytes=value)))
        case _:
            return None


_NANOSECONDS = "nanoseconds since 1970: a timestamp has only microseconds"


def _of_connect(schema: Mapping[str, Any]) -> Field | None:
    match schema.get("connect.name"), schema["type"]:
        case "io.debezium.time.Date", "int":
            return Field(types.DATE, "date")
        case "io.debezium.time.Time", "int":
            return Field(types.STRING, "time", "a time of day is read as text", True, _time(1_000))
        case "io.debezium.time.MicroTime", "long":
            return Field(types.STRING, "time", "a time of day is read as text", True, _time(1))
        case "io.debezium.time.Timestamp", "long":
            return Field(types.TIMESTAMP_NTZ, "timestamp", convert=_microseconds)
        case "io.debezium.time.MicroTimestamp", "long":
            return Field(types.TIMESTAMP_NTZ, "timestamp")
        case "io.debezium.time.NanoTimestamp", "long":
            return Field(types.INT64, "timestamp", _NANOSECONDS)
        case "io.debezium.time.ZonedTimestamp", "string":
            return Field(types.TIMESTAMP, "timestamp with time zone", convert=_instant)
        case "io.debezium.data.VariableScaleDecimal", "record":
            return Field(types.STRING, "numeric", "its scale varies, so it is read as text", True, _scaled_text)
        case _:
            return None


def _decimal(precision: int, scale: int) -> Field:
    native = f"decimal({precision},{scale})"

    def convert(value: bytes) -> decimal.Decimal:
        return _scaled(value, scale)

    if precision <= 38:
        return Field(Decimal(precision, scale), native, convert=convert)
    why = f"{precision} digits are more than a decimal has, so it is read as text"
    return Field(types.STRING, native, why, True, lambda value: f"{convert(value):f}")


def _scaled(unscaled: bytes, scale: int) -> decimal.Decimal:
    return decimal.Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _EXACT)


def _scaled_text(value: Mapping[str, Any]) -> str:
    return f"{_scaled(value['value'], value['scale']):f}"


def _microseconds(milliseconds: int) -> int:
    return milliseconds * 1000


def _time(microseconds: int) -> Any:
    def text(value: int) -> str:
        return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value * microseconds)).time().isoformat()

    return text


_FINER = re.compile(r"\.\d{6}\d*[1-9]")


def _instant(text: str) -> dt.datetime:
    """Raises ``ValueError`` for what is not exactly an instant."""
    found = dt.datetime.fromisoformat(text)
    if found.tzinfo is None or _FINER.search(text):
        raise ValueError("no instant in microseconds")
    return found


def _default(value: Any, schema: Any) -> Any:
    """A default as a parser would return it. Source: "Complex types", Records, in Avro's specification."""
    first = schema[0] if isinstance(schema, list) and schema else schema
    kind = first.get("type") if isinstance(first, dict) else first
    return value.encode("latin-1") if kind in ("bytes", "fixed") and isinstance(value, str) else value


def _without_logical_types(schema: Any, seen: set[str], named: Mapping[str, Any]) -> Any:
    """The same schema, whose values a parser returns as they are stored. Names of other schemas are written out."""
    if isinstance(schema, list):
        return [_without_logical_types(one, seen, named) for one in schema]
    if isinstance(schema, str):
        return schema if schema in seen or schema not in named else _without_logical_types(named[schema], seen, named)
    if name := schema.get("name"):
        if name in seen:
            return name
        seen.add(name)
    dropped = ("logicalType", "precision", "scale", "default", "aliases", "doc")
    kept = {key: value for key, value in schema.items() if key not in dropped and not key.startswith("__")}
    for key in ("type", "items", "values"):
        if key in kept and isinstance(kept[key], dict | list | str):
            kept[key] = _without_logical_types(kept[key], seen, named)
    if "fields" in kept:
        kept["fields"] = [
            {"name": one["name"], "type": _without_logical_types(one["type"], seen, named)} for one in kept["fields"]
        ]
    return kept
