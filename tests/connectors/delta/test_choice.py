"""Which way a batch is written into a Delta table, and what the plan says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowctl.connectors.delta import CAPABILITIES
from flowctl.connectors.delta.choice import Choice, EngineTraits, Way, choose, planned_traits
from flowctl.connectors.delta.target import DeltaTarget
from flowctl.connectors.target import WriteShape
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import Layout

COLUMNS = (Column("id", types.INT64), Column("name", types.STRING))
THERE = TableInfo(
    ObjectName(("orders",)),
    COLUMNS,
    "delta-1",
    rows=RowEstimate(1000, "stats", 1 << 20),
    extra={
        "partition_by": [],
        "properties": {"delta.enableDeletionVectors": "true"},
        "features": ["deletionVectors"],
        "files": 1,
        "ruled_columns": [],
        "is_widened": False,
    },
)
MERGE = WriteShape(
    "merge", COLUMNS, ("id",), Layout(), creates=False, alters=False, replaces=False, rows=10, in_memory=False
)
APPEND, TRUNCATE, HISTORY = (replace(MERGE, mode=mode) for mode in ("append", "truncate", "scd2"))
LOCAL, CLUSTER, SAIL = (planned_traits(url, {}) for url in ("local[*]", "spark://host:7077", "sail"))


def there(**extra: Any) -> TableInfo:
    return replace(THERE, extra={**THERE.extra, **extra})


@pytest.mark.parametrize(
    ("table", "write", "way"),
    [
        (THERE, APPEND, Way.FILES),
        (THERE, TRUNCATE, Way.FILES),
        (THERE, replace(MERGE, replaces=True), Way.FILES),
        (THERE, MERGE, Way.MARKS),
        (THERE, replace(HISTORY, in_memory=True), Way.MARKS),
        (there(files=0), MERGE, Way.FILES),
        (there(files=0), HISTORY, Way.FILES),
        (None, replace(MERGE, creates=True), Way.FILES),
    ],
)
def test_flowctl_commits_what_asks_for_no_more(table: TableInfo | None, write: WriteShape, way: Way) -> None:
    assert choose("/lake/orders", table, write, LOCAL) == Choice(way)


@pytest.mark.parametrize(
    ("table", "write", "reason"),
    [
        (THERE, replace(APPEND, layout=Layout(partition_by=("name",))), "partitions"),
        (there(partition_by=["name"]), APPEND, "partitions"),
        (THERE, replace(APPEND, layout=Layout(cluster_by=("id",))), "clustering"),
        (THERE, replace(APPEND, alters=True), "changed columns"),
        (there(features=["checkConstraints"]), APPEND, "checkConstraints"),
        (there(properties={"delta.autoOptimize.autoCompact": "true"}), APPEND, "delta.autoOptimize.autoCompact"),
        (there(ruled_columns=["id"]), APPEND, "rules for id"),
        (there(files=20_000), APPEND, "a long log"),
        (there(properties={}), MERGE, "no deletion vectors"),
        (there(is_widened=True), MERGE, "files of narrower types"),
        (THERE, replace(MERGE, rows=None), "many rows to compare"),
        (THERE, replace(MERGE, rows=10_000_000), "many rows to compare"),
        (THERE, HISTORY, "a history, of more rows than fit into memory"),
    ],
)
def test_spark_writes_what_asks_for_more_and_the_plan_says_why(
    table: TableInfo, write: WriteShape, reason: str
) -> None:
    assert choose("/lake/orders", table, write, LOCAL) == Choice(Way.STATEMENTS, reason)
    target = DeltaTarget("/lake", {}, None, CAPABILITIES)
    told = target.explain_write(THERE.object, table, write, "local[*]", {})
    assert told == f"written by Spark's own statements: {reason}"
    assert target.explain_write(THERE.object, table, write, "sail", {}) == ""


def test_a_large_table_is_searched_where_the_engine_is() -> None:
    large = replace(THERE, rows=RowEstimate(1000, "stats", 2 << 30))
    assert choose("/lake/orders", large, MERGE, LOCAL).way is Way.MARKS
    assert choose("/lake/orders", large, MERGE, CLUSTER) == Choice(Way.STATEMENTS, "a large table")


def test_many_rows_are_not_copied_within_an_object_store() -> None:
    many = replace(APPEND, rows=2_000_000)
    assert choose("/lake/orders", THERE, many, LOCAL).way is Way.FILES
    assert choose("s3://lake/orders", THERE, many, LOCAL).way is Way.STATEMENTS
    assert choose("s3://lake/orders", THERE, many, SAIL).way is Way.FILES


def test_settings_of_deltas_own_writing_are_heeded() -> None:
    name = "spark.databricks.delta.properties.defaults.checkpointInterval"
    assert choose("/lake/orders", THERE, APPEND, planned_traits("local[*]", {name: "7"})).reason == name
    assert planned_traits("local[*]", {"spark.databricks.delta.optimizeWrite.enabled": "false"}) == LOCAL
    assert EngineTraits(has_jvm=False, is_local=True) == planned_traits("sail", {name: "7"}) == SAIL
