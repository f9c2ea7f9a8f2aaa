"""A value that is not exactly one of its column's type fails the job, in the name of the column; others arrive."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.refusal import refused
from flowctl.diagnostics import Mark
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.plan.projection import projection
from flowctl.run.batch import projected
from flowctl.spec.spec import ColumnRules, ObjectSource, TableSpec, TargetRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENING = datetime(2026, 1, 1, 23, 59, 59)
MIDNIGHT = datetime(2026, 1, 1)

INEXACT = [
    ("double", 10.1256, "decimal(10,2)"),
    ("double", 1.9, "bigint"),
    ("double", float("nan"), "bigint"),
    ("double", 0.1, "float"),
    ("bigint", 2**53 + 1, "double"),
    ("bigint", 300, "tinyint"),
    ("int", 2, "boolean"),
    ("decimal(10,2)", Decimal("1.50"), "boolean"),
    ("boolean", True, "decimal(2,2)"),
    ("decimal(10,4)", Decimal("10.1234"), "decimal(12,2)"),
    ("timestamp_ntz", EVENING, "date"),
    ("string", "1.5", "int"),
    ("string", "2026-01-01 23:59:59", "date"),
]
EXACT = [
    ("double", 10.12, "decimal(10,2)", Decimal("10.12")),
    ("double", 2.0, "bigint", 2),
    ("double", 0.5, "float", 0.5),
    ("bigint", 2**53, "double", 2.0**53),
    ("decimal(10,4)", Decimal("10.1200"), "decimal(12,2)", Decimal("10.12")),
    ("timestamp_ntz", MIDNIGHT, "date", date(2026, 1, 1)),
    ("string", " 15", "int", 15),
    ("int", 7, "bigint", 7),
    ("boolean", True, "tinyint", 1),
    ("boolean", False, "decimal(3,2)", Decimal(0)),
    ("decimal(10,2)", Decimal("1.00"), "boolean", True),
    ("bigint", 0, "boolean", False),
    ("int", 7, "decimal(12,2)", Decimal("7.00")),
    ("int", 7, "string", "7"),
    ("string", "é", "binary", "é".encode()),
    ("array<int>", [1, None], "array<bigint>", [1, None]),
    ("double", None, "bigint", None),
]


def table(**rules: Any) -> TableSpec:
    source, target = ObjectSource("src", ("t",)), TargetRef("dst", ("t",))
    return TableSpec("t", source, target, "truncate", Mark("flow.yaml", 1), columns=ColumnRules(**rules))


def written(spark: SparkSession, kind: str, value: object, of: TableSpec, *recorded: Column) -> list[Any]:
    read = (Column("v", types.parse(kind)),)
    frame = spark.createDataFrame([(value,), (None,)], f"v {kind}")
    return projected(frame, projection(of, read, recorded), read).toArrow().to_pylist()


def message(spark: SparkSession, kind: str, value: object, of: TableSpec, *recorded: Column) -> str:
    with pytest.raises(Exception, match="flowctl value refused") as failed:
        written(spark, kind, value, of, *recorded)
    error = refused(str(failed.value))
    assert error is not None
    return error.message


@pytest.mark.parametrize(("kind", "value", "wanted"), INEXACT)
def test_an_inexact_value_fails(spark: SparkSession, kind: str, value: object, wanted: str) -> None:
    assert message(spark, kind, value, table(types={"v": wanted})) == (
        f"column v ({kind}) holds a value that is not exactly {wanted}"
    )


@pytest.mark.parametrize(("kind", "value", "wanted", "made"), EXACT)
def test_an_exact_value_arrives(spark: SparkSession, kind: str, value: object, wanted: str, made: object) -> None:
    assert written(spark, kind, value, table(types={"v": wanted})) == [{"v": made}, {"v": None}]


@pytest.mark.needs("added columns")
def test_an_added_column_keeps_its_type_or_fails(spark: SparkSession) -> None:
    recorded = (Column("v", types.Decimal(12, 4)), Column("gross", types.Decimal(12, 2)))
    added = table(add={"gross": "v", "more": "gross + 1"}, types={"more": "decimal(10,2)"})
    assert message(spark, "decimal(12,4)", Decimal("10.1234"), added, *recorded) == (
        "column gross (decimal(12,4)) holds a value that is not exactly decimal(12,2)"
    )
    one, _ = written(spark, "decimal(12,4)", Decimal("10.1200"), added, *recorded)
    assert one == {"v": Decimal("10.1200"), "gross": Decimal("10.12"), "more": Decimal("11.12")}


@pytest.mark.needs("added columns")
def test_an_added_value_that_differs_each_time_is_made_once(spark: SparkSession) -> None:
    of = table(add={"chance": "floor(rand() * 100000) + v"}, types={"chance": "smallint"})
    assert message(spark, "bigint", 40000, of).startswith("column chance (")
    of = table(add={"c": "floor(rand() * 100000)"}, types={"c": "decimal(5,0)"})
    one, other = written(spark, "bigint", 1, of)
    assert min(one["c"], other["c"]) >= 0
