"""Delta tables that Spark has written, as a source: deletion vectors, column mapping, widened types, its change data
feed and its own calendars."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.source import DELETED_COLUMN, PLACE_COLUMN, ReadRequest
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column
from tests.connectors.reading import Collected, captured_rows, describe, opened, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.needs("Delta's own statements")]

ORDERS = table("orders")
MAPPED = "'delta.columnMapping.mode' = '{mode}'"
VECTORS, FEED = "'delta.enableDeletionVectors' = '{on}'", "'delta.enableChangeDataFeed' = '{on}'"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Any]:
    with opened("delta", base_dir=str(tmp_path), path=".") as connector:
        yield connector.source


class Table:
    """Its statements name it ``@t``."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self.name = spark, f"delta.`{folder / 'orders'}`"

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._spark.sql(statement.replace("@t", self.name))

    def rows(self, columns: str = "*") -> list[Any]:
        return sorted(map(tuple, self._spark.sql(f"SELECT {columns} FROM {self.name}").collect()), key=repr)


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def values(source: Any) -> list[Any]:
    return sorted((tuple(row.values()) for row in captured_rows(source, ORDERS)), key=repr)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(source: Any, orders: Table, mode: str) -> None:
    """Renamed and dropped columns, also inside others, of partitions, and with names that others refuse."""
    orders.run(
        "CREATE TABLE @t (`an id` BIGINT, old STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>, gone STRING, `p,q` STRING)"
        f" USING delta PARTITIONED BY (`p,q`) TBLPROPERTIES ({MAPPED.format(mode=mode)})",
        "INSERT INTO @t VALUES (1, struct(2, array(struct('a'), null)), 'x', 'north'), (2, null, 'y', null)",
        "ALTER TABLE @t RENAME COLUMN old TO new",
        "ALTER TABLE @t RENAME COLUMN new.x TO `x x`",
        "ALTER TABLE @t DROP COLUMN gone",
        "ALTER TABLE @t ADD COLUMN gone INT",
        "INSERT INTO @t VALUES (3, struct(4, array()), 'south', 5)",
        "DELETE FROM @t WHERE `an id` = 2",
    )
    assert values(source) == [
        (1, {"x x": 2, "y": [{"z": "a"}, None]}, "north", None),
        (3, {"x x": 4, "y": []}, "south", 5),
    ]
    assert len(orders.rows()) == 2


@pytest.mark.parametrize("on", ["true", "false"])
def test_every_type_by_value(source: Any, orders: Table, on: str) -> None:
    orders.run(
        "CREATE TABLE @t (b BOOLEAN, y TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(38, 18),"
        " t STRING, r BINARY, a DATE, z TIMESTAMP, w TIMESTAMP_NTZ)"
        f" USING delta TBLPROPERTIES ({VECTORS.format(on=on)})",
        "INSERT INTO @t VALUES (true, -128Y, 1S, 2, 3L, 0.5F, double('NaN'), 1.000000000000000001, '', X'00FF',"
        " DATE'0001-01-01', TIMESTAMP'1582-10-04 12:00:00.000001Z', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'),"
        " (null, null, null, null, null, null, null, null, null, null, null, null, null)",
    )
    ((*numbers, nan, n, t, r, a, z, w), empty) = sorted(values(source), key=lambda row: row[0] is None)
    assert numbers == [True, -128, 1, 2, 3, 0.5] and nan != nan
    assert (n, t, r, a) == (Decimal("1.000000000000000001"), "", b"\x00\xff", dt.date(1, 1, 1))
    assert z == dt.datetime(1582, 10, 4, 12, 0, 0, 1, dt.UTC)
    assert w == dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert set(empty) == {None}


def test_partitions_and_widened_types(source: Any, orders: Table) -> None:
    orders.run(
        "CREATE TABLE @t (id INT, day DATE, at TIMESTAMP) USING delta PARTITIONED BY (day, at)"
        " TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "INSERT INTO @t VALUES (1, DATE'2026-01-01', TIMESTAMP'2026-01-01 05:06:07.000008Z'), (2, null, null)",
        "ALTER TABLE @t ALTER COLUMN id TYPE BIGINT",
        f"INSERT INTO @t VALUES ({2**40}, DATE'2026-01-02', null)",
    )
    at = dt.datetime(2026, 1, 1, 5, 6, 7, 8, dt.UTC)
    assert values(source) == [
        (1, dt.date(2026, 1, 1), at), (2**40, dt.date(2026, 1, 2), None), (2, None, None),
    ]  # fmt: skip


STATEMENTS = (
    "INSERT INTO @t VALUES (7, 'seven', 'b'), (8, 'eight', 'a')",
    "UPDATE @t SET note = 'changed' WHERE id IN (1, 7)",
    "DELETE FROM @t WHERE id = 2",
    "MERGE INTO @t AS t USING (SELECT explode(array(3, 8, 9)) AS id) AS s ON t.id = s.id"
    " WHEN MATCHED AND s.id = 8 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'merged'"
    " WHEN NOT MATCHED THEN INSERT (id, note, part) VALUES (s.id, 'new', 'b')",
    "OPTIMIZE @t ZORDER BY (id)",
    "UPDATE @t SET id = 40 WHERE id = 4",
    "DELETE FROM @t WHERE part = 'a'",
    "INSERT OVERWRITE @t SELECT id, note, part FROM @t WHERE id != 9",
    "RESTORE TABLE @t TO VERSION AS OF 5",
)


@pytest.mark.parametrize(
    ("mode", "on", "feed"),
    [("none", "true", "true"), ("name", "true", "false"), ("name", "false", "true"), ("id", "false", "false")],
)
def test_changes_lead_from_any_version_to_any_later_one(
    source: Any, orders: Table, mode: str, on: str, feed: str
) -> None:
    properties = ", ".join([MAPPED.format(mode=mode), VECTORS.format(on=on), FEED.format(on=feed)])
    orders.run(
        "CREATE TABLE @t (id BIGINT, note STRING, part STRING) USING delta PARTITIONED BY (part)"
        f" TBLPROPERTIES ({properties})",
        "INSERT INTO @t SELECT id, 'first', IF(id % 2 = 0, 'a', 'b') FROM range(1, 7)",
    )
    orders.run(*STATEMENTS)
    info = describe(source, ORDERS)
    assert info.version is not None and info.version > 8
    contents = [content(source, info.identity, version) for version in range(1, info.version + 1)]
    assert sorted(contents[-1].items()) == sorted((row[0], row[1:]) for row in orders.rows())
    for since in range(len(contents)):
        for upto in range(since + 1, len(contents)):
            now = dict(contents[since])
            for row in changes(source, info, since + 1, upto + 1):
                if row[DELETED_COLUMN]:
                    assert row["id"] not in contents[upto]
                    now.pop(row["id"], None)
                else:
                    now[row["id"]] = (row["note"], row["part"])
            assert now == contents[upto], f"{since + 1} to {upto + 1}"


def content(source: Any, identity: str, version: int) -> dict[int, Any]:
    found = captured_rows(source, ORDERS, interval=Interval(None, VersionPosition(version, identity)))
    return {row["id"]: (row["note"], row["part"]) for row in found}


def changes(source: Any, info: Any, since: int, upto: int) -> list[dict[str, Any]]:
    own = (Column(PLACE_COLUMN, types.INT64), Column(DELETED_COLUMN, types.BOOL))
    interval, sink = Interval(VersionPosition(since, info.identity), VersionPosition(upto, info.identity)), Collected()
    with source.capture(ORDERS, info) as capture:
        capture.read(ReadRequest((*info.columns, *own), interval, net=True, key=("id",)), sink)
    return sorted(sink.rows, key=lambda row: row[PLACE_COLUMN] or 0)


def test_a_legacy_calendar_is_refused(source: Any, orders: Table, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        orders.run("CREATE TABLE @t (a DATE) USING delta", "INSERT INTO @t VALUES (DATE'1500-01-01')")
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    with pytest.raises(Exception, match="dates or timestamps of another calendar") as refused:
        captured_rows(source, ORDERS)
    assert "columns.exclude" in refused.value.hint  # type: ignore[attr-defined]
