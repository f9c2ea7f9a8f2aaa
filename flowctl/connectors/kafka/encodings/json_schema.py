"""JSON Schemas of a registry: their fields in flowctl's types, and values that begin with the id of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.encodings.decoder import read_each
from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.encodings.written import Writers
from flowctl.connectors.kafka.unfit import Refused, Unfit, Unreadable
from flowctl.connectors.written_fields import Field, record
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Decimal, Struct

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {"string": types.STRING, "integer": types.INT64, "number": types.DOUBLE, "boolean": types.BOOL}
#: By `format`, as OpenAPI's registry of formats names them.
_TEXTS = {"date": types.DATE, "date-time": types.TIMESTAMP, "date-time-local": types.TIMESTAMP_NTZ}


class JsonSchema:
    """Raises ``TableError`` for a ``text`` that does not say which fields its values have. All have one name: a title
    may change."""

    name = "JSON"

    def __init__(self, text: str) -> None:
        try:
            whole = json.loads(text)
        except json.JSONDecodeError as error:
            raise TableError(f"the schema is no JSON: {error}", hint="Correct the schema") from error
        found = _field(whole, whole, "", ())
        if not isinstance(found.type, Struct):
            raise TableError("the schema is not of an object with properties", hint="Declare `format.schema`")
        self.fields: Mapping[str, Field] = found.fields

    def parsed(self, data: bytes) -> Mapping[str, Any]:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise ValueError("no object")
        return found


def _field(schema: Any, whole: Any, path: str, outer: tuple[str, ...]) -> Field:
    """``whole`` is what references lead into, ``outer`` the references on the way here."""
    if not isinstance(schema, dict):
        raise _vague(path)
    if reference := schema.get("$ref"):
        if reference in outer or not str(reference).startswith("#/"):
            raise _vague(path)
        found = whole
        for part in reference[2:].split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        return _field(found, whole, path, (*outer, reference))
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            branches = [one for one in schema[choice] if one != {"type": "null"}]
            if len(branches) != 1:
                raise _vague(path)
            return _field(branches[0], whole, path, outer)
    kind = schema.get("type")
    if isinstance(kind, list):
        listed = [one for one in kind if one != "null"]
        kind = listed[0] if len(listed) == 1 else None
    match kind:
        case "string":
            return Field(_text_type(schema), "string")
        case "integer" | "number" | "boolean":
            return Field(_TYPES[kind], kind)
        case "array":
            return _field(schema.get("items"), whole, path, outer).array()
        case "object" if schema.get("properties"):
            properties = schema["properties"].items()
            return record({name: _field(one, whole, f"{path}.{name}", outer) for name, one in properties}, "object")
        case _:
            raise _vague(path)


def _text_type(schema: Mapping[str, Any]) -> DataType:
    format, precision, scale = (schema.get(name) for name in ("format", "precision", "scale"))
    if format == "decimal" and isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= 38:
        return Decimal(precision, scale) if precision else types.STRING
    return _TEXTS.get(str(format), types.STRING)


def _vague(path: str) -> TableError:
    what = f"the schema's field {path[1:]} has no single type" if path else "the schema is not of one type"
    return TableError(what, hint="Declare the columns, with `format: {schema: {name: string}}`")


@dataclass(frozen=True)
class RegisteredJsonDecoder:
    """JSON objects behind the ids of their schemas."""

    writers: Writers
    inner: JsonDecoder

    def decoded(self, values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
        objects, refused = read_each(values, lambda value: self.writers.of(value)[2])
        if refused:
            raise Refused(refused)
        return self.inner.decoded(objects, columns)

    def unfit(
        self, value: bytes | None, columns: Sequence[Column], envelope: str = "", key: Sequence[str] = ()
    ) -> Unfit | None:
        if value is None:
            return None
        try:
            data = self.writers.of(value)[2]
        except Unreadable as error:
            return error.why
        return self.inner.unfit(data, columns, envelope, key)
