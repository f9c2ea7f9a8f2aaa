"""Values written with schemas of Protobuf: their types, exactly, with and without the indexes of a registry."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.kafka.encodings.protobuf import ProtobufSchema
from flowctl.connectors.kafka.encodings.written import OneWriter, WrittenDecoder
from flowctl.connectors.kafka.unfit import Refused
from flowctl.errors import TableError
from flowctl.model.table_info import Column
from tests.examples import examples

TEXT = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  int64 id = 1;
  optional string name = 2;
  repeated Line lines = 3;
  google.protobuf.Timestamp at = 4;
  map<string, Line> by_sku = 5;
  State state = 6;
  google.protobuf.Int64Value count = 7;
  uint64 big = 8;
  Order parent = 9;
  bytes raw = 10;
  repeated google.protobuf.Timestamp ats = 11;
  oneof choice { sint32 number = 12; bool flag = 13; }
  google.protobuf.Duration took = 14;
  google.protobuf.Struct any = 15;
  uint32 small = 16;
  Line first = 17;
  enum State { NEW = 0; PAID = 1; }
  message Line { string sku = 1; double price = 2; google.protobuf.Timestamp at = 3; }
}
message Refund { int64 id = 1; message Why { string text = 1; } }
"""
ORDER = ProtobufSchema(TEXT)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def order(**given: Any) -> Any:
    """A message of the schema."""
    return ORDER._class(**given)


def columns_of(schema: ProtobufSchema) -> list[Column]:
    return [field.column(name) for name, field in schema.fields.items()]


def decoded(schema: ProtobufSchema, *values: bytes | None) -> list[dict[str, Any]]:
    columns = columns_of(schema)
    arrays = WrittenDecoder(OneWriter(schema), schema).decoded(list(values), columns)
    assert [array.type for array in arrays] == [arrow_type(column.type) for column in columns]
    lists = [array.to_pylist() for array in arrays]
    return [{one.name: of[at] for one, of in zip(columns, lists, strict=True)} for at in range(len(values))]


def test_types() -> None:
    assert {column.name: str(column.type) for column in columns_of(ORDER)} == {
        "id": "int64",
        "name": "string",
        "lines": "list<item: struct<sku: string, price: double, at: timestamp[us, tz=UTC]>>",
        "at": "timestamp[us, tz=UTC]",
        "by_sku": "string",
        "state": "string",
        "count": "int64",
        "big": "decimal128(20, 0)",
        "parent": "string",
        "raw": "binary",
        "ats": "list<item: timestamp[us, tz=UTC]>",
        "number": "int32",
        "flag": "bool",
        "took": "string",
        "any": "string",
        "small": "int64",
        "first": "struct<sku: string, price: double, at: timestamp[us, tz=UTC]>",
    }


def test_a_message_that_says_nothing_has_the_defaults_of_protobuf() -> None:
    """Fields without presence are 0, empty or false, as for every reader; the others are null."""
    nothing = dict.fromkeys(("name", "at", "count", "parent", "number", "flag", "took", "any", "first"))
    empty = {"id": 0, "lines": [], "by_sku": "{}", "state": "NEW", "big": Decimal(0), "raw": b"", "ats": [], "small": 0}
    assert decoded(ORDER, b"", None) == [{**nothing, **empty}, dict.fromkeys({**nothing, **empty})]


def test_values() -> None:
    line = {"sku": "ü", "price": 2.5, "at": {"seconds": 1, "nanos": 5000}}
    message = order(
        id=-(2**63), name="", lines=[line], at={"seconds": -62135596800}, by_sku={"b": line, "a": {}}, state=7,
        count={"value": 0}, big=2**64 - 1, parent={"id": 2}, raw=b"\xff", ats=[{"seconds": 2}], flag=False,
        took={"seconds": 90, "nanos": 500_000_000}, small=2**32 - 1, first={"sku": "s"}, any={"x": 1.0},
    )  # fmt: skip
    at = EPOCH + dt.timedelta(seconds=1, microseconds=5)
    [found] = decoded(ORDER, message.SerializeToString())
    assert found == {
        "id": -(2**63), "name": "", "lines": [{"sku": "ü", "price": 2.5, "at": at}],
        "at": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        "by_sku": '{"a": {}, "b": {"sku": "ü", "price": 2.5, "at": "1970-01-01T00:00:01.000005Z"}}', "state": "7",
        "count": 0, "big": Decimal(2**64 - 1), "parent": '{"id": "2"}', "raw": b"\xff",
        "ats": [EPOCH + dt.timedelta(seconds=2)], "number": None, "flag": False, "took": "90.500s",
        "any": '{"x": 1.0}', "small": 2**32 - 1, "first": {"sku": "s", "price": 0.0, "at": None},
    }  # fmt: skip


@pytest.mark.parametrize("at", [{"nanos": 1}, {"seconds": 253402300800}])
def test_a_time_that_a_timestamp_does_not_have(at: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        decoded(ORDER, order(at=at).SerializeToString())


@pytest.mark.parametrize(
    ("indexes", "error"),
    [
        (b"\x00", None),
        (b"\x02\x00", None),
        (b"\x02\x02", "other_schema"),
        (b"\x04\x02\x00", "other_schema"),
        (b"\x02\x08", "corrupt"),
        (b"\x06\x00\x00\x00", "corrupt"),
        (b"\x01", "corrupt"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "corrupt"),
        (b"", "corrupt"),
    ],
)
def test_the_indexes_before_a_value_name_its_message(indexes: bytes, error: str | None) -> None:
    """0 alone is short for the first message of the file."""
    schema = ProtobufSchema(TEXT, id=3)
    value = indexes + order(id=5).SerializeToString() if indexes else b""
    if error is None:
        assert decoded(schema, value)[0]["id"] == 5
        return
    with pytest.raises(Refused) as refused:
        decoded(schema, value)
    assert [why and why.error for why in refused.value.whys.values()] == [error]


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=60))
def test_bytes_are_a_value_or_refused(value: bytes) -> None:
    for schema in (ORDER, ProtobufSchema.__new__(ProtobufSchema)):
        if schema is not ORDER:
            schema.__dict__.update({**ORDER.__dict__, "_id": 3})
        try:
            decoded(schema, order(id=1).SerializeToString() if schema is ORDER else None, value)
        except Refused as error:
            assert [*error.whys] == [1]
        except pa.ArrowInvalid:
            pass


def test_a_message_of_a_name_and_files_that_are_imported() -> None:
    assert ProtobufSchema(TEXT, message="shop.Refund").name == "shop.Refund"
    assert ProtobufSchema(TEXT, message="Why").name == "shop.Refund.Why"
    with pytest.raises(TableError, match="no message Nobody") as refused:
        ProtobufSchema(TEXT, message="Nobody")
    assert "shop.Order.Line" in str(refused.value.hint)
    text = 'syntax = "proto3"; import "common/line.proto"; message Order { common.Line line = 1; }'
    line = 'syntax = "proto3"; package common; message Line { string sku = 1; }'
    found = ProtobufSchema(text, {"common/line.proto": line})
    assert str(found.fields["line"].type) == "struct<sku: string>"


def test_a_file_imports_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "line.proto").write_text('syntax = "proto3"; message Line { string sku = 1; }')
    text = 'syntax = "proto3"; import "line.proto"; message Order { Line line = 1; }'
    assert str(ProtobufSchema(text, folder=str(tmp_path)).fields["line"].type) == "struct<sku: string>"


def test_another_version_may_lack_the_message() -> None:
    assert ProtobufSchema(TEXT, message="shop.Refund", or_first=True).name == "shop.Refund"
    assert ProtobufSchema(TEXT, message="shop.Gone", or_first=True).name == "shop.Order"


@pytest.mark.parametrize(
    ("text", "references", "why"),
    [
        ("message {", {}, "not valid Protobuf: flowctl_schema.proto:1:9: Expected message name"),
        ('syntax = "proto3"; import "gone.proto";', {}, "gone.proto"),
        ('syntax = "proto3";', {}, "the schema has no message"),
        ('syntax = "proto3"; message A {}', {"../evil.proto": ""}, "which is no name of a file"),
    ],
)
def test_a_text_that_is_no_schema(text: str, references: dict[str, str], why: str) -> None:
    with pytest.raises(TableError) as refused:
        ProtobufSchema(text, references)
    assert why in str(refused.value)


def test_fields_of_proto2() -> None:
    text = 'syntax = "proto2"; message A { required int32 a = 1; optional string b = 2 [default = "x"]; }'
    assert decoded(ProtobufSchema(text), b"\x08\x05", b"") == [{"a": 5, "b": None}, {"a": None, "b": None}]
