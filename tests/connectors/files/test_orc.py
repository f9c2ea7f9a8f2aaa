"""ORC as a source: its types as they are, timestamps to the microsecond or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc

from tests.connectors.reading import describe, files, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long_on_spark


def test_orc_brings_its_types(spark: SparkSession, inbox: Path, source: Any) -> None:
    rows = {"i": pa.array([1], pa.int32()), "d": pa.array([Decimal("1.10")], pa.decimal128(12, 2)), "s": [{"x": 1}]}
    orc.write_table(pa.table(rows), inbox / "t.orc")
    assert spark_rows(spark, source, files("t.orc"))[0] == {"i": 1, "d": Decimal("1.10"), "s": {"x": 1}}


@pytest.mark.needs("files that flowctl reads")
def test_orc_brings_timestamps(spark: SparkSession, inbox: Path, source: Any) -> None:
    """Those without a zone are the time of day as written, whatever zones writer and session are in."""
    first = dt.datetime(2025, 3, 30, 2, 30, 0, 123456)
    data = pa.table({
        "n": pa.array([first, None], pa.timestamp("us")),
        "t": pa.array([first, None], pa.timestamp("us", "UTC")),
        "l": pa.array([[first], []], pa.list_(pa.timestamp("us"))),
        "s": pa.array([{"x": first}, None], pa.struct([("x", pa.timestamp("us"))])),
    })  # fmt: skip
    orc.write_table(data, inbox / "t.orc")
    info = describe(source, files("t.orc"))
    assert [str(column.type) for column in info.columns] == [
        "timestamp[us]", "timestamp[us, tz=UTC]", "list<item: timestamp[us]>", "struct<x: timestamp[us]>",
    ]  # fmt: skip
    read = spark_rows(spark, source, files("t.orc"))[0]
    assert (read["n"], read["l"], read["s"]) == (first, [first], {"x": first})
    assert read["t"].astimezone(dt.UTC) == first.replace(tzinfo=dt.UTC)


@pytest.mark.needs("files that flowctl reads")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([1_000_001], pa.timestamp("ns")), "t.orc cannot be read as orc: column n holds a value that is not"),
        (pa.array([dt.datetime(1677, 1, 1)], pa.timestamp("us")), "out of range for nanosecond resolution"),
        (pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us")), "out of range for nanosecond resolution"),
    ],
)
def test_timestamps_of_orc_that_cannot_be_carried_stop(
    spark: SparkSession, inbox: Path, source: Any, values: pa.Array, words: str
) -> None:
    orc.write_table(pa.table({"n": values}), inbox / "t.orc")
    with pytest.raises(Exception, match=words):
        spark_rows(spark, source, files("t.orc"))
