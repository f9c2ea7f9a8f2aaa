"""What this process counts in a staged batch is what Spark counts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.buffered import buffered
from flowctl.connectors.target import OP_COLUMN
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.run.counting import count_rows
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUNDED: dict[str, tuple[DataType, list[Any]]] = {
    "tiny": (types.INT8, [-128, 127]),
    "long": (types.INT64, [2**63 - 1, -(2**63)]),
    "day": (types.DATE, [dt.date(9999, 12, 31), dt.date(1, 1, 1)]),
    "amount": (types.Decimal(38, 10), [Decimal("-0.0000000001"), Decimal("9" * 28 + ".1")]),
    "text": (types.STRING, ["z", "\U0010ffff", "\uffff", "", "A"]),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_ends_are_those_that_spark_tells(name: str, spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    kind, values = BOUNDED[name]
    rows = spark.createDataFrame([(value,) for value in [*values, None]], f"k {types.spark_ddl(kind)}").repartition(3)
    with Buffer(str(tmp_path), "run", {}) as buffer:
        folder = buffer.folder("rows")
        staged = buffered(rows, folder)
        found = count_rows(folder.batches(), ["k"], [Column("k", kind)])
        told = staged.agg(f.min("k").cast("string"), f.max("k").cast("string")).first()
        assert folder.rows() == len(values) + 1
    assert (found.rows, found.deletes, found.null_keys) == (len(values) + 1, 0, 1)
    assert found.key_bounds is not None
    plain = Decimal if isinstance(kind, types.Decimal) else str
    assert [plain(end) for end in found.key_bounds["k"]] == [plain(end) for end in told]


def test_deletions_are_told_apart_and_an_empty_batch_has_no_ends(spark: SparkSession, tmp_path: Path) -> None:
    values = [(1, "a", "U"), (2, None, "D"), (None, None, "D")]
    rows = spark.createDataFrame(values, f"id int, at string, {OP_COLUMN} string")
    with Buffer(str(tmp_path), "run", {}) as buffer:
        folder, nothing = buffer.folder("rows"), buffer.folder("nothing")
        buffered(rows, folder)
        found = count_rows(folder.batches(), ["id", "at"], [Column("id", types.INT32)])
        buffered(rows.limit(0), nothing)
        empty = count_rows(nothing.batches(), ["id"], [Column("id", types.INT32)])
    assert (found.rows, found.deletes, found.null_keys, found.key_bounds) == (1, 2, 2, {"id": ("1", "2")})
    assert (empty.rows, empty.deletes, empty.null_keys, empty.key_bounds) == (0, 0, 0, {})


def test_days_that_are_not_told_as_text_bound_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT make_date(10000, 1, 1) AS k UNION ALL SELECT DATE'2026-01-01'")
    with Buffer(str(tmp_path), "run", {}) as buffer:
        folder = buffer.folder("rows")
        buffered(rows, folder)
        assert count_rows(folder.batches(), ["k"], [Column("k", types.DATE)]).key_bounds == {}
