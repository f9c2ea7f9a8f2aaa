"""Rows as JSON messages: what flowctl's own source reads back is equal, and what JSON cannot hold is refused."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.kafka.encodings.json_values import decoded
from flowctl.connectors.kafka.sink.messages import Form
from flowctl.connectors.target import OP_COLUMN
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct
from tests.examples import examples

AMOUNT, LONG = types.Decimal(12, 2), types.Decimal(38, 9)
NESTED = Struct((("a", types.INT64), ("b", Array(types.STRING)), ("'c", types.BOOL)))
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(kind: types.Decimal) -> st.SearchStrategy[Decimal]:
    most = 10**kind.precision - 1
    return st.integers(-most, most).map(lambda digits: Decimal(digits).scaleb(-kind.scale))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    types.BOOL: st.booleans(),
    types.INT8: integers(8),
    types.INT16: integers(16),
    types.INT32: integers(32),
    types.INT64: integers(64),
    types.FLOAT: st.floats(width=32, allow_nan=False, allow_infinity=False),
    types.DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    types.STRING: TEXTS,
    types.DATE: st.dates(),
    types.TIMESTAMP: st.datetimes(FIRST, LAST, timezones=st.just(dt.UTC)),
    types.TIMESTAMP_NTZ: st.datetimes(FIRST, LAST),
    AMOUNT: decimals(AMOUNT),
    LONG: st.integers(-(10**28), 10**28).map(lambda digits: Decimal(digits).scaleb(-9)),
    Array(types.INT64): st.lists(st.none() | integers(64), max_size=3),
    Array(AMOUNT): st.lists(st.none() | decimals(AMOUNT), max_size=3),
    Array(Array(types.STRING)): st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=2), max_size=2),
    NESTED: st.fixed_dictionaries(
        {
            "a": st.none() | integers(64),
            "b": st.none() | st.lists(st.none() | TEXTS, max_size=2),
            "'c": st.none() | st.booleans(),
        }
    ),
}
COLUMNS = [Column(f"c{at} 'ü'", kind) for at, kind in enumerate(VALUES)]


def batch(rows: Sequence[dict[str, Any]], columns: Sequence[Column] = COLUMNS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(columns))


def sent(rows: pa.RecordBatch, form: Form) -> list[tuple[Any, Any]]:
    found = list(form.messages(rows))
    return [pair for one in found for pair in zip(one.keys, one.values, strict=True)]


@settings(deadline=None, max_examples=examples(20))
@given(st.lists(st.fixed_dictionaries({one.name: st.none() | VALUES[one.type] for one in COLUMNS}), max_size=8))
def test_values_are_read_back_equal(rows: list[dict[str, Any]]) -> None:
    given = batch(rows)
    values = [value for _, value in sent(given, Form(COLUMNS))]
    assert len(values) == len(rows)
    if rows:
        read = pa.record_batch(decoded(values, COLUMNS), schema=arrow_schema(COLUMNS))
        assert repr(read.to_pylist()) == repr(given.to_pylist())  # repr: 0.0 is not -0.0


def test_names_with_quotes() -> None:
    column = Column('a"b\\\n', types.Struct((('"', types.INT64),)))
    [(_, value)] = sent(batch([{column.name: {'"': 1}}], [column]), Form([column]))
    assert json.loads(value) == {column.name: {'"': 1}}


def test_the_text_of_each_type() -> None:
    """As documented in `docs/kafka-targets.md`."""
    kinds: dict[str, tuple[DataType, Any, str]] = {
        "i": (types.INT64, -(2**63), "-9223372036854775808"),
        "d": (types.DOUBLE, 0.1, "0.1"),
        "f": (types.FLOAT, 1.5, "1.5"),
        "whole": (types.DOUBLE, -2.0, "-2.0"),
        "a": (AMOUNT, Decimal("1.5"), '"1.50"'),
        "small": (LONG, Decimal("0.000000001"), '"0.000000001"'),
        "b": (types.BOOL, True, "true"),
        "s": (types.STRING, 'ü "quoted"\n\\\x00', '"ü \\"quoted\\"\\n\\\\\\u0000"'),
        "bytes": (types.BINARY, b"\x00\xff", '"AP8="'),
        "day": (types.DATE, dt.date(2026, 1, 2), '"2026-01-02"'),
        "at": (types.TIMESTAMP, dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), '"2026-01-02T03:00:00.000000Z"'),
        "local": (types.TIMESTAMP_NTZ, dt.datetime(2026, 1, 2, 3, 4, 5, 6), '"2026-01-02T03:04:05.000006"'),
        "list": (Array(AMOUNT), [Decimal("1.00"), None], '["1.00",null]'),
        "none": (types.STRING, None, "null"),
        "inner": (NESTED, {"a": 1, "b": [], "'c": None}, '{"a":1,"b":[],"\'c":null}'),
    }
    columns = [Column(name, kind) for name, (kind, _, _) in kinds.items()]
    ((_, value),) = sent(batch([{name: one for name, (_, one, _) in kinds.items()}], columns), Form(columns))
    assert value.decode() == "{" + ",".join(f'"{name}":{text}' for name, (_, _, text) in kinds.items()) + "}"
    assert base64.b64decode(json.loads(value)["bytes"]) == b"\x00\xff"


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        (types.DOUBLE, math.nan, "NaN or infinity"),
        (types.FLOAT, -math.inf, "NaN or infinity"),
        (Array(types.DOUBLE), [1.0, math.inf], "NaN or infinity"),
        (types.TIMESTAMP_NTZ, 253_402_300_800_000_000, "after 9999"),
        (types.DATE, -719_163, "before the year 1"),
    ],
)
def test_what_json_cannot_hold_is_refused(kind: DataType, value: Any, what: str) -> None:
    columns = [Column("good", types.INT64), Column("bad", kind)]
    with pytest.raises(TableError, match=f"column bad holds .*{what}"):
        sent(batch([{"good": 1, "bad": value}], columns), Form(columns))


def test_keys_tombstones_and_headers() -> None:
    id, name, at = Column("id", types.INT64), Column("name", types.STRING), Column("at", types.DATE)
    columns = [id, name, at, Column(OP_COLUMN, types.STRING)]
    day = dt.date(2026, 1, 2)
    rows = batch([{"id": 1, "name": "ü", "at": day, OP_COLUMN: "U"}, {"id": 2, OP_COLUMN: "D"}], columns)
    (found,) = Form([id, name, at], [id], [name, at, id]).messages(rows)
    assert found.keys == [b'{"id":1}', b'{"id":2}']
    assert found.values == ['{"id":1,"name":"ü","at":"2026-01-02"}'.encode(), None]
    assert found.headers == [[("name", "ü"), ("at", "2026-01-02"), ("id", "1")], [("id", "2")]]
    assert found.tombstones == 1


def test_large_batches_are_serialized_in_parts() -> None:
    columns = [Column("s", types.STRING)]
    rows = batch([{"s": "x" * 5_000_000}] * 9, columns)
    parts = [len(one.values) for one in Form(columns).messages(rows)]
    assert sum(parts) == 9 and max(parts) <= 3
