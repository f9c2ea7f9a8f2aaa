"""Files that Spark writes without Delta: their statistics hold for each of their rows, and no reader misses one."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from flowctl.connectors.delta import data_files, target
from flowctl.connectors.delta.choice import Choice, Way
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.statistics import statistics
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.delta.types import schema_json
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout
from tests.connectors.delta import delta_tables
from tests.connectors.writing import COLUMNS, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs("files of executors")

UTC = dt.UTC
LONG = "ä" * 40


def footer(folder: Path, table: pa.Table, **options: Any) -> pq.FileMetaData:
    pq.write_table(table, folder / "rows.parquet", **options)
    return pq.read_metadata(folder / "rows.parquet")


def told(footer: pq.FileMetaData, *names: str) -> dict[str, Any]:
    return json.loads(statistics(footer, list(names)), parse_float=Decimal)


def test_ends_are_exact_or_rounded_outwards(tmp_path: Path) -> None:
    moments = [dt.datetime(2026, 1, 1, 0, 0, 0, 1999), dt.datetime(2026, 1, 1, 0, 0, 0, 2001)]
    rows = pa.table(
        {
            "whole": pa.array([5, -3], pa.int64()),
            "amount": pa.array(
                [Decimal("0.10"), Decimal("99999999999999999999999999999999999.10")], pa.decimal128(38, 2)
            ),
            "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
            "naive": pa.array(moments, pa.timestamp("us")),
            "aware": pa.array(moments, pa.timestamp("us", "UTC")),
            "text": pa.array([LONG, "b"]),
        }
    )
    found = told(footer(tmp_path, rows, row_group_size=1), *rows.column_names)
    assert found["minValues"] == {
        "whole": -3, "amount": Decimal("0.10"), "day": "0001-01-01", "text": "b",
        "naive": "2026-01-01T00:00:00.001", "aware": "2026-01-01T00:00:00.001Z",
    }  # fmt: skip
    assert found["maxValues"] == {
        "whole": 5, "amount": Decimal("9" * 35 + ".10"), "day": "9999-12-31",
        "text": "ä" * 32 + "\U0010ffff", "naive": "2026-01-01T00:00:00.003", "aware": "2026-01-01T00:00:00.003Z",
    }  # fmt: skip
    assert (found["numRecords"], found["nullCount"]) == (2, dict.fromkeys(rows.column_names, 0))


def test_what_has_no_ends_has_none(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "nothing": pa.array([None, None], pa.int64()),
            "some": pa.array([None, 1], pa.int64()),
            "number": pa.array([float("nan"), 1.0]),
            "truth": pa.array([True, False]),
            "bytes": pa.array([b"\x00", b"\xff"]),
            "far": pa.array([9_000_000_000_000_000_000, 1], pa.timestamp("us")),
            "last": pa.array([dt.datetime.max, dt.datetime.max], pa.timestamp("us")),
            "top": pa.array(["x" * 32 + "\U0010ffff!", "a"]),
            "inside": pa.array([{"a": 1}, {"a": 2}]),
            "unwanted": pa.array([1, 2]),
        }
    )
    found = told(footer(tmp_path, rows), *rows.column_names[:-1])
    assert found["minValues"] == found["maxValues"] == {"some": 1}
    assert found["nullCount"]["nothing"] == 2
    assert found["nullCount"]["some"] == 1
    assert {"inside", "unwanted"}.isdisjoint(found["nullCount"])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=6))
def test_every_text_is_between_the_ends(texts: list[str]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": texts}), sink)
    found = told(pq.read_metadata(pa.BufferReader(sink.getvalue())), "text")
    if "text" in found["minValues"]:
        low, high = found["minValues"]["text"].encode(), found["maxValues"]["text"].encode()
        assert all(low <= text.encode() <= high for text in texts)


COLUMNS_OF_ENDS = (
    Column("small", types.INT8),
    Column("whole", types.INT64),
    Column("amount", types.Decimal(38, 9)),
    Column("narrow", types.Decimal(9, 2)),
    Column("day", types.DATE),
    Column("naive", types.TIMESTAMP_NTZ),
    Column("aware", types.TIMESTAMP),
    Column("text", types.STRING),
)
ROWS = [
    {
        "small": -128, "whole": -(2**63), "amount": Decimal("-99999999999999999999999999999.999999999"),
        "narrow": Decimal("-0.01"), "day": dt.date(1, 1, 1), "naive": dt.datetime(1, 1, 1, 0, 0, 0, 1),
        "aware": dt.datetime(1970, 1, 1, 0, 0, 0, 999, UTC), "text": "",
    },
    {
        "small": 127, "whole": 2**63 - 1, "amount": Decimal("99999999999999999999999999999.999999999"),
        "narrow": Decimal("9999999.99"), "day": dt.date(9999, 12, 31),
        "naive": dt.datetime(9999, 12, 31, 23, 59, 59, 1),
        "aware": dt.datetime(2026, 3, 29, 1, 0, 0, 1001, UTC), "text": "z" * 40,
    },
    dict.fromkeys(column.name for column in COLUMNS_OF_ENDS),
]  # fmt: skip


@pytest.mark.full
def test_statistics_of_sparks_files_find_every_row(writer: Writer, spark: SparkSession) -> None:
    writer.write(ROWS, 1, columns=COLUMNS_OF_ENDS)
    assert all(file["path"].startswith("flowctl-") for file in delta_tables.files(writer))
    assert {name for file in delta_tables.files(writer) for name in json.loads(file["stats"])["minValues"]} == {
        column.name for column in COLUMNS_OF_ENDS
    }
    content = spark.read.format("delta").load(delta_tables.location(writer).spark_path)
    for column in COLUMNS_OF_ENDS:
        for row in ROWS[:2]:
            value = f"CAST('{row[column.name]}' AS {types.spark_ddl(column.type)})"
            assert content.where(f"{column.name} = {value}").count() == 1, (column, row)
        assert content.where(f"{column.name} IS NULL").count() == 1


@pytest.mark.parametrize(
    ("columns", "encoding"), [pytest.param(2, "PLAIN_DICTIONARY", marks=pytest.mark.full), (101, "PLAIN")]
)
def test_many_columns_have_small_dictionaries(writer: Writer, spark: SparkSession, columns: int, encoding: str) -> None:
    """1,200 values of 8 bytes each are more than a dictionary may hold when there are many of them."""
    from pyspark.sql import functions as f

    writer.write(ROWS[:1], 1, columns=COLUMNS_OF_ENDS)
    location = delta_tables.location(writer)
    frame = spark.range(0, 12_000, 1, 1).select(*[(f.col("id") % 1200).alias(f"c{at}") for at in range(columns)])
    schema = schema_json([Column(f"c{at}", types.INT64) for at in range(columns)])
    metadata = {"configuration": {}, "schemaString": schema}
    (added,) = data_files.write_by_spark(location, metadata, frame)
    footer = pq.read_metadata(f"{location.url}/{added['path']}")
    assert encoding in footer.row_group(0).column(0).encodings


def test_only_wanted_columns_have_statistics(writer: Writer) -> None:
    layout = Layout(statistics=("name",))
    statements = writer.place.target.create_statements(writer.place.object, list(COLUMNS), layout)
    writer.write([{"id": 1, "name": "a", "amount": None}], 1, layout=layout, create=statements)
    assert [json.loads(file["stats"])["nullCount"] for file in delta_tables.files(writer)] == [{"name": 0}]


@pytest.mark.parametrize("own_files", [True, False])
@pytest.mark.full
def test_modes_with_and_without_deltas_own_writer(
    writer: Writer, own_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not own_files:
        monkeypatch.setattr(target, "choose", lambda *given: Choice(Way.STATEMENTS))

    def rows(*ids: int) -> list[dict[str, Any]]:
        return [{"id": id, "name": "a", "amount": Decimal(id)} for id in ids]

    def content() -> list[int]:
        return sorted(id for (id,) in writer.place.read(["id"]))

    counts = [
        writer.write(rows(1, 2), 1).counts,
        writer.write(rows(3), 2).counts,
    ]
    assert [found.inserted for found in counts] == [2, 1]
    assert content() == [1, 2, 3]
    writer.write([], 3)
    writer.write(rows(4, 5), 4, "truncate")
    assert content() == [4, 5]
    writer.write(rows(6), 5, replace=True)
    assert content() == [6]
    writer.write([], 6, "truncate")
    assert content() == []
    writer.write(rows(7), 7, "truncate")
    writer.write(rows(8), 7, "truncate", intent="intent-7")
    assert content() == [7], "a number is committed once"
    writer.write(rows(9), 8, "truncate")
    assert content() == [9]
    assert own_files == any(file["path"].startswith("flowctl-") for file in delta_tables.files(writer))


@pytest.mark.parametrize(
    ("what", "statement"),
    [
        ("a check", "ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id > 0)"),
        ("a change feed", "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"),
        ("file sizes", "ALTER TABLE {table} SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')"),
        ("a column of others", "ALTER TABLE {table} ADD COLUMNS (theirs string)"),
    ],
)
def test_tables_that_ask_more_of_a_writer_are_left_to_delta(writer: Writer, what: str, statement: str) -> None:
    writer.write([{"id": 1, "name": "a", "amount": None}], 1)
    job = writer.job(2, "append")
    assert delta_tables.way(writer, job) is Way.FILES
    writer.place.execute(statement)
    assert delta_tables.way(writer, job) is Way.STATEMENTS, what


def test_a_table_with_a_length_is_left_to_delta(writer: Writer) -> None:
    writer.place.execute("CREATE TABLE {table} (id BIGINT, name VARCHAR(3), amount DECIMAL(12,2)) USING DELTA")
    assert delta_tables.way(writer, writer.job(1, "append")) is Way.STATEMENTS


@pytest.mark.parametrize("name", ["optimizeWrite.enabled", "properties.defaults.checkpointInterval"])
def test_settings_of_deltas_own_writing_are_heeded(writer: Writer, name: str) -> None:
    setting = f"spark.databricks.delta.{name}"
    writer.spark.conf.set(setting, "true" if name.startswith("opt") else "7")
    try:
        writer.write([{"id": 1, "name": "a", "amount": None}], 1)
    finally:
        writer.spark.conf.unset(setting)
    assert not any(file["path"].startswith("flowctl-") for file in delta_tables.files(writer))


def test_a_table_with_not_null_is_left_to_delta(writer: Writer) -> None:
    writer.place.execute("CREATE TABLE {table} (id BIGINT NOT NULL, name STRING, amount DECIMAL(12,2)) USING DELTA")
    assert delta_tables.way(writer, writer.job(1, "append")) is Way.STATEMENTS


def test_an_old_protocol_says_by_its_properties_what_it_asks(tmp_path: Path) -> None:
    """Features have names only since table features: before, a version number stood for several."""
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    DeltaTable(tmp_path / "t").alter.add_constraint({"positive": "id > 0"})
    first = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    protocols = [json.loads(line).get("protocol") for line in first.read_text().splitlines()]
    assert not any(protocol and "writerFeatures" in protocol for protocol in protocols)
    assert "checkConstraints" in open_existing(TableLocation(str(tmp_path / "t"), {})).features
