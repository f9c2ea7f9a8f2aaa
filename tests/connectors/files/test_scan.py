"""What was written as files is read back exactly, by the manifest, for SQL over other tables and for dry runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.files_layout import FilesLayout
from flowctl.storage.buffer import Buffer
from tests.connectors.files.written import OBJECT, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    Column("id", types.INT64),
    Column("a text", types.STRING),
    Column("amount", types.Decimal(38, 10)),
    Column("ratio", types.DOUBLE),
    Column("gone", types.BOOL),
    Column("day", types.DATE),
    Column("local", types.TIMESTAMP_NTZ),
    Column("moment", types.TIMESTAMP),
    Column("data", types.BINARY),
)
#: The first day that ORC takes.
FIRST = dt.date(1582, 10, 15)
MOMENT = dt.datetime(2026, 3, 29, 2, 30, 0, 1)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "a text": 'a "quoted", \\ text\nof two lines\r\n😀',
        "amount": Decimal("9" * 28 + "." + "9" * 10),
        "ratio": 5e-324,
        "gone": False,
        "day": dt.date(1582, 10, 10),
        "local": MOMENT,
        "moment": MOMENT.replace(tzinfo=dt.UTC),
        "data": b"\0\xff",
    },
    {"id": 2, "a text": "", "amount": Decimal("-1E-10"), "ratio": -0.1, "gone": True, "data": b""},
    {"id": 3},
]


@pytest.fixture(
    params=[
        FilesLayout(),
        FilesLayout("csv"),
        FilesLayout("csv", "gzip", header=False, delimiter="|", quote="'", null_value="\\N"),
        FilesLayout("jsonl", "gzip"),
        FilesLayout("orc"),
    ],
    ids=lambda layout: f"{layout.format}-{layout.compression}",
)
def table(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Table]:
    is_orc = request.param.format == "orc"
    columns = [column for column in COLUMNS if not (is_orc and column.type == types.TIMESTAMP)]
    yield Table(str(tmp_path / "files"), layout=request.param, columns=columns, buffer=scratch)


@pytest.mark.long_on_spark
def test_every_value_comes_back(spark: SparkSession, table: Table) -> None:
    rows = [{**row, "day": FIRST} if table.layout.format == "orc" and "day" in row else row for row in ROWS]
    whole = [{column.name: row.get(column.name) for column in table.columns} for row in rows]
    table.write(whole[:2], 1)
    table.write(whole[2:], 2)
    found = table.target.scan(spark, OBJECT, table.columns).toArrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == whole


@pytest.mark.long_on_spark
def test_a_file_without_a_newer_column_has_null(spark: SparkSession, tmp_path: Path) -> None:
    for format in ("parquet", "csv"):
        table = Table(str(tmp_path / format), layout=FilesLayout(format))  # type: ignore[arg-type]
        table.write([{"id": 1, "note": "a"}], 1)
        wider = replace(table, columns=(*table.columns, Column("more", types.INT32)))
        wider.write([{"id": 2, "note": "b", "more": 7}], 2)
        found = wider.target.scan(spark, OBJECT, wider.columns).collect()
        assert sorted(tuple(row) for row in found) == [(1, "a", None), (2, "b", 7)]


@pytest.mark.long_on_spark
def test_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(str(tmp_path), layout=FilesLayout("csv"))
    table.write([], 1)
    assert table.target.scan(spark, OBJECT, table.columns).collect() == []


@pytest.mark.long_on_spark
@pytest.mark.needs("files that flowctl reads")
def test_arrays_of_structs_come_back_from_json(spark: SparkSession, tmp_path: Path, scratch: Buffer) -> None:
    kind = types.Array(types.Struct((("a", types.INT64), ("more", types.Array(types.Array(types.STRING))))))
    columns = (Column("id", types.INT64), Column("x", kind), Column("data", types.Array(types.BINARY)))
    table = Table(str(tmp_path / "files"), layout=FilesLayout("jsonl"), columns=columns, buffer=scratch)
    rows = [{"id": 1, "x": [{"a": 1, "more": [["b", None], None, []]}, None], "data": [b"c"]}, {"id": 2, "x": []}]
    table.write(rows, 1)
    found = table.target.scan(spark, OBJECT, columns[:2]).toArrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [{"id": row["id"], "x": row["x"]} for row in rows]


@pytest.mark.parametrize(
    "kind", [types.INT32, types.Decimal(5, 1), types.BOOL, types.DOUBLE, types.DATE, types.TIMESTAMP], ids=str
)
@pytest.mark.long_on_spark
def test_nulls_of_the_only_column_come_back(spark: SparkSession, tmp_path: Path, scratch: Buffer, kind: Any) -> None:
    columns = (Column("v", kind),)
    table = Table(str(tmp_path / "files"), layout=FilesLayout("csv"), columns=columns, buffer=scratch)
    table.write([{"v": None}, {"v": None}], 1)
    assert table.target.scan(spark, OBJECT, columns).toArrow().to_pylist() == [{"v": None}, {"v": None}]
    assert table.target.scan(spark, OBJECT, columns).count() == 2 == table.info().rows.value


@pytest.mark.long_on_spark
def test_nulls_and_empty_texts_of_the_only_column_come_back(
    spark: SparkSession, tmp_path: Path, scratch: Buffer
) -> None:
    columns = (Column("v", types.STRING),)
    layout = FilesLayout("csv", null_value="\\N")
    table = Table(str(tmp_path / "files"), layout=layout, columns=columns, buffer=scratch)
    rows = [{"v": None}, {"v": ""}, {"v": " "}, {"v": None}, {"v": "a"}]
    table.write(rows, 1)
    found = table.target.scan(spark, OBJECT, columns).toArrow().to_pylist()
    assert sorted(found, key=repr) == sorted(rows, key=repr)
