"""JSON messages as columns: each value exact, or the message refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.encodings.json_values import decoded, require_readable
from flowctl.connectors.kafka.unfit import Refused
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from tests.examples import examples

UTC = dt.UTC
KINDS = (
    *("tinyint", "bigint", "double", "decimal(4,2)", "boolean", "string", "date", "timestamp", "timestamp_ntz"),
    *("array<bigint>", "struct<x:string,y:array<double>>"),
)


def one(text: str, kind: str) -> Any:
    """The field `a` of one message."""
    [array] = decoded([text.encode()], [Column("a", types.parse(kind))])
    [value] = array.to_pylist()
    return value


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("9223372036854775807", "bigint", 2**63 - 1),
        ("-128", "tinyint", -128),
        ("12.3", "decimal(12,2)", Decimal("12.30")),
        ('"12345678901234567890.12"', "decimal(38,2)", Decimal("12345678901234567890.12")),
        ("12345678901234567890.12", "decimal(38,2)", Decimal("12345678901234567890.12")),
        ("1e2", "decimal(12,2)", Decimal("100.00")),
        ("-0.50", "decimal(2,1)", Decimal("-0.5")),
        ("[1, null, 2.5]", "array<decimal(4,2)>", [Decimal("1.00"), None, Decimal("2.50")]),
        ("null", "decimal(4,2)", None),
        ("0.1", "double", 0.1),
        ("7", "double", 7.0),
        ("true", "boolean", True),
        ('"gr\\u00fcn \\ud83d\\ude00 \\n\\u0000"', "string", "grün 😀 \n\0"),
        ('""', "string", ""),
        ('"2026-02-28"', "date", dt.date(2026, 2, 28)),
        ('"2026-11-25T10:00:00.123456Z"', "timestamp", dt.datetime(2026, 11, 25, 10, 0, 0, 123456, UTC)),
        ('"2026-11-25 10:00:00+02:00"', "timestamp", dt.datetime(2026, 11, 25, 8, tzinfo=UTC)),
        ('"2026-11-25T10:00:00"', "timestamp", dt.datetime(2026, 11, 25, 10, tzinfo=UTC)),
        ('"2026-11-25T10:00"', "timestamp_ntz", dt.datetime(2026, 11, 25, 10)),
        ("null", "bigint", None),
        ("[1, null]", "array<bigint>", [1, None]),
        ('{"x": 1, "z": 2}', "struct<x:bigint,y:string>", {"x": 1, "y": None}),
    ],
)
def test_values_that_are_of_the_declared_type(text: str, kind: str, value: Any) -> None:
    assert one(f'{{"a": {text}, "b": {{"other": [1, "x"]}}}}', kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1.5", "bigint"),
        ("9223372036854775808", "bigint"),
        ("128", "tinyint"),
        ('"12"', "bigint"),
        ("true", "bigint"),
        ("12.345", "decimal(12,2)"),
        ("123", "decimal(2,0)"),
        ('" 1"', "decimal(2,0)"),
        ('"1_0"', "decimal(2,0)"),
        ('"NaN"', "decimal(2,0)"),
        ('"\\u0661"', "decimal(2,0)"),
        ("1e999999999", "decimal(2,0)"),
        ("{}", "decimal(2,0)"),
        ("100", "decimal(4,2)"),
        ("[99.99, 100]", "array<decimal(4,2)>"),
        ("1e39", "float"),
        ("1e400", "double"),
        ("1", "boolean"),
        ("5", "string"),
        ('{"x": 1}', "string"),
        ('"2026-02-30"', "date"),
        ('"2026-11-25T10:00:00"', "date"),
        ('"2026-11-25T10:00:00Z"', "timestamp_ntz"),
        ('"2026-11-25T10:00:00.1234567Z"', "timestamp"),
        ("1764064800", "timestamp"),
        ('["x"]', "array<bigint>"),
    ],
)
def test_values_that_are_not(text: str, kind: str) -> None:
    column = Column("a", types.parse(kind))
    values = [b'{"a": null}', f'{{"a": {text}}}'.encode(), b'{"a": null}']
    columns = [Column("b", types.STRING), column]
    with pytest.raises(ValueError):
        decoded(values, columns)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"5",
        b"null",
        b"[1]",
        b'{"a": 1} {"a": 2}',
        b'{"a": 1',
        b'{"a": 1}}',
        b'{"a": "\xff"}',
        b'{"c": 1} {"a": 5} ',
        b"\xef\xbb\xbf5",
        b'{"a": 1, "b": 1e400}',
    ],
)
def test_what_is_not_one_object(value: bytes) -> None:
    columns = [Column("a", types.INT64), Column("b", types.DOUBLE)]
    with pytest.raises(ValueError):
        decoded([b'{"a": 1}', value, b'{"a": 3}'], columns)


def test_of_a_field_that_is_there_twice_the_last_counts() -> None:
    [array] = decoded([b'{"a": 1}', b'{"a": 1, "a": 2}'], [Column("a", types.INT64)])
    assert array.to_pylist() == [1, 2]


def test_the_numbers_of_all_messages_that_are_refused() -> None:
    columns = [Column("a", types.INT64), Column("b", types.parse("struct<at:timestamp>"))]
    values = [b"{}", b"", b'{"a": 1}', b'{"a": "1"}', None, b'{"a": 1} {"a": 2}', b'{"a": 1']
    with pytest.raises(Refused) as refused:
        decoded(values, columns)
    assert [*refused.value.whys] == [1, 3, 5, 6]
    with pytest.raises(Refused) as refused:
        decoded([b"{}", b'{"b": {"at": "soon"}}', None, b'{"b": {"at": "2026-11-25T10"}}'], columns)
    assert [*refused.value.whys] == [1, 3]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_names_that_are_not_read(name: str) -> None:
    with pytest.raises(TableError, match="names with quotes"):
        require_readable([Column(name, types.INT64)])
    with pytest.raises(TableError, match="names with quotes"):
        require_readable([Column("x", types.Struct(((name, types.INT64),)))])


def test_a_tombstone_has_no_fields() -> None:
    columns = [Column("a", types.INT64), Column("b", types.DATE)]
    arrays = decoded([None, b'{"a": 1}', None, b"{}"], columns)
    assert [array.to_pylist() for array in arrays] == [[None, 1, None, None], [None] * 4]


def test_messages_with_line_breaks_and_of_many_sizes() -> None:
    texts = ["x" * size for size in (0, 1, 100_000, 3, 2_000_000)]
    values = [json.dumps({"a": text, "b": at}, indent=2).encode() for at, text in enumerate(texts)]
    a, b = decoded(values, [Column("a", types.STRING), Column("b", types.INT32)])
    assert (a.to_pylist(), b.to_pylist()) == (texts, list(range(5)))


@settings(max_examples=examples(6), deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "a": st.integers(-(2**63), 2**63 - 1) | st.none(),
                "b": st.text(st.characters(exclude_categories=["Cs"])) | st.none(),
                "c": st.decimals(-(10**10), 10**10, places=2).map(str),
                "d": st.floats(allow_nan=False, allow_infinity=False),
                "other": st.recursive(
                    st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
                ),
            },
        ),
        min_size=1,
        max_size=30,
    )
)
def test_what_was_written_is_read(objects: list[dict[str, Any]]) -> None:
    kinds = {"a": types.INT64, "b": types.STRING, "c": types.Decimal(20, 2), "d": types.DOUBLE}
    arrays = decoded([json.dumps(one).encode() for one in objects], [Column(*item) for item in kinds.items()])
    for (name, kind), array in zip(kinds.items(), arrays, strict=True):
        wanted = [one.get(name) for one in objects]
        if isinstance(kind, types.Decimal):
            wanted = [None if value is None else Decimal(value) for value in wanted]
        assert array.to_pylist() == wanted


def test_dates_and_times_inside_objects() -> None:
    kind = types.parse("struct<at: timestamp, inner: struct<day: date>, n: bigint>")
    values = [b'{"a": {"at": "2026-11-25T10:00:00Z", "inner": {"day": "2026-11-25"}, "n": 1}}', b'{"a": null}', None]
    [array] = decoded(values, [Column("a", kind)])
    at, day = dt.datetime(2026, 11, 25, 10, tzinfo=dt.UTC), dt.date(2026, 11, 25)
    assert array.to_pylist() == [{"at": at, "inner": {"day": day}, "n": 1}, None, None]
    with pytest.raises(ValueError):
        decoded([b'{"a": {"at": "soon"}}'], [Column("a", kind)])


@pytest.mark.parametrize("kind", ["binary", "array<date>", "array<struct<at:timestamp>>"])
def test_types_that_json_does_not_have(kind: str) -> None:
    with pytest.raises(TableError, match="JSON has no"):
        require_readable([Column("a", types.parse(kind))])


@settings(max_examples=examples(50), deadline=None)
@given(
    st.one_of(
        st.dictionaries(
            st.sampled_from("abc"),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers(-(2**70), 2**70)
                | st.integers(-200, 200)
                | st.floats()
                | st.decimals(allow_nan=False, allow_infinity=False, places=2).map(float)
                | st.text()
                | st.sampled_from(["2026-11-25", "2026-11-25T10:00:00Z", "2026-11-25\n", "1.5", "true"]),
                lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
            ),
        ).map(lambda found: json.dumps(found).encode()),
        st.binary(),
        st.text().map(str.encode),
        st.sampled_from(
            [b'\xef\xbb\xbf{"a": 1}', b'{"a": 1}\n', b'{"a": 1e2}', b'{"a": 1.0}', b'{"a": %s}' % (b"9" * 5000)]
        ),
    ),
    st.sampled_from(KINDS),
)
def test_what_is_found_not_to_fit_cannot_be_decoded(value: bytes, kind: str) -> None:
    column = Column("a", types.parse(kind))
    found = JsonDecoder().unfit(value, [column])
    if found is not None:
        with pytest.raises(ValueError):
            decoded([value], [])


@pytest.mark.parametrize(
    "value", [b'{"b": %s}' % (b"9" * 5000), b'{"a": 1e999999999}', b'{"a": [%s]}' % b",".join([b"1"] * 100_000)]
)
def test_odd_values_of_other_fields(value: bytes) -> None:
    columns = [Column("c", types.INT64)]
    assert JsonDecoder().unfit(value, columns) is None
    assert decoded([value], columns)[0].to_pylist() == [None]
