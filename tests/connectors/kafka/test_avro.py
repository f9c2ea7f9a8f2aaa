"""Values written with schemas of Avro: their types, exactly, and as the columns of another version."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.avro import AvroSchema
from flowctl.connectors.kafka.encodings.written import OneWriter, WrittenDecoder
from flowctl.connectors.kafka.envelopes import rows_of
from flowctl.connectors.kafka.unfit import Refused
from flowctl.connectors.written_fields import lacking
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from tests.examples import examples

AT = dt.datetime(2026, 11, 25, 10, 0, 0, 123456, dt.UTC)
INSTANT = "timestamp[us, tz=UTC]"
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FIXED = {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def record(*fields: tuple[Any, ...], name: str = "Order") -> str:
    """``fields`` are names, types and, if there is a third part, defaults."""
    listed = [{"name": name, "type": kind, **({"default": rest[0]} if rest else {})} for name, kind, *rest in fields]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": listed})


def encoded(schema: str, row: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(schema)), row)
    return made.getvalue()


def decoded(writer: str, rows: Sequence[Any], columns: Sequence[Column], reader: str = "") -> list[list[Any]]:
    decoder = WrittenDecoder(OneWriter(AvroSchema(writer)), AvroSchema(reader or writer))
    return [array.to_pylist() for array in decoder.decoded([encoded(writer, row) for row in rows], columns)]


def columns_of(schema: str) -> list[Column]:
    return [field.column(name) for name, field in AvroSchema(schema).fields.items()]


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, "connect.version": 1}


@pytest.mark.parametrize(
    ("kind", "value", "type", "read"),
    [
        ("boolean", True, "bool", True),
        ("int", -(2**31), "int32", -(2**31)),
        ("long", 2**63 - 1, "int64", 2**63 - 1),
        ("float", 1.5, "float", 1.5),
        ("double", float("inf"), "double", float("inf")),
        ("bytes", b"\xff\x00", "binary", b"\xff\x00"),
        ("string", "ü\0", "string", "ü\0"),
        ("null", None, "string", None),
        (["null", "long"], None, "int64", None),
        (["long", "null"], 5, "int64", 5),
        (["null", "long", "string"], "x", "string", '"x"'),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "string", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "binary", b"ab"),
        ({"type": "array", "items": "long"}, [1, 2], "list<item: int64>", [1, 2]),
        ({"type": "map", "values": "bytes"}, {"a": b"\xff"}, "string", '{"a": "/w=="}'),
        (logical("bytes", "decimal", precision=38, scale=10), Decimal("-1.5"), "decimal128(38, 10)", Decimal("-1.5")),
        (logical("bytes", "decimal", precision=40, scale=2), Decimal("1E+30"), "string", f"1{'0' * 30}.00"),
        (FIXED, Decimal("7.10"), "decimal128(9, 2)", Decimal("7.10")),
        (logical("int", "date"), dt.date(1969, 12, 31), "date32[day]", dt.date(1969, 12, 31)),
        (logical("int", "time-millis"), dt.time(23, 59, 59, 999000), "string", "23:59:59.999000"),
        (logical("long", "time-micros"), dt.time(1, 2, 3), "string", "01:02:03"),
        (logical("long", "timestamp-millis"), DAY, "timestamp[us, tz=UTC]", DAY),
        (logical("long", "timestamp-micros"), AT, "timestamp[us, tz=UTC]", AT),
        (logical("long", "local-timestamp-micros"), AT.replace(tzinfo=None), "timestamp[us]", AT.replace(tzinfo=None)),
        (logical("long", "timestamp-nanos"), 1_764_064_800_123_456_789, "int64", 1_764_064_800_123_456_789),
        (logical("string", "uuid"), str(UUID), "string", str(UUID)),
        (logical("string", "nobody-knows"), "x", "string", "x"),
        ({"type": "array", "items": logical("long", "timestamp-millis")}, [DAY], f"list<item: {INSTANT}>", [DAY]),
        (connect("int", "io.debezium.time.Date"), 1, "date32[day]", dt.date(1970, 1, 2)),
        (connect("long", "io.debezium.time.Timestamp"), 1_000, "timestamp[us]", dt.datetime(1970, 1, 1, 0, 0, 1)),
        (connect("long", "io.debezium.time.MicroTimestamp"), 1, "timestamp[us]", dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
        (connect("long", "io.debezium.time.NanoTimestamp"), 1, "int64", 1),
        (connect("long", "io.debezium.time.MicroTime"), 1, "string", "00:00:00.000001"),
        (connect("string", "io.debezium.time.ZonedTimestamp"), "2026-11-25T12:00:00.123456+02:00", INSTANT, AT),
        (connect("string", "io.debezium.data.Json"), '{"a": 1}', "string", '{"a": 1}'),
    ],
)  # fmt: skip
def test_types(kind: Any, value: Any, type: str, read: Any) -> None:
    schema = record(("a", kind))
    [column] = columns_of(schema)
    assert str(column.type) == type
    assert decoded(schema, [{"a": value}] * 2, [column]) == [[read, read]]


def test_records_and_references() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "at", "type": logical("long", "timestamp-millis")}]}
    schema = record(("first", line), ("others", {"type": "array", "items": "Line"}), ("last", ["null", "Line"], None))
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    row = {"first": {"at": at}, "others": [{"at": at}], "last": None}
    assert [str(column.type) for column in columns_of(schema)] == [
        "struct<at: timestamp[us, tz=UTC]>",
        "list<item: struct<at: timestamp[us, tz=UTC]>>",
        "struct<at: timestamp[us, tz=UTC]>",
    ]
    assert decoded(schema, [row], columns_of(schema)) == [[{"at": at}], [[{"at": at}]], [None]]
    outer = record(("line", "shop.Line"), name="Other")
    found = AvroSchema(outer, {"shop.Line": json.dumps({**line, "namespace": "shop"})})
    assert str(found.fields["line"].type) == "struct<at: timestamp[us, tz=UTC]>"


def test_a_record_in_itself_is_text() -> None:
    schema = record(("id", "long"), ("next", ["null", "Order"], None))
    row = {"id": 1, "next": {"id": 2, "next": None}}
    assert decoded(schema, [row], columns_of(schema)) == [[1], ['{"id": 2, "next": null}']]


def test_a_value_without_fields_is_one_column() -> None:
    assert [(name, str(one.type)) for name, one in AvroSchema('"long"', value="key").fields.items()] == [
        ("key", "int64")
    ]
    decoder = WrittenDecoder(OneWriter(AvroSchema('"long"')), AvroSchema('"long"'))
    [array] = decoder.decoded([encoded('"long"', 7)], [Column("value", types.INT64)])
    assert array.to_pylist() == [7]


@pytest.mark.parametrize(
    ("written", "value", "wanted", "read"),
    [
        ("int", 5, "bigint", 5),
        ("int", 5, "double", 5.0),
        ("long", 2**53 + 1, "double", None),
        ("long", 2**31, "int", None),
        ("long", 7, "int", 7),
        ("long", 7, "decimal(4,2)", Decimal("7.00")),
        ("long", 700, "decimal(4,2)", None),
        ("float", 1.5, "double", 1.5),
        ("string", "1.5", "double", None),
        ("long", 5, "string", "5"),
        ("boolean", True, "string", None),
        ("bytes", b"ab", "string", "ab"),
        ("bytes", b"\xff", "string", None),
        ("string", "ab", "binary", b"ab"),
        ("string", "2026-11-25T10:00:00.123456Z", "timestamp", AT),
        ("string", "soon", "timestamp", None),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.25"), "decimal(9,4)", Decimal("1.2500")),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.25"), "decimal(4,1)", None),
        (logical("long", "timestamp-millis"), AT.replace(microsecond=0), "bigint", None),
        (logical("long", "local-timestamp-millis"), AT.replace(tzinfo=None), "timestamp", None),
        ("long", 5, "timestamp", None),
    ],
)  # fmt: skip
def test_a_value_becomes_another_type_exactly_or_not_at_all(written: Any, value: Any, wanted: str, read: Any) -> None:
    """Never another value: not the milliseconds of a long as microseconds."""
    schema, column = record(("a", written)), Column("a", types.parse(wanted))
    if read is None:
        with pytest.raises(ValueError):
            decoded(schema, [{"a": value}], [column])
    else:
        assert decoded(schema, [{"a": value}], [column]) == [[read]]


def test_what_the_writer_does_not_have_is_the_readers_default() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
    more = {**inner, "fields": [*inner["fields"], {"name": "y", "type": "string", "default": "new"}]}  # type: ignore[misc]
    price = logical("bytes", "decimal", precision=4, scale=2)
    writer = record(("id", "long"), ("gone", "string"), ("in", inner))
    reader = record(
        ("id", "long"), ("in", more), ("price", price, "\u0001"), ("name", ["null", "string"], None), ("n", "int", 7)
    )
    rows = [{"id": 1, "gone": "x", "in": {"x": 5}}]
    assert decoded(writer, rows, columns_of(reader), reader) == [
        [1], [{"x": 5, "y": "new"}], [Decimal("0.01")], [None], [7],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("default", "kind", "read"),
    [
        (("int", 7), "bigint", 7),
        (("int", 7), "decimal(4,1)", Decimal("7.0")),
        (("string", "2026-01-01"), "date", DAY.date()),
    ],
)
def test_a_default_is_of_the_declared_type(default: tuple[str, Any], kind: str, read: Any) -> None:
    reader = record(("id", "long"), ("n", *default))
    assert decoded(record(("id", "long")), [{"id": 1}], [Column("n", types.parse(kind))], reader) == [[read]]
    with pytest.raises(pa.ArrowInvalid):
        decoded(record(("id", "long")), [{"id": 1}], [Column("n", types.BOOL)], reader)


def test_defaults_of_records_in_lists() -> None:
    line = [{"name": "a", "type": "int"}]
    items = ({"type": "record", "name": "L", "fields": fields}
             for fields in (line, [*line, {"name": "b", "type": "int", "default": 7}]))  # fmt: skip
    writer, reader = (record(("l", {"type": "array", "items": {"type": "array", "items": one}})) for one in items)
    rows = [{"l": [[{"a": 1}], []]}, {"l": []}]
    assert decoded(writer, rows, columns_of(reader), reader) == [[[[{"a": 1, "b": 7}], []], []]]
    declared = Column("l", types.parse("array<array<struct<b:bigint>>>"))
    assert decoded(writer, rows, [declared], reader) == [[[[{"b": 7}], []], []]]
    assert lacking(AvroSchema(writer).fields, AvroSchema(reader).fields) == ["l.b"]


def test_a_value_that_is_a_list_of_records() -> None:
    schema = json.dumps({"type": "array", "items": json.loads(record(("a", "int")))})
    assert decoded(schema, [[{"a": 1}]], columns_of(schema)) == [[[{"a": 1}]]]


def test_times_that_no_calendar_has() -> None:
    for kind, value in ((logical("long", "timestamp-micros"), 2**62), (logical("int", "date"), 2**31 - 1)):
        schema = record(("a", kind), ("b", {"type": "array", "items": kind}))
        plain = record(("a", kind["type"]), ("b", {"type": "array", "items": kind["type"]}))
        decoder = WrittenDecoder(OneWriter(AvroSchema(schema)), AvroSchema(schema))
        for row in ({"a": value, "b": []}, {"a": 0, "b": [0, value]}):
            with pytest.raises(ValueError):
                decoder.decoded([encoded(plain, row)], columns_of(schema))


RICH = record(
    ("id", "long"), ("name", ["null", "string"]), ("tags", {"type": "array", "items": "string"}),
    ("m", {"type": "map", "values": "double"}), ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("price", logical("bytes", "decimal", precision=9, scale=2)), ("flag", "boolean"), ("f", "float"),
)  # fmt: skip
ROW: Mapping[str, Any] = {
    "id": 1, "name": "n", "tags": ["a"], "m": {"k": 1.0}, "e": "A", "price": Decimal("1.00"), "flag": True, "f": 1.0,
}  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.one_of(st.binary(max_size=60), st.tuples(st.integers(0, 40), st.binary(max_size=4))))
def test_bytes_that_are_no_value_are_refused_by_their_number(damage: Any) -> None:
    """Whatever they are, nothing but a refusal comes of them; or a value, which bytes may be by chance."""
    good = encoded(RICH, ROW)
    bad = damage if isinstance(damage, bytes) else good[: damage[0]] + damage[1] + good[damage[0] + 1 :]
    decoder = WrittenDecoder(OneWriter(AvroSchema(RICH)), AvroSchema(RICH))
    columns = columns_of(RICH)
    try:
        arrays = decoder.decoded([good, bad, None, good], columns)
    except Refused as error:
        [(at, why)] = error.whys.items()
        assert why is not None
        assert (at, why.error) == (1, "corrupt")
        assert decoder.unfit(bad, columns) == why
    except pa.ArrowInvalid:
        assert decoder.unfit(bad, columns) is None
    else:
        assert [array.type for array in arrays] == [arrow_type(column.type) for column in columns]
        assert arrays[0].to_pylist()[::3] == [1, 1]


def test_a_text_that_is_no_schema() -> None:
    for text in ("", "{}", '{"type": "record"}', record(("a", "nothing")), '{"type": "what"}'):
        with pytest.raises(TableError, match="not valid Avro"):
            AvroSchema(text)


def test_a_truncate_in_debeziums_envelope() -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    places = [("connector", "string"), ("lsn", ["null", "long"])]
    fields = [{"name": name, "type": kind} for name, kind in places]
    source = {"type": "record", "name": "Source", "fields": fields}
    parts = ("before", ["null", row]), ("after", ["null", "Value"]), ("source", source), ("op", "string")
    schema = record(*parts, name="Envelope")
    decoder = WrittenDecoder(OneWriter(AvroSchema(schema)), AvroSchema(schema))
    place = {"connector": "postgresql", "lsn": 5}
    sent = [("c", None, {"id": 1}), ("t", None, None), ("d", {"id": 2}, None)]
    values = [encoded(schema, {"before": old, "after": new, "source": place, "op": op}) for op, old, new in sent]
    columns = [Column("id", types.INT64)]
    found = rows_of(values, columns, decoder.decoded, "debezium", ("id",), ordered=True)
    assert found.operations.to_pylist() == ["I", "T", "D"]
    assert found.fields[0].to_pylist() == [1, None, 2]
    assert found.orders is not None
    assert found.orders.to_pylist() == [f"{5:020}.{5:020}"] * 3
    assert [decoder.unfit(value, columns, "debezium", ("id",)) for value in values] == [None] * 3
