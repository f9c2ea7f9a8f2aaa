"""PostgreSQL read by Sail, an engine without a JVM, whichever engine the other tests run on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.source import ReadRequest
from flowctl.engine import sail
from flowctl.engine.connect import stop_client
from flowctl.engine.session import ENGINE_KEY, SAIL
from flowctl.errors import TableError, TransientError
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, spark_rows, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.engine, pytest.mark.long_on_spark]

_ROWS = 20_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Frames of this reader hold no expressions, so a session of another kind than the process's does."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    scratch: Path = tmp_path_factory.mktemp("sail")
    with sail.server({}, 1 << 30, scratch, scratch / "sail.log") as (url, _):
        session = ConnectSession.builder.remote(url).create()
        session.conf.set(ENGINE_KEY, SAIL)
        session.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            yield session
        finally:
            stop_client(session)


def test_types_arrive_as_they_are(spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute(
        "CREATE TABLE every (i bigint, n numeric(38,10), d date, t timestamp, f float8, s text, b bytea, a date[]);"
        f"INSERT INTO every VALUES ({-(2**63)}, -{'9' * 28}.{'9' * 10}, '0001-01-01', '9999-12-31 23:59:59.999999',"
        r"5e-324, E'a,\n\"b\\c', '\x00ff', '{1582-10-10,NULL}'), "
        "(1, 0, '9999-12-31', '0001-01-01', -0.0, '', '', '{}'), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    rows = spark_rows(spark, postgres.source, table("public", "every"))
    assert [tuple(row.values()) for row in rows] == [
        (
            -(2**63),
            Decimal(f"-{'9' * 28}.{'9' * 10}"),
            dt.date(1, 1, 1),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
            5e-324,
            'a,\n"b\\c',
            b"\x00\xff",
            [dt.date(1582, 10, 10), None],
        ),
        (1, Decimal(0), dt.date(9999, 12, 31), dt.datetime(1, 1, 1), -0.0, "", b"", []),
        (None,) * 8,
    ]


def test_all_ranges_are_one_moment(spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute(f"CREATE TABLE moving AS SELECT i AS id, repeat('x', 200) AS v FROM generate_series(1, {_ROWS}) i")
    relation = table("public", "moving")
    info = describe(postgres.source, relation)
    with postgres.source.snapshot(spark, relation, info, ReadHints(splits=16)) as snapshot:
        frame = snapshot.frame(ReadRequest(info.columns))
        database.execute("UPDATE moving SET id = id + 100000; DELETE FROM moving WHERE id % 2 = 0")
        read = frame.selectExpr("count(*)", "count(DISTINCT id)", "max(id)").first()
    assert tuple(read) == (_ROWS, _ROWS, _ROWS)


def test_who_takes_the_rows_slowly_in_python_stops_nobody(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    """More batches than Sail holds back, for a taker that needs Python's lock as the reader does."""
    database.execute("CREATE TABLE long AS SELECT i AS id, repeat('x', 2000) AS v FROM generate_series(1, 20000) i")
    relation = table("public", "long")
    info = describe(postgres.source, relation)

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            time.sleep(0.05)
            yield batch.select([0])

    with postgres.source.snapshot(spark, relation, info, ReadHints(splits=1)) as snapshot:
        frame = snapshot.frame(ReadRequest(info.columns)).mapInArrow(slowly, "id int")
        assert tuple(frame.selectExpr("count(*)").first()) == (20_000,)


def test_a_refusal_names_the_column(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("CREATE TABLE odd (id int, bad date); INSERT INTO odd VALUES (1, '0044-03-15 BC')")
    with pytest.raises(TableError, match=r"column bad \(date\) holds a value that is not exactly date") as refused:
        spark_rows(spark, postgres.source, table("public", "odd"))
    assert "0044" not in str(refused.value.__cause__)


def test_a_lost_snapshot_is_transient(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("CREATE TABLE t AS SELECT 1 AS id")
    relation = table("public", "t")
    info = describe(postgres.source, relation)
    with (
        pytest.raises(TransientError, match=r"snapshot of public\.t was lost"),
        postgres.source.snapshot(spark, relation, info, ReadHints()) as snapshot,
    ):
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flowctl' "
            "AND datname = current_database() AND backend_xmin IS NOT NULL"
        )
        snapshot.frame(ReadRequest(info.columns)).collect()
