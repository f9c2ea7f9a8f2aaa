"""DuckDB as a source: one moment, schemas, views and patterns; what was described is what is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowctl.connectors.duckdb.database import open_database, translated
from flowctl.connectors.duckdb.session import DuckdbSession
from flowctl.connectors.duckdb.source import DuckdbSource
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.connectors.sql.conditions import Condition
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.table_info import ObjectName
from tests.connectors.reading import Collected, captured_rows, describe, opened, table

Script = Callable[[str], None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.duckdb"


@pytest.fixture
def script(file: Path) -> Script:
    """Runs statements on the file, which is closed again afterwards."""

    def run(statements: str) -> None:
        with duckdb.connect(file) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(statements)

    return run


@pytest.fixture
def source(file: Path) -> Iterator[Any]:
    with opened("duckdb", base_dir=str(file.parent), path=file.name) as connector:
        yield connector.source


def test_batches_are_bounded(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t AS SELECT range AS i FROM range(250000)")
    info, sink = describe(source, table("t")), Collected()
    assert (info.rows.value, info.rows.method) == (250_000, "stats")
    with source.capture(table("t"), info) as capture:
        assert capture.read(ReadRequest(info.columns), sink) == 250_000
    assert sink.batches >= 3
    assert sorted(row["i"] for row in sink.rows) == list(range(250_000))


def test_a_view_is_known_by_its_query(script: Script, source: DuckdbSource) -> None:
    def view(query: str) -> str:
        script(f"CREATE OR REPLACE VIEW seen AS {query}")
        return describe(source, table("seen")).view

    script("CREATE TABLE t (id INTEGER)")
    assert view("SELECT id FROM t") == view("SELECT  id  FROM t") != view("SELECT id + 1 AS id FROM t")
    assert describe(source, table("t")).view == ""


def test_schemas_views_and_patterns(script: Script, source: DuckdbSource) -> None:
    """A schema may have the file's name, and a table that of a file."""
    script(
        """
        CREATE SCHEMA sales; CREATE SCHEMA "shop";
        CREATE TABLE orders (id INTEGER PRIMARY KEY, note VARCHAR NOT NULL);
        CREATE TABLE sales.orders (id INTEGER, place VARCHAR, PRIMARY KEY (place, id));
        CREATE TABLE sales."Order Lines" (id INTEGER);
        CREATE TABLE "shop"."shop".orders AS SELECT 7 AS id;
        CREATE TABLE "other.csv" AS SELECT 1 AS id;
        CREATE TABLE _flowctl_commits (id INTEGER);
        CREATE TEMP TABLE passing (id INTEGER);
        CREATE VIEW seen AS SELECT * FROM orders
        """.replace('CREATE SCHEMA "shop"', 'CREATE SCHEMA "shop"."shop"')
    )
    assert source.discover(("*",)) == [ObjectName(("orders",)), ObjectName(("other.csv",))]
    assert source.discover(("sa*", "ORDER*")) == [
        ObjectName(("sales", "Order Lines")),
        ObjectName(("sales", "orders")),
    ]
    assert describe(source, table("orders")).primary_key == ("id",)
    assert [column.nullable for column in describe(source, table("ORDERS")).columns] == [False, False]
    assert describe(source, table("sales", "orders")).primary_key == ("place", "id")
    assert describe(source, table("seen")).extra == {"is_table": False}
    assert captured_rows(source, table("shop", "orders")) == [{"id": 7}]
    assert captured_rows(source, table("other.csv")) == [{"id": 1}]
    assert source.describe([table("absent"), table("sales", "seen")]) == {
        table("absent"): None,
        table("sales", "seen"): None,
    }
    missing = source.why_missing(table("sales", "order"))
    assert "has no table sales.order" in missing.reason and "sales.orders" in missing.hint


def test_queries_and_where(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t AS SELECT range AS i, 'x' AS s FROM range(5)")
    query = Relation(None, query='SELECT i * 2 AS "twice" FROM t -- all', where="twice > 5")
    assert [column.native for column in describe(source, query).columns] == ["BIGINT"]
    assert sorted(row["twice"] for row in captured_rows(source, query)) == [6, 8]
    assert captured_rows(source, table("t", where='"i" = 3')) == [{"i": 3, "s": "x"}]
    with pytest.raises(TableError, match=r'DuckDB says: .*"absent" not found'):
        captured_rows(source, table("t", where="absent = 1"))


def test_a_failed_cast_of_the_spec_shows_no_value(script: Script, source: DuckdbSource) -> None:
    for value in ("secret-value", "it''s secret-value", "a\nsecret-value", "secret-value\nb"):
        script(f"CREATE OR REPLACE TABLE t AS SELECT '{value}' AS s")
        for where in ("s::INTEGER = 1", "strptime(s, '%Y') > '2024-01-01'", "s::DATE = DATE '2024-01-01'"):
            with pytest.raises(TableError, match=r"DuckDB says: .* Error: .*…") as failed:
                captured_rows(source, table("t", where=where))
            assert "secret" not in failed.value.message


def test_a_violated_constraint_shows_no_value(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t (s VARCHAR UNIQUE); INSERT INTO t VALUES ('secret')")
    with pytest.raises(TableError, match="Duplicate key … violates unique constraint"), translated(source.path):
        script("INSERT INTO t VALUES ('secret')")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE t RENAME COLUMN n TO m", "has no column n any more"),
        ("ALTER TABLE t ALTER n TYPE BIGINT", "column n of t was altered .* it is BIGINT, it was INTEGER"),
        ("DROP TABLE t", "t was dropped since"),
    ],
)
def test_a_table_altered_since_the_plan_is_not_read(
    script: Script, source: DuckdbSource, change: str, message: str
) -> None:
    script("CREATE TABLE t (id INTEGER, n INTEGER)")
    before = describe(source, table("t"))
    script(change)
    with (
        pytest.raises(StoppedByPolicy, match=message) as stopped,
        source.capture(table("t"), before) as capture,
    ):
        capture.read(ReadRequest(before.columns), Collected())
    assert stopped.value.hint == "Plan again"


def test_a_commit_waits_where_a_second_read_does_not_wait_for_it(
    script: Script, source: DuckdbSource, file: Path
) -> None:
    """A table reads the target's keys while its source snapshot is open, and another commits to the same file."""
    script("CREATE TABLE t (a INTEGER)")
    info, began = describe(source, table("t")), threading.Event()

    def commit() -> None:
        began.set()
        with open_database(file, "rwc") as connection:
            session = DuckdbSession(connection, "")
            with session.transaction():
                session.execute("INSERT INTO t VALUES (1)")

    with ThreadPoolExecutor(1) as pool:
        with source.capture(table("t"), info) as first:
            writer = pool.submit(commit)
            began.wait()
            with source.capture(table("t"), info) as second:
                assert second.is_empty(ReadRequest(info.columns))
            assert first.is_empty(ReadRequest(info.columns))
            assert not writer.done()
        writer.result()
    assert captured_rows(source, table("t")) == [{"a": 1}]


@pytest.mark.timeout(60)
def test_a_read_that_fails_half_way_leaves_nothing_open(script: Script, source: DuckdbSource, file: Path) -> None:
    """DuckDB waits for ever to open a file for writing while an unread result has it open for reading."""
    script("CREATE TABLE t AS SELECT range AS i FROM range(1000000)")
    info = describe(source, table("t"))

    class Full:
        def write(self, batch: pa.RecordBatch) -> None:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full") as kept, source.capture(table("t"), info) as capture:
        capture.read(ReadRequest(info.columns), Full())
    with source.capture(table("t"), info) as capture:
        batches = capture.batches(Condition('SELECT "i" FROM t'), info.columns)
        next(batches)
        batches.close()
    with open_database(file, "rwc") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1_000_000,)
    assert kept.value.__traceback__ is not None


def test_a_capture_beside_a_commit_shows_one_moment(script: Script, source: DuckdbSource, file: Path) -> None:
    """While this process writes the file, its readers use the same instance."""
    script("CREATE TABLE t (a INTEGER)")
    info = describe(source, table("t"))
    with open_database(file, "rwc") as connection:
        session = DuckdbSession(connection, "")
        with session.transaction():
            session.execute("INSERT INTO t VALUES (1)")
            with source.capture(table("t"), info) as capture:
                assert capture.is_empty(ReadRequest(info.columns))
        with source.capture(table("t"), info) as capture:
            session.execute("DELETE FROM t")
            assert not capture.is_empty(ReadRequest(info.columns))
        assert captured_rows(source, table("t")) == []
