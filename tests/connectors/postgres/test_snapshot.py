"""A read is one moment: whatever happens to the table while executors read it in many ranges."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres.jdbc_reading import jdbc_text
from flowctl.connectors.postgres.reading import page_ranges
from flowctl.connectors.source import ReadRequest, Relation, WatermarkRequest
from flowctl.connectors.sql.parts import number_ranges
from flowctl.engine.cost import range_count
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.value import TypedValue
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, spark_rows, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 20_000


@pytest.fixture
def postgres(postgres: Connector, reader: str) -> Connector:  # noqa: ARG001 - by each reader in turn
    return postgres


@pytest.fixture
def moving(database: psycopg.Connection[Any]) -> Relation:
    """Some hundred pages, loosely filled, so that updated rows move to other pages."""
    database.execute(
        "CREATE TABLE moving (id bigint PRIMARY KEY, version int, filler text) WITH (autovacuum_enabled = false);"
        f"INSERT INTO moving SELECT i, 0, repeat('x', 200) FROM generate_series(1, {_ROWS}) i"
    )
    return table("public", "moving")


def test_rows_that_move_between_pages_are_read_once(
    spark: SparkSession, postgres_database: str, postgres: Connector, moving: Relation
) -> None:
    """Every row is updated over and over (so it moves), rows are added and deleted, while sixteen ranges are read."""
    source = postgres.source
    info = describe(source, moving)
    done = threading.Event()

    def churn() -> None:
        with psycopg.connect(postgres_database, autocommit=True) as other:
            for turn in range(1, 100):
                if done.wait(0.02):
                    return
                low = turn * 997 % _ROWS
                other.execute("UPDATE moving SET version = version + 1 WHERE id BETWEEN %s AND %s", [low, low + 999])
                other.execute("DELETE FROM moving WHERE id = %s", [low])
                other.execute("INSERT INTO moving VALUES (%s, 0, '')", [_ROWS + turn])

    with source.snapshot(spark, moving, info, ReadHints(splits=16)) as snapshot:
        frame = snapshot.frame(ReadRequest(info.columns))
        writer = threading.Thread(target=churn)
        writer.start()
        try:
            first = frame.selectExpr("count(*)", "count(DISTINCT id)", "min(id)", "max(id)", "sum(version)").first()
            second = frame.selectExpr("count(*)", "sum(version)").first()
        finally:
            done.set()
            writer.join()
    assert tuple(first) == (_ROWS, _ROWS, 1, _ROWS, 0)
    assert tuple(second) == (_ROWS, 0)


@pytest.mark.usefixtures("impatient_readers")
def test_a_truncate_waits_and_the_read_never_comes_out_empty(
    spark: SparkSession, postgres_database: str, postgres: Connector, moving: Relation
) -> None:
    """TRUNCATE queues behind the holder's lock; executors that come after it give up, as a transient failure. Started
    again, the read shows the reloaded table."""
    source = postgres.source
    info = describe(source, moving)

    def reload() -> None:
        with psycopg.connect(postgres_database) as other:
            other.execute("TRUNCATE moving")
            other.execute("INSERT INTO moving SELECT i, 7, '' FROM generate_series(1, 10) i")

    writer = threading.Thread(target=reload)
    with (
        pytest.raises(TransientError, match="waits to change"),
        source.snapshot(spark, moving, info, ReadHints(splits=16)) as snapshot,
    ):
        writer.start()
        _until_waiting(postgres_database)
        snapshot.frame(ReadRequest(info.columns)).collect()
    writer.join()
    assert {row["version"] for row in spark_rows(spark, source, moving)} == {7}


def test_a_truncate_before_the_lock_is_seen_whole(
    spark: SparkSession,
    postgres_database: str,
    postgres: Connector,
    moving: Relation,
) -> None:
    """The lock comes before the snapshot: a read that begins during a TRUNCATE waits, then sees the reload."""
    truncated, go_on = threading.Event(), threading.Event()

    def reload() -> None:
        with psycopg.connect(postgres_database) as other:
            other.execute("TRUNCATE moving")
            truncated.set()
            go_on.wait()
            other.execute("INSERT INTO moving SELECT i, 7, '' FROM generate_series(1, 10) i")

    writer = threading.Thread(target=reload)
    info = describe(postgres.source, moving)
    writer.start()
    truncated.wait()
    releaser = threading.Thread(target=lambda: (_until_waiting(postgres_database), go_on.set()))
    releaser.start()
    with postgres.source.snapshot(spark, moving, info, ReadHints(splits=4)) as snapshot:
        rows = snapshot.frame(ReadRequest(info.columns)).collect()
    writer.join()
    releaser.join()
    assert [row["version"] for row in rows] == [7] * 10


def _until_waiting(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as watcher:
        while not watcher.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND relation IS NOT NULL").fetchone():
            pass


def test_emptiness_is_that_of_the_snapshot(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, moving: Relation
) -> None:
    info = describe(postgres.source, moving)
    none = replace(moving, where="id < 0")
    with postgres.source.snapshot(spark, moving, info, ReadHints()) as snapshot:
        database.execute("DELETE FROM moving")
        assert not snapshot.is_empty(ReadRequest(info.columns))
    for relation in (moving, none):
        with postgres.source.snapshot(spark, relation, info, ReadHints()) as snapshot:
            assert snapshot.is_empty(ReadRequest(info.columns))


def test_emptiness_of_a_lost_snapshot_is_not_known(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, moving: Relation
) -> None:
    info = describe(postgres.source, moving)
    with (
        pytest.raises(TransientError, match="lost with the connection"),
        postgres.source.snapshot(spark, moving, info, ReadHints()) as snapshot,
    ):
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flowctl' "
            "AND datname = current_database() AND backend_xmin IS NOT NULL"
        )
        snapshot.is_empty(ReadRequest(info.columns))


def test_a_lost_snapshot_fails_the_read(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, moving: Relation
) -> None:
    info = describe(postgres.source, moving)
    with (
        pytest.raises(TransientError, match=r"snapshot of public\.moving was lost"),
        postgres.source.snapshot(spark, moving, info, ReadHints(splits=2)) as snapshot,
    ):
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flowctl' "
            "AND datname = current_database() AND backend_xmin IS NOT NULL"
        )
        snapshot.frame(ReadRequest(info.columns)).collect()


def test_a_part_outside_the_snapshot_is_an_error_not_an_answer(
    database: psycopg.Connection[Any], postgres: Connector, moving: Relation
) -> None:
    from flowctl.connectors.postgres.snapshot import hold_snapshot

    with hold_snapshot(postgres.source.client, moving, "r") as held:
        query = f"SELECT count(*) FROM moving WHERE {held.assertion()}"
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="not in the exported snapshot"):
            database.execute(query)
        with database.transaction():
            database.execute(held.join_statement())
            assert database.execute(query).fetchone() == (_ROWS,)


@pytest.mark.parametrize("reader", ["jdbc"], indirect=True)
def test_fetch_size_zero_is_refused(spark: SparkSession, postgres: Connector, moving: Relation) -> None:
    with pytest.raises(TableError, match="fetch_size 0 would read without the snapshot"):
        spark_rows(spark, postgres.source, moving, hints=ReadHints(fetch_size=0))


def test_time_outs_of_the_role_do_not_end_a_read(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, moving: Relation
) -> None:
    database.execute("ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = '1ms'")
    database.execute("ALTER ROLE CURRENT_USER SET statement_timeout = '1ms'")
    try:
        assert len(spark_rows(spark, postgres.source, moving, hints=ReadHints(splits=4, fetch_size=10))) == _ROWS
    finally:
        database.execute("SET statement_timeout = 0")
        database.execute("ALTER ROLE CURRENT_USER RESET ALL")


@pytest.mark.parametrize("splits", [1, 3, 16])
def test_partitions_are_those_of_the_snapshots_moment(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, splits: int
) -> None:
    """Partitions of very different sizes, two levels deep; one more is attached while they are read."""
    database.execute(
        "CREATE TABLE events (day int, id int, v text) PARTITION BY RANGE (day);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (2);"
        "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (2) TO (3) PARTITION BY RANGE (id);"
        "CREATE TABLE events_2a PARTITION OF events_2 FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE events_2b PARTITION OF events_2 FOR VALUES FROM (100) TO (100000);"
        "CREATE TABLE events_3 (LIKE events); INSERT INTO events_3 VALUES (3, 1, 'late');"
        "INSERT INTO events SELECT 1 + i % 2, i, repeat('y', 100) FROM generate_series(0, 9999) i"
    )
    relation = table("public", "events")
    info = describe(postgres.source, relation)
    with postgres.source.snapshot(spark, relation, info, ReadHints(splits=splits)) as snapshot:
        database.execute("ALTER TABLE events ATTACH PARTITION events_3 FOR VALUES FROM (3) TO (4)")
        read = (
            snapshot.frame(ReadRequest(info.columns)).selectExpr("count(*)", "count(DISTINCT id)", "max(day)").first()
        )
    assert tuple(read) == (10_000, 10_000, 2)
    assert len(spark_rows(spark, postgres.source, relation)) == 10_001


@pytest.mark.parametrize(
    "relation",
    [
        table("public", "moving", where="id % 2 = 0 -- half of them"),
        Relation(None, query="SELECT id, version FROM moving WHERE id % 2 = 0 -- half;"),
        table("public", "half"),
        table("public", "half_kept"),
    ],
    ids=["where", "query", "view", "materialized view"],
)
@pytest.mark.parametrize("split_by", ["auto", "id"])
@pytest.mark.usefixtures("moving")
def test_what_can_be_read(
    spark: SparkSession,
    database: psycopg.Connection[Any],
    postgres: Connector,
    relation: Relation,
    split_by: str,
) -> None:
    database.execute(
        "CREATE VIEW half AS SELECT * FROM moving WHERE id % 2 = 0;"
        "CREATE MATERIALIZED VIEW half_kept AS SELECT * FROM half"
    )
    rows = spark_rows(spark, postgres.source, relation, hints=ReadHints(splits=3, split_by=split_by))
    assert sorted(row["id"] for row in rows) == list(range(2, _ROWS + 1, 2))


def test_question_marks_are_operators(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("""CREATE TABLE tagged ("what?" int, tags jsonb)""")
    database.execute("""INSERT INTO tagged VALUES (1, '{"a?": 1}'), (2, '{"b": 1}')""")
    rows = spark_rows(spark, postgres.source, table("public", "tagged", where="tags ? 'a?' /* really? */"))
    assert [row["what?"] for row in rows] == [1]


@pytest.mark.parametrize(
    ("low", "is_cut"),
    [(99_990, False), (100, True)],
    ids=["few rows, which an index finds", "most rows, for which all pages are read"],
)
def test_an_increment_is_cut_by_pages_only_where_they_are_read(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, low: int, is_cut: bool
) -> None:
    database.execute(
        "CREATE TABLE long (id bigint PRIMARY KEY, filler text) WITH (autovacuum_enabled = false);"
        "INSERT INTO long SELECT i, repeat('x', 250) FROM generate_series(1, 100000) i; ANALYZE long"
    )
    relation = table("public", "long")
    info, at = describe(postgres.source, relation), TypedValue(types.INT64, low)
    interval = Interval(CursorPosition(at), NoPosition(), "id", read_from=at)
    assert "parts" in postgres.source.explain_read(WatermarkRequest(relation, info), ReadHints())
    with postgres.source.snapshot(spark, relation, info, ReadHints()) as snapshot:
        frame = snapshot.frame(ReadRequest(info.columns, interval))
        found = frame.selectExpr("count(*)", "count(DISTINCT id)", "min(id)").first()
        parts = frame.selectExpr("spark_partition_id() AS part").distinct().count()
    assert tuple(found) == (100_001 - low, 100_001 - low, low)
    assert (parts > 1) is is_cut


@pytest.mark.parametrize(
    ("table_sql", "low", "hints", "rows"),
    [
        ("SELECT i AS id, 'x' AS filler FROM generate_series(1, 1000) i", None, ReadHints(), 1000),
        ("SELECT i AS id, repeat('x', 250) AS filler FROM generate_series(1, 100000) i", None, ReadHints(), None),
        ("SELECT i AS id, repeat('x', 250) AS filler FROM generate_series(1, 100000) i", 99_990, ReadHints(), 11),
        ("SELECT i AS id, repeat('x', 250) AS filler FROM generate_series(1, 100000) i", 100, ReadHints(), None),
        ("SELECT i AS id, repeat('x', 1000000) AS filler FROM generate_series(1, 40) i", None, ReadHints(), None),
        ("SELECT i AS id, 'x' AS filler FROM generate_series(1, 1000) i", None, ReadHints(splits=2), None),
    ],
    ids=[
        "small",
        "large",
        "few found by an index",
        "many found by an index",
        "large once unpacked",
        "as the hints say",
    ],
)
def test_what_is_little_is_read_by_this_process(
    database: psycopg.Connection[Any],
    spark: SparkSession,
    postgres: Connector,
    table_sql: str,
    low: int | None,
    hints: ReadHints,
    rows: int | None,
) -> None:
    database.execute(f"CREATE TABLE little WITH (autovacuum_enabled = false) AS {table_sql}")
    database.execute("ALTER TABLE little ADD PRIMARY KEY (id)")
    database.execute("ANALYZE little")
    relation = table("public", "little")
    info, interval = describe(postgres.source, relation), None
    if low is not None:
        at = TypedValue(types.INT32, low)
        interval = Interval(CursorPosition(at), NoPosition(), "id", read_from=at)
    with postgres.source.snapshot(spark, relation, info, hints) as snapshot:
        database.execute("DELETE FROM little")
        held = snapshot.rows_in_memory(ReadRequest(info.columns, interval))
    assert (held.num_rows if held is not None else None) == rows


@pytest.mark.parametrize(
    ("sql", "escaped"),
    [
        ("a ? 'x?'", "a ?? 'x?'"),
        ('"a?" ?| b -- why?\n?', '"a?" ??| b -- why?\n??'),
        ("$$ ? $$ ? $t$ ? $t$ /* ? */", "$$ ? $$ ?? $t$ ? $t$ /* ? */"),
    ],
)
def test_question_marks_in_quotes_and_comments_are_left(sql: str, escaped: str) -> None:
    assert jdbc_text(sql) == escaped


@pytest.mark.parametrize(
    ("pages", "splits", "ranges"),
    [
        ([], 4, ["true"]),
        ([0], 4, ["true"]),
        ([100], 1, ["true"]),
        ([100], 2, ["_flowctl_ctid < '(50,0)'::tid", "_flowctl_ctid >= '(50,0)'::tid"]),
        ([100, 10], 2, ["_flowctl_ctid < '(45,0)'::tid", "_flowctl_ctid >= '(45,0)'::tid"]),
    ],
)
def test_page_ranges_even_out_the_pages_of_all_partitions(pages: list[int], splits: int, ranges: list[str]) -> None:
    assert page_ranges(pages, splits) == ranges


def test_number_ranges_are_open_at_both_ends() -> None:
    assert number_ranges("k", 1, 30, 3) == ["k < 11 OR k IS NULL", "k >= 11 AND k < 21", "k >= 21"]
    assert number_ranges("k", 5, 5, 3) == ["true"]


@pytest.mark.parametrize(("size", "splits"), [(0, 1), (8 << 20, 1), (32 << 20, 4), (1 << 30, 8), (4 << 30, 32)])
def test_ranges_grow_with_the_table(size: int, splits: int) -> None:
    assert range_count(size) == splits
