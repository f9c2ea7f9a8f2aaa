"""Literals of bounds, read back by the engines that they are for: type, value and offset are kept."""

from __future__ import annotations

import datetime as dt
import decimal
import sqlite3
from typing import TYPE_CHECKING

import psycopg
import pytest

from flowctl.model import types
from flowctl.model.value import TypedValue
from flowctl.sql import dialects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LITERALS = [
    pytest.param(TypedValue(types.INT64, -(2**63)), "bigint", "bigint", id="long"),
    pytest.param(TypedValue(types.DOUBLE, 0.1), "double precision", "double", id="double"),
    pytest.param(TypedValue(types.Decimal(12, 2), decimal.Decimal("-1.10")), "numeric", "decimal(12,2)", id="decimal"),
    pytest.param(TypedValue(types.STRING, 'it\'s \\n "x" 😀'), "text", "string", id="text"),
    pytest.param(TypedValue(types.DATE, dt.date(1, 1, 1)), "date", "date", id="date"),
    pytest.param(
        TypedValue(types.TIMESTAMP_NTZ, dt.datetime(2026, 3, 29, 2, 30, 0, 1)),
        "timestamp without time zone",
        "timestamp_ntz",
        id="local time",
    ),
    pytest.param(
        TypedValue(types.TIMESTAMP, dt.datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=dt.UTC)),
        "timestamp with time zone",
        "timestamp",
        id="moment",
    ),
]


@pytest.mark.parametrize(("value", "kind", "_"), LITERALS)
def test_postgres_reads_the_same_value(postgres_server: str, value: TypedValue, kind: str, _: str) -> None:
    literal = dialects.literal(value, "postgres")
    with psycopg.connect(postgres_server) as connection:
        found = connection.execute(f"SELECT {literal}, pg_typeof({literal})::text").fetchone()
    assert found == (value.value, kind)


@pytest.mark.parametrize(("value", "_", "kind"), LITERALS)
def test_spark_reads_the_same_value(spark: SparkSession, value: TypedValue, kind: str, _: str) -> None:
    frame = spark.sql(f"SELECT v, CAST(v AS STRING) AS t FROM (SELECT {dialects.literal(value, 'spark')} AS v)")
    assert frame.schema["v"].dataType.simpleString() == kind
    text = value.text().replace("T", " ").removesuffix("Z") if isinstance(value.value, dt.datetime) else value.text()
    assert frame.first()["t"] == text


@pytest.mark.parametrize(("value", "_", "__"), LITERALS)
def test_sqlite_reads_numbers_as_numbers_and_the_rest_as_exact_text(value: TypedValue, _: str, __: str) -> None:
    connection = sqlite3.connect(":memory:")
    (found,) = connection.execute(f"SELECT {dialects.literal(value, 'sqlite')}").fetchone()
    connection.close()
    assert found == (value.value if isinstance(value.value, int | float) else value.text())
