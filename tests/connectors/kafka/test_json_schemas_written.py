"""JSON Schemas of columns: what they say, and how they continue the version before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.kafka.encodings.json_schema import JsonSchema
from flowctl.connectors.kafka.registry import Schema
from flowctl.connectors.kafka.sink.json_schema import RegisteredJsonSerializer, schema_text
from flowctl.connectors.kafka.sink.schema import RowType
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

ID, NAME = Column("id", types.INT64), Column("name", types.STRING)


def text(*columns: Column, versions: Iterable[str] = (), nullable: bool = True) -> str:
    row = RowType("orders.v1", columns, nullable=nullable)
    return schema_text(row, (Schema(at, at, "JSON", one) for at, one in enumerate(versions)))


def properties(found: str) -> dict[str, Any]:
    return json.loads(found)["properties"]  # type: ignore[no-any-return]


def test_a_schema_says_what_json_can_say() -> None:
    assert json.loads(text(ID, Column("price", Decimal(9, 2)), Column("at", types.TIMESTAMP_NTZ))) == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "orders.v1",
        "type": "object",
        "properties": {
            "id": {"type": ["integer", "null"]},
            "price": {"type": ["string", "null"], "format": "decimal", "precision": 9, "scale": 2},
            "at": {"type": ["string", "null"], "format": "date-time-local"},
        },
        "additionalProperties": False,
    }
    key = json.loads(text(ID, nullable=False))
    assert (key["properties"], key["required"]) == ({"id": {"type": "integer"}}, ["id"])


def test_a_source_reads_the_types_from_it() -> None:
    """Integers have no width, and bytes are text."""
    inner = Struct((("a", types.INT64), ("b", Array(types.STRING))))
    kinds: dict[DataType, DataType] = {
        types.INT32: types.INT64,
        types.FLOAT: types.DOUBLE,
        types.BINARY: types.STRING,
        **{
            kind: kind
            for kind in (types.BOOL, types.INT64, types.DOUBLE, types.STRING, types.DATE, types.TIMESTAMP,
                         types.TIMESTAMP_NTZ, Decimal(38, 10), Array(types.INT64), inner)
        },
    }  # fmt: skip
    columns = [Column(f"c{at}", kind) for at, kind in enumerate(kinds)]
    read = JsonSchema(text(*columns)).fields
    assert [field.type for field in read.values()] == list(kinds.values())


def test_no_property_is_removed() -> None:
    one = text(ID, NAME)
    two = text(ID, Column("city", types.STRING), versions=[one])
    assert list(properties(two)) == ["id", "name", "city"]
    assert text(ID, Column("city", types.STRING), versions=[two, one]) == two
    assert text(NAME, ID, versions=[one]) == one


def test_what_a_subject_says_of_other_properties_stays() -> None:
    open_ = json.loads(text(ID))
    for given, kept in ((True, True), (False, False), (None, True)):
        open_["additionalProperties"] = given
        newest = json.dumps({name: of for name, of in open_.items() if of is not None})
        assert json.loads(text(ID, NAME, versions=[newest]))["additionalProperties"] is kept


def test_objects_within_continue_too() -> None:
    def of(*fields: tuple[str, DataType]) -> Column:
        return Column("lines", Array(Struct(fields)))

    one = text(of(("a", types.INT64), ("b", types.STRING)))
    two = text(of(("a", types.INT64), ("c", types.DATE)), versions=[one])
    assert list(properties(two)["lines"]["items"]["properties"]) == ["a", "b", "c"]


def test_values_are_objects_after_the_id() -> None:
    rows = pa.RecordBatch.from_pylist([{"id": 1, "name": "ü"}, {"id": None, "name": None}], arrow_schema([ID, NAME]))
    made = RegisteredJsonSerializer("", b"\x00\x00\x00\x00\x07")(rows, [ID, NAME]).to_pylist()
    assert made == [b'\x00\x00\x00\x00\x07{"id":1,"name":"\xc3\xbc"}', b'\x00\x00\x00\x00\x07{"id":null,"name":null}']
