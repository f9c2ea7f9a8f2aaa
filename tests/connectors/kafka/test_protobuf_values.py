"""Rows that are written as Protobuf come back equal, and their fields keep their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.kafka.encodings.protobuf import ProtobufSchema
from flowctl.connectors.kafka.encodings.written import OneWriter, WrittenDecoder
from flowctl.connectors.kafka.registry import Schema
from flowctl.connectors.kafka.sink.protobuf_schema import schema_text
from flowctl.connectors.kafka.sink.protobuf_values import ProtobufSerializer
from flowctl.connectors.kafka.sink.schema import RowType
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct
from tests.connectors.kafka.test_avro_values import KINDS as AVRO_KINDS
from tests.connectors.kafka.test_avro_values import same

NESTED = Struct((("a", types.INT64), ("b", Array(types.STRING)), ("at", types.TIMESTAMP)))
LISTS = st.lists(st.text(), max_size=2)
KINDS: dict[DataType, st.SearchStrategy[Any]] = {
    **{kind: values for kind, values in AVRO_KINDS.items() if not isinstance(kind, Array | Struct)},
    NESTED: st.fixed_dictionaries(
        {"a": st.none() | st.integers(-5, 5), "b": LISTS, "at": st.none() | AVRO_KINDS[types.TIMESTAMP]}
    ),
    Array(NESTED): st.lists(st.fixed_dictionaries({"a": st.integers(-5, 5), "b": LISTS, "at": st.none()}), max_size=2),
    Array(types.STRING): LISTS,
    Array(Decimal(12, 2)): st.lists(AVRO_KINDS[Decimal(12, 2)], max_size=2),
}
TEXTS = (types.DATE, types.TIMESTAMP_NTZ)


def text(*columns: tuple[str, DataType], versions: list[str] | None = None, nullable: bool = True) -> str:
    row = RowType("orders.v1", tuple(Column(name, kind) for name, kind in columns), nullable=nullable)
    return schema_text(row, (Schema(at, at, "PROTOBUF", one) for at, one in enumerate(versions or [])))


def numbers(found: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+);", found.replace('syntax = "', ""))}


@pytest.mark.parametrize("kind", [*KINDS], ids=str)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_values_come_back_equal(kind: DataType, data: st.DataObject) -> None:
    """A list is never null: it would be empty."""
    columns = [Column("v", kind)]
    values = KINDS[kind] if isinstance(kind, Array) else st.none() | KINDS[kind]
    rows = pa.RecordBatch.from_pylist(
        [{"v": value} for value in data.draw(st.lists(values, max_size=6))], arrow_schema(columns)
    )
    found = text(("v", kind))
    written = ProtobufSerializer(found, b"")(rows, columns)
    schema = ProtobufSchema(found, id=1)
    [read] = WrittenDecoder(OneWriter(schema), schema).decoded(written.to_pylist(), columns)
    assert all(same(one, other) for one, other in zip(read.to_pylist(), rows.column("v").to_pylist(), strict=True))


def test_a_schema_tells_null_from_zero() -> None:
    kinds = [("id", types.INT64), ("at", types.TIMESTAMP), ("tags", Array(types.STRING)), ("home", NESTED)]
    assert (
        text(*kinds)
        == """syntax = "proto3";

import "google/protobuf/timestamp.proto";

message orders_v1 {
  optional int64 id = 1;
  optional google.protobuf.Timestamp at = 2;
  repeated string tags = 3;
  optional Home home = 4;
  message Home {
    optional int64 a = 1;
    repeated string b = 2;
    optional google.protobuf.Timestamp at = 3;
  }
}
"""
    )
    assert "\n  int64 id = 1;" in text(("id", types.INT64), nullable=False)


def test_a_null_list_is_empty_and_a_null_in_it_is_refused() -> None:
    column = Column("tags", Array(types.STRING))
    serializer = ProtobufSerializer(text(("tags", column.type)), b"")
    rows = [pa.RecordBatch.from_pylist([{"tags": tags}], arrow_schema([column])) for tags in (None, [], ["a", None])]
    assert [serializer(one, [column]).to_pylist() for one in rows[:2]] == [[b"\x00"], [b"\x00"]]
    with pytest.raises(TableError, match="column tags has a list with a null in it"):
        serializer(rows[2], [column])


A, B, C, D = (("a", types.INT64), ("b", types.STRING), ("c", types.DATE), ("d", types.BOOL))


def test_numbers_stay_when_columns_come_go_and_return() -> None:
    one = text(A, B, C)
    two = text(A, C, D, versions=[one])
    assert numbers(two) == {"a": 1, "c": 3, "d": 4}
    assert "reserved 2;" in two and 'reserved "b";' in two
    assert text(A, C, D, versions=[two, one]) == two
    three = text(C, B, D, versions=[two, one])
    assert numbers(three) == {"c": 3, "b": 2, "d": 4}
    assert "reserved 1;" in three and 'reserved "a";' in three
    four = text(C, A, versions=[three, two, one])
    assert numbers(four) == {"c": 3, "a": 1}
    assert 'reserved 2, 4;\n  reserved "b", "d";' in four


def test_older_versions_are_asked_for_only_when_a_column_returns() -> None:
    one = text(A, B)
    two = text(A, versions=[one])

    def versions(*more: str) -> Iterator[Schema]:
        for at, found in enumerate(more):
            yield Schema(at, at, "PROTOBUF", found)
        raise AssertionError("no further version is needed")

    columns = [Column(*A), Column(*C)]
    assert numbers(schema_text(RowType("orders.v1", tuple(columns)), versions(two))) == {"a": 1, "c": 3}
    columns = [Column(*A), Column(*B)]
    assert numbers(schema_text(RowType("orders.v1", tuple(columns)), versions(two, one))) == {"a": 1, "b": 2}


def test_a_column_that_returns_without_its_version_gets_another_number() -> None:
    two = text(A, versions=[text(A, B)])
    found = text(A, B, versions=[two])
    assert numbers(found) == {"a": 1, "b": 3}
    assert "reserved 2;" in found


@pytest.mark.parametrize(
    ("kinds", "number"),
    [
        ((types.INT16, types.INT32), 1),
        ((types.INT32, types.INT64), 1),
        ((Decimal(9, 2), Decimal(12, 2)), 1),
        ((types.FLOAT, types.DOUBLE), 2),
        ((types.INT64, Decimal(20, 0)), 2),
        ((types.STRING, Array(types.STRING)), 2),
    ],
    ids=str,
)
def test_a_field_whose_bytes_are_others_gets_another_number(kinds: tuple[DataType, DataType], number: int) -> None:
    before, after = kinds
    found = text(("v", after), versions=[text(("v", before))])
    assert numbers(found) == {"v": number}
    assert ("reserved 1;" in found) == (number == 2)


def test_messages_within_keep_their_numbers_too() -> None:
    def of(*fields: tuple[str, DataType]) -> tuple[str, DataType]:
        return "line_items", Array(Struct(fields))

    one = text(of(A, B))
    two = text(of(C, B), versions=[one])
    assert numbers(two) == {"line_items": 1, "c": 3, "b": 2}
    assert "repeated LineItems line_items = 1;" in two and "    reserved 1;" in two
    assert numbers(text(of(A, B, C), versions=[two, one])) == {"line_items": 1, "a": 1, "b": 2, "c": 3}


def test_numbers_that_somebody_else_has_reserved() -> None:
    newest = 'syntax = "proto3"; message orders_v1 { int64 a = 7; reserved 9 to 20, 1000 to max; }'
    found = text(A, B, versions=[newest])
    assert numbers(found) == {"a": 7, "b": 21}
    assert "reserved 9 to 20, 1000 to max;" in found
    assert text(A, B, versions=[found, newest]) == found
    other = 'syntax = "proto3"; package shop; message Other { int64 a = 7; }'
    assert numbers(text(A, versions=[other])) == {"a": 1}


@pytest.mark.parametrize(
    ("columns", "what", "hint"),
    [
        ([("unit price €", types.INT64)], "has a name that Protobuf does not have", "unit_price__"),
        ([("m", Array(Array(types.INT64)))], "column m is a list of lists", "type: avro"),
        ([("a_b", types.INT64), ("aB", types.INT64)], "no Protobuf message can be made of the columns", "Rename"),
    ],
)
def test_what_protobuf_does_not_have(columns: list[tuple[str, DataType]], what: str, hint: str) -> None:
    with pytest.raises(TableError, match=what) as refused:
        text(*columns)
    assert hint in str(refused.value.hint)
