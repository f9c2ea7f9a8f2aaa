"""JSON Schemas of a registry as columns, and the objects behind their ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.encodings.json_schema import JsonSchema, RegisteredJsonDecoder
from flowctl.connectors.kafka.schema_ids import HEADER_BYTES, schema_id
from flowctl.connectors.kafka.unfit import NO_SCHEMA_ID, Refused, Unreadable
from flowctl.connectors.written_fields import WriterSchema
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column


def schema(**properties: Any) -> str:
    definitions = {
        "line": {"type": "object", "properties": {"sku": {"type": "string"}}},
        "loop": {"$ref": "#/$defs/loop"},
    }
    return json.dumps({"type": "object", "title": "Order", "properties": properties, "$defs": definitions})


@pytest.mark.parametrize(
    ("property", "type"),
    [
        ({"type": "integer"}, "int64"),
        ({"type": ["null", "number"]}, "double"),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "bool"),
        ({"type": "string", "format": "date"}, "date32[day]"),
        ({"type": "string", "format": "date-time"}, "timestamp[us, tz=UTC]"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "list<item: int64>"),
        ({"$ref": "#/$defs/line"}, "struct<sku: string>"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "struct<a: string>"),
    ],
)
def test_types(property: Any, type: str) -> None:
    assert {name: str(one.type) for name, one in JsonSchema(schema(a=property)).fields.items()} == {"a": type}


@pytest.mark.parametrize(
    "property",
    [
        {"type": ["string", "integer"]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object"},
        {"$ref": "#/$defs/loop"},
        {"$ref": "other.json"},
        {"$ref": "#/$defs/nobody"},
        {"type": "array"},
        {},
        True,
    ],
)
def test_a_field_without_a_single_type_is_to_be_declared(property: Any) -> None:
    with pytest.raises(TableError, match=r"field in\.a has no single type"):
        JsonSchema(schema(**{"in": {"type": "object", "properties": {"a": property}}}))


@pytest.mark.parametrize("text", ["", "1", '{"type": "string"}', '{"type": "array", "items": {"type": "string"}}'])
def test_a_text_that_describes_no_object(text: str) -> None:
    with pytest.raises(TableError, match="the schema"):
        JsonSchema(text)


class Writers:
    """All ids are known."""

    def of(self, value: bytes) -> tuple[int, WriterSchema, bytes]:
        id = schema_id(value)
        if id is None:
            raise Unreadable(NO_SCHEMA_ID)
        return id, JsonSchema(schema(id={"type": "integer"})), value[HEADER_BYTES:]


def test_the_objects_behind_the_ids() -> None:
    decoder, columns = RegisteredJsonDecoder(Writers(), JsonDecoder()), [Column("id", types.INT64)]
    good = b'\x00\x00\x00\x00\x07{"id": 1}'
    assert decoder.decoded([good, None], columns)[0].to_pylist() == [1, None]
    for bad, error in ((b'{"id": 1}', "no_schema_id"), (b"\x00\x00\x00\x00\x07nonsense", "not_json")):
        with pytest.raises(Refused) as refused:
            decoder.decoded([good, bad], columns)
        assert [*refused.value.whys] == [1]
        unfit = decoder.unfit(bad, columns)
        assert unfit is not None
        assert unfit.error == error
