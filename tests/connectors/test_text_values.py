"""Texts as decimals, days and moments: exactly, or refused, whoever reads them."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowctl.connectors import csv_text
from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.decimal_text import decimals
from flowctl.connectors.files.own_reading import field_of
from flowctl.connectors.kafka.encodings import json_values
from flowctl.connectors.kafka.encodings.fitting import fitted
from flowctl.connectors.kafka.unfit import Refused
from flowctl.connectors.mysql.columns import to_arrow as mysql_column
from flowctl.connectors.postgres.changes.typed import typed as postgres_column
from flowctl.connectors.sql.values import Misfit, to_arrow
from flowctl.connectors.written_fields import Field
from flowctl.errors import FlowctlError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Decimal

EXACT = decimal.Context(prec=2_000)
KINDS = st.integers(1, 38).flatmap(lambda digits: st.builds(Decimal, st.just(digits), st.integers(0, digits)))
SIGNS, DIGITS = (
    st.sampled_from(["", "-", "+"]),
    st.text("0123456789", max_size=80) | st.integers(0, 300).map("0".__mul__),
)
EXPONENTS = (
    st.just("") | st.integers(-400, 400).map("e{}".format) | st.sampled_from(["E-0", "e-9999999999", "E" + "9" * 30])
)
NUMBERS = st.builds("{}{}.{}{}".format, SIGNS, DIGITS, DIGITS, EXPONENTS) | st.builds(
    "{}{}{}".format, SIGNS, DIGITS, EXPONENTS
)


@given(st.lists(st.none() | NUMBERS, max_size=4), KINDS)
@example(["4"], Decimal(38, 38))
@example(["1e-77", None], Decimal(10, 2))
@example([f"0.{'0' * 76}1"], Decimal(10, 2))
@example(["1_0"], Decimal(10, 2))
@example(["\u0661"], Decimal(10, 2))  # a digit in Arabic
@example(["Infinity"], Decimal(10, 2))
@example(["1.50", None, "15e-1", "0e-99"], Decimal(3, 2))
def test_a_text_is_exactly_the_decimal_or_refused(texts: list[str | None], kind: Decimal) -> None:
    expected = [None if text is None else _exact(text, kind) for text in texts]
    if REFUSED in expected:
        with pytest.raises(pa.ArrowInvalid):
            decimals(pa.array(texts, pa.string()), arrow_type(kind))
    else:
        made = decimals(pa.array(texts, pa.string()), arrow_type(kind))
        made.validate(full=True)
        assert made.to_pylist() == expected


REFUSED = "refused"


def _exact(text: str, kind: Decimal) -> decimal.Decimal | str:
    if not text.isascii() or "_" in text:
        return REFUSED
    try:
        number = decimal.Decimal(text)
        rounded = number.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=EXACT)
    except decimal.InvalidOperation:
        return REFUSED
    fits = (
        number.is_finite() and rounded == number and abs(number) < decimal.Decimal(10) ** (kind.precision - kind.scale)
    )
    return number if fits else REFUSED


def _csv(text: str, kind: DataType) -> pa.Array:
    return csv_text.converted(pa.array([text]), field_of(Column("n", kind)))


def _json_message(text: str, kind: DataType) -> pa.Array:
    return json_values.decoded([f'{{"n": "{text}"}}'.encode()], [Column("n", kind)])[0]


def _avro_text(text: str, kind: DataType) -> pa.Array:
    return fitted(pa.array([text]), Field(types.STRING, "string"), kind, {})


def _sqlite(text: str, kind: DataType) -> pa.Array:
    return to_arrow([text], kind)


def _mysql(text: str, kind: DataType) -> pa.Array:
    return mysql_column([text], Column("n", types.STRING, native="text"), Column("n", kind))


def _postgres_change(text: str, kind: DataType) -> pa.Array:
    return postgres_column(pa.array([text]), Column("n", kind), "text", "text")


Reader = Callable[[str, DataType], pa.Array]
READERS: list[Reader] = [_csv, _json_message, _avro_text, _sqlite, _mysql, _postgres_change]


REFUSALS = (pa.ArrowInvalid, csv_text.Misfit, Refused, Misfit, FlowctlError)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__[1:])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("4", Decimal(38, 38)),
        ("99999999999999999999999999999", Decimal(38, 10)),
        ("100000000000000000000.5", Decimal(38, 18)),
        (f"0.{'0' * 76}1", Decimal(38, 38)),
        ("0000-01-01", types.DATE),
        ("0000-12-31T23:59:59", types.TIMESTAMP),
        ("0001-01-01 00:30:00+01:00", types.TIMESTAMP),
        ("9999-12-31T23:30:00-01", types.TIMESTAMP),
        ("0000-12-31 23:59:59.999999", types.TIMESTAMP_NTZ),
    ],
    ids=str,
)
def test_a_text_that_arrow_takes_for_another_value_is_refused(read: Reader, text: str, kind: DataType) -> None:
    with pytest.raises(REFUSALS):
        read(text, kind)


@pytest.mark.parametrize("read", [_mysql, _postgres_change], ids=lambda read: read.__name__[1:])
@pytest.mark.parametrize(
    ("text", "kind"),
    [("0x1F", types.INT64), ("1e999", types.DOUBLE), ("2024-01-01 noon", types.DATE), ("1e3", Decimal(10, 2))],
    ids=str,
)
def test_columns_of_text_follow_the_rules_of_files(read: Reader, text: str, kind: DataType) -> None:
    with pytest.raises(FlowctlError, match="holds a value that is not exactly"):
        read(text, kind)


def _mysql_typed(text: str, found: DataType, kind: DataType) -> pa.Array:
    return mysql_column([text, None], Column("n", found), Column("n", kind))


def _postgres_typed(text: str, found: DataType, kind: DataType) -> pa.Array:
    base = BASES.get(found, "numeric")
    return postgres_column(pa.array([text, None]), Column("n", kind), base, base)


BASES: dict[DataType, str] = {
    types.INT64: "int8",
    types.FLOAT: "float4",
    types.DOUBLE: "float8",
    types.DATE: "date",
    types.TIMESTAMP_NTZ: "timestamp",
}
NOON, MIDNIGHT = dt.datetime(2024, 2, 29, 12), dt.datetime(2024, 2, 29)


@pytest.mark.parametrize("read", [_mysql_typed, _postgres_typed], ids=lambda read: read.__name__[1:])
@pytest.mark.parametrize(
    ("text", "found", "kind", "value"),
    [
        ("9007199254740993", types.INT64, types.DOUBLE, None),
        ("9007199254740992", types.INT64, types.DOUBLE, 2.0**53),
        ("16777217", types.INT64, types.FLOAT, None),
        ("-16777216", types.INT64, types.FLOAT, -(2.0**24)),
        ("1000000000000000000", types.INT64, types.DOUBLE, 1e18),
        ("0.10", Decimal(18, 2), types.DOUBLE, 0.1),
        ("9007199254740992.10", Decimal(18, 2), types.DOUBLE, None),
        ("0.1", types.DOUBLE, types.FLOAT, None),
        ("0.5", types.DOUBLE, types.FLOAT, 0.5),
        ("1e300", types.DOUBLE, types.FLOAT, None),
        ("0.5", types.FLOAT, types.DOUBLE, 0.5),
        ("2.00", Decimal(18, 2), types.INT32, 2),
        ("2.50", Decimal(18, 2), types.INT32, None),
        ("3000000000", types.INT64, types.INT32, None),
        ("3e+09", types.DOUBLE, types.INT64, 3_000_000_000),
        ("0.1", types.DOUBLE, Decimal(5, 2), decimal.Decimal("0.10")),
        ("0.125", types.DOUBLE, Decimal(5, 2), None),
        ("4", types.INT64, Decimal(38, 38), None),
        ("4", types.INT64, Decimal(3, 1), decimal.Decimal("4.0")),
        ("2024-02-29", types.DATE, types.TIMESTAMP_NTZ, MIDNIGHT),
        ("2024-02-29 00:00:00", types.TIMESTAMP_NTZ, types.DATE, MIDNIGHT.date()),
        ("2024-02-29 12:00:00", types.TIMESTAMP_NTZ, types.DATE, None),
        ("2024-02-29 12:00:00", types.TIMESTAMP_NTZ, types.TIMESTAMP, NOON.replace(tzinfo=dt.UTC)),
        ("1000-01-01", types.DATE, types.TIMESTAMP, dt.datetime(1000, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_values_become_the_same_values_of_another_type_or_are_refused(
    read: Callable[[str, DataType, DataType], pa.Array], text: str, found: DataType, kind: DataType, value: Any
) -> None:
    if value is None:
        with pytest.raises(FlowctlError, match="holds a value that is not exactly"):
            read(text, found, kind)
    else:
        assert read(text, found, kind).to_pylist() == [value, None]


def test_flags_of_a_change_are_one_and_zero() -> None:
    flags = postgres_column(pa.array(["t", "f", None]), Column("n", types.INT32), "boolean", "bool")
    assert flags.to_pylist() == [1, 0, None]


def test_a_float_of_a_change_is_widened_as_the_database_widens_it() -> None:
    assert _postgres_typed("0.1", types.FLOAT, types.DOUBLE).to_pylist() == [0.10000000149011612, None]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__[1:])
def test_the_first_and_the_last_of_a_type_are_read(read: Reader) -> None:
    for text, kind, value in (
        ("0." + "9" * 38, Decimal(38, 38), decimal.Decimal("0." + "9" * 38)),
        ("-" + "9" * 38, Decimal(38, 0), decimal.Decimal("-" + "9" * 38)),
        ("0001-01-01", types.DATE, dt.date(1, 1, 1)),
        ("9999-12-31", types.DATE, dt.date(9999, 12, 31)),
        ("0001-01-01 00:00:00", types.TIMESTAMP_NTZ, dt.datetime(1, 1, 1)),
    ):
        assert read(text, kind).to_pylist() == [value]
