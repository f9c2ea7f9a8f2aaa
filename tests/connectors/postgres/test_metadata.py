"""What PostgreSQL says of its tables before anything is read: names, columns, identity, watermarks, clear errors."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres.client import client
from flowctl.connectors.source import Relation, WatermarkRequest
from flowctl.errors import FlowctlError, StoppedByPolicy, TableError, TransientError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.table_info import ObjectName
from flowctl.model.value import TypedValue, from_text
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, opened, spark_rows, table
from tests.services import postgres as clusters
from tests.services.postgres_versions import VERSIONS, programs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_new_is_estimated_from_statistics(database: psycopg.Connection[Any], postgres: Connector) -> None:
    """And from the changes that they do not know of. Nothing new is not asked for."""

    def execute(statement: str) -> None:
        database.execute(f"{statement}; SELECT pg_stat_force_next_flush()".encode())

    execute("CREATE TABLE aged (id bigint PRIMARY KEY) WITH (autovacuum_enabled = false)")
    execute("INSERT INTO aged SELECT generate_series(1, 10000)")
    execute("ANALYZE aged")
    execute("CREATE VIEW seen AS SELECT * FROM aged")

    def told(relation: Relation, low: int) -> int | None:
        info = describe(postgres.source, relation)
        request = WatermarkRequest(relation, info, info.column("id"), TypedValue(types.INT64, low))
        watermark = postgres.source.high_watermarks({"aged": request})["aged"]
        assert watermark.failure is None
        return watermark.rows.value

    aged = table("public", "aged")
    assert 900 <= (told(aged, 9_001) or 0) <= 1_100
    assert told(aged, 10_000) is None
    assert told(table("public", "seen"), 9_001) is None, "a view has no statistics"
    execute("INSERT INTO aged SELECT generate_series(10001, 15000)")
    assert 5_000 <= (told(aged, 10_000) or 0) <= 15_000
    execute("UPDATE aged SET id = id + 20000")
    assert (told(aged, 15_000) or 0) >= 15_000


@pytest.mark.full
@pytest.mark.server
@pytest.mark.parametrize("major", VERSIONS)
def test_rows_that_no_statistics_have_counted_are_unknown_in_every_version(major: int) -> None:
    with (
        clusters.cluster(programs(major)) as made,
        made.started() as server,
        clusters.database(server, "counted") as url,
        psycopg.connect(url, autocommit=True) as database,
        opened("postgres", url=url) as connector,
    ):
        database.execute("CREATE TABLE counted (id int) WITH (autovacuum_enabled = false)")
        database.execute("INSERT INTO counted SELECT generate_series(1, 300)")
        before = describe(connector.source, table("public", "counted")).rows.value
        database.execute("ANALYZE counted")
        assert (before, describe(connector.source, table("public", "counted")).rows.value) == (None, 300)


def test_the_plan_is_told_into_how_many_parts_a_table_is_read(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    """By the pages that the read will cut, not by the long texts that lie outside of them."""
    database.execute(
        "CREATE TABLE wide (id int, filler text);"
        "INSERT INTO wide SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i;"
        "CREATE TABLE long (id int, filler text); ALTER TABLE long ALTER filler SET STORAGE EXTERNAL;"
        "INSERT INTO long SELECT i, repeat('x', 3000) FROM generate_series(1, 10000) i"
    )
    wide, long = describe(postgres.source, table("wide")), describe(postgres.source, table("public", "long"))
    assert postgres.source is not None
    assert long.rows.bytes is not None and long.rows.bytes > 16 << 20
    assert (
        postgres.source.explain_read(WatermarkRequest(table("wide"), wide), ReadHints())
        == "read in ≈ 2 parts of one snapshot (23 MB)"
    )
    assert postgres.source.explain_read(WatermarkRequest(table("public", "long"), long), ReadHints()) == ""


def test_a_view_is_known_by_its_query_on_any_search_path(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    def digest(query: str, kind: str = "VIEW", name: str = "seen") -> str:
        create = f"CREATE OR REPLACE {kind}" if kind == "VIEW" else f"CREATE {kind}"
        database.execute(f"{create} {name} AS {query}")
        return describe(postgres.source, table("public", name)).view

    database.execute("CREATE TABLE t (id int); CREATE SCHEMA other; CREATE TABLE other.u (id int)")
    first = digest("SELECT id FROM t JOIN other.u USING (id)")
    path = database.execute("SELECT format('ALTER DATABASE %I SET search_path = other, public', current_database())")
    database.execute(str(path.fetchone()[0]))  # type: ignore[index]
    assert first == digest("SELECT  id FROM public.t JOIN other.u USING (id)")
    assert first != digest("SELECT id + 1 AS id FROM t JOIN other.u USING (id)")
    assert digest("SELECT id FROM t", "MATERIALIZED VIEW", "kept") == digest("SELECT id FROM t", name="again") != ""
    assert describe(postgres.source, table("public", "t")).view == ""


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (("public", "*"), ["public.a_b", "public.aXb", "public.kept", "public.parts"]),
        (("public", "a_b"), ["public.a_b"]),
        (("public", "a?b"), ["public.a_b", "public.aXb"]),
        (("*", "Orders"), ["Sales.Orders"]),
        (("a*",), ["a_b", "aXb"]),
        (("nowhere", "*"), []),
    ],
)
def test_globs_find_tables(
    database: psycopg.Connection[Any], postgres: Connector, pattern: tuple[str, ...], found: list[str]
) -> None:
    """No views, no partitions, nothing of the system's or flowctl's own; ``_`` is no wildcard."""
    database.execute(
        'CREATE TABLE a_b (i int); CREATE TABLE "aXb" (i int); CREATE VIEW v AS SELECT 1 AS i;'
        "CREATE TABLE parts (i int) PARTITION BY LIST (i); CREATE TABLE part_1 PARTITION OF parts DEFAULT;"
        'CREATE MATERIALIZED VIEW kept AS SELECT 1 AS i; CREATE SCHEMA "Sales"; CREATE TABLE "Sales"."Orders" (i int);'
        "CREATE TABLE _flowctl_commits (i int)"
    )
    assert sorted(map(str, postgres.source.discover(pattern))) == sorted(found)


def test_tables_are_described_in_one_go(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute(
        'CREATE TABLE "Odd "" Name" ("b" int NOT NULL, a text, gone int, PRIMARY KEY (b, a));'
        'ALTER TABLE "Odd "" Name" DROP COLUMN gone; CREATE TABLE empty (); CREATE TABLE counted (i int);'
        "INSERT INTO counted SELECT generate_series(1, 1000); ANALYZE counted"
    )
    relations = [table("public", 'Odd " Name'), table("counted"), table("public", "empty"), table("public", "nothing")]
    odd, counted, empty, nothing = postgres.source.describe(relations).values()
    assert odd is not None and counted is not None and empty is not None and nothing is None
    assert odd.primary_key == ("b", "a")
    assert [(column.name, column.nullable) for column in odd.columns] == [("b", False), ("a", False)]
    assert counted.rows.value == 1000 and counted.rows.method == "stats" and counted.rows.bytes
    assert empty.columns == ()
    assert odd.clock is not None and odd.clock.tzinfo is not None


def test_a_query_is_described_without_running_it(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute("CREATE TABLE t (n numeric(10,2), l int[])")
    query = Relation(None, "SELECT n, l, count(*) AS times, 1 / (random() * 0)::int AS never FROM t GROUP BY 1, 2; ")
    columns = {column.name: str(column.type) for column in describe(postgres.source, query).columns}
    assert columns == {"n": "decimal128(10, 2)", "l": "list<item: int32>", "times": "int64", "never": "int32"}


def test_identity_is_of_this_very_table(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute("CREATE TABLE t (i int)")
    before = describe(postgres.source, table("public", "t")).identity
    database.execute("ALTER TABLE t ADD COLUMN j int")
    database.execute("VACUUM FULL t")
    assert describe(postgres.source, table("public", "t")).identity == before
    database.execute("DROP TABLE t")
    database.execute("CREATE TABLE t (i int)")
    assert describe(postgres.source, table("public", "t")).identity != before


_REST = "-0000-0000-0000-000000000000"

#: SQL type, values in its order, and the greatest as flowctl carries it.
CURSORS: list[tuple[str, list[str], types.DataType, Any]] = [
    ("bigint", ["-5", "9", "10"], types.INT64, 10),
    ("numeric(38,2)", ["9.5", "10", "1e20"], types.Decimal(38, 2), Decimal(10**20)),
    ("double precision", ["-1", "0.1", "9"], types.DOUBLE, 9.0),
    ("text", ["B", "a", "é"], types.STRING, "é"),
    ("uuid", [digit * 8 + _REST for digit in "09a"], types.STRING, "a" * 8 + _REST),
    ("date", ["0001-01-01", "2026-01-01", "2026-01-02"], types.DATE, dt.date(2026, 1, 2)),
    (
        "timestamp",
        ["2026-01-01", "2026-01-01 00:00:00.1", "2026-01-02"],
        types.TIMESTAMP_NTZ,
        dt.datetime(2026, 1, 2),
    ),
    (
        "timestamptz",
        ["2026-01-01 01:00+02", "2026-01-01 00:00+00", "2026-01-01 00:00:00.000001+00"],
        types.TIMESTAMP,
        dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
    ),
]


@pytest.mark.parametrize(("native", "stored", "kind", "greatest"), CURSORS, ids=[native for native, *_ in CURSORS])
def test_cursors_are_compared_in_their_type(
    spark: SparkSession,
    database: psycopg.Connection[Any],
    postgres: Connector,
    native: str,
    stored: list[str],
    kind: types.DataType,
    greatest: Any,
) -> None:
    database.execute(f"CREATE TABLE t (id int, at {native})")
    for at, value in enumerate(stored):
        database.execute(f"INSERT INTO t VALUES ({at}, '{value}')")
    database.execute("INSERT INTO t VALUES (9, NULL)")
    info = describe(postgres.source, table("public", "t"))
    cursor = info.column("at")
    assert cursor is not None and cursor.type == kind
    middle = from_text(kind, stored[1])

    watermark = postgres.source.high_watermarks(
        {"t": WatermarkRequest(table("public", "t"), info, cursor, middle, estimate="count")}
    )["t"]
    assert watermark.position == CursorPosition(TypedValue(kind, greatest))
    assert watermark.has_null_cursor and watermark.rows.value == 2

    def ids(lower: TypedValue | None, upper: TypedValue | None, *, nulls: bool = False) -> list[int]:
        interval = Interval(None, NoPosition(), "at", lower, upper, include_null=nulls)
        return sorted(row["id"] for row in spark_rows(spark, postgres.source, table("public", "t"), interval=interval))

    assert ids(middle, None) == [1, 2]
    assert ids(middle, middle) == [1]
    assert ids(None, middle) == [0, 1]
    assert ids(None, None) == [0, 1, 2]
    assert ids(middle, None, nulls=True) == [1, 2, 9]


@pytest.mark.parametrize(
    ("native", "value"),
    [
        ("timestamptz", "infinity"),
        ("date", "infinity"),
        ("timestamp", "10000-01-01"),
        ("float8", "NaN"),
        ("real", "Infinity"),
    ],
)
def test_an_infinite_cursor_stops_its_own_table_only(
    database: psycopg.Connection[Any], postgres: Connector, native: str, value: str
) -> None:
    database.execute(f"CREATE TABLE t (at {native}); INSERT INTO t VALUES ('{value}')")
    database.execute("CREATE TABLE fine (id int); INSERT INTO fine VALUES (1)")
    requests = {}
    for name in ("t", "fine"):
        info = describe(postgres.source, table("public", name))
        requests[name] = WatermarkRequest(table("public", name), info, info.columns[0])
    watermarks = postgres.source.high_watermarks(requests)
    assert isinstance(watermarks["t"].failure, StoppedByPolicy) and "would freeze" in str(watermarks["t"].failure)
    assert watermarks["fine"].failure is None and watermarks["fine"].position == CursorPosition(
        TypedValue(types.INT32, 1)
    )


def test_a_missing_privilege_stops_its_own_table_only(
    postgres_database: str, database: psycopg.Connection[Any]
) -> None:
    database.execute("CREATE TABLE secret (id int); CREATE TABLE open (id int); INSERT INTO open VALUES (1)")
    database.execute("CREATE ROLE reader LOGIN PASSWORD 'reader-secret'; GRANT SELECT ON open TO reader")
    try:
        with opened("postgres", url=_as_user(postgres_database, "reader", "reader-secret")) as reader:
            requests = {}
            for name in ("secret", "open"):
                info = describe(reader.source, table("public", name))
                requests[name] = WatermarkRequest(table("public", name), info, info.columns[0])
            watermarks = reader.source.high_watermarks(requests)
        assert isinstance(watermarks["secret"].failure, TableError) and "permission denied" in str(
            watermarks["secret"].failure
        )
        assert watermarks["secret"].failure.hint == "GRANT what is missing to reader"
        assert watermarks["open"].position == CursorPosition(TypedValue(types.INT32, 1))
    finally:
        database.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_cursor_without_an_order_of_its_own_is_refused(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("CREATE TABLE t (n numeric); INSERT INTO t VALUES (9), (10)")
    info = describe(postgres.source, table("public", "t"))
    watermarks = postgres.source.high_watermarks({"t": WatermarkRequest(table("public", "t"), info, info.columns[0])})
    assert "10 comes before 9" in str(watermarks["t"].failure)


def test_delay_is_by_the_servers_clock(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute("CREATE TABLE t AS SELECT now() - i * interval '1 hour' AS at FROM generate_series(0, 3) i")
    info = describe(postgres.source, table("public", "t"))
    watermark = postgres.source.high_watermarks(
        {"t": WatermarkRequest(table("public", "t"), info, info.columns[0], delay=5400)}
    )["t"]
    assert isinstance(watermark.position, CursorPosition) and watermark.clock is not None
    age = watermark.clock - watermark.position.at.value  # type: ignore[operator]
    assert dt.timedelta(hours=2) <= age < dt.timedelta(hours=3)


def test_an_empty_table_has_no_position(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute("CREATE TABLE t (id int)")
    info = describe(postgres.source, table("public", "t"))
    watermarks = postgres.source.high_watermarks(
        {
            "cursor": WatermarkRequest(table("public", "t"), info, info.columns[0]),
            "none": WatermarkRequest(table("public", "t"), info),
        }
    )
    assert watermarks["cursor"].position is None and watermarks["none"].position == NoPosition()


def test_connection_errors_say_what_to_do(postgres_server: str) -> None:
    wrong = [
        (_as_user(postgres_server, "etl", "not-this-one"), TableError, "Check user, password"),
        (postgres_server.rpartition("/")[0] + "/no_such_database", TableError, "Check user, password, database"),
        ("postgresql://etl:x@127.0.0.1:1/shop", TransientError, "Check that the server is up"),
    ]
    for url, kind, hint in wrong:
        with opened("postgres", url=url) as connector, pytest.raises(kind) as failed:
            connector.source.discover(("public", "*"))
        assert hint in failed.value.hint
        assert "not-this-one" not in failed.value.describe()


def test_options_of_a_connection() -> None:
    given = client({"url": "postgresql://me:p%40ss@[::1]:5433/my%20shop?sslmode=verify-full&sslrootcert=ca.pem"})
    assert given.jdbc_url().startswith("jdbc:postgresql://[::1]:5433/my%20shop?")
    told = {"user": "me", "password": "p@ss", "sslmode": "verify-full", "sslrootcert": "ca.pem"}
    assert given.jdbc_properties().items() >= told.items()
    assert "p@ss" not in repr(given) and "p@ss" not in given.jdbc_url()
    single = client(
        {"host": "db", "database": "shop", "user": "etl", "sslmode": "require", "options": {"sslcert": "c"}}
    )
    assert (
        single.jdbc_url().startswith("jdbc:postgresql://db:5432/shop?") and "password" not in single.jdbc_properties()
    )
    assert single.jdbc_properties()["sslcert"] == "c"
    with pytest.raises(FlowctlError, match="one host reached by TCP"):
        client({"host": "/var/run", "database": "shop"})


def _as_user(url: str, user: str, password: str) -> str:
    return f"postgresql://{user}:{password}@{url.rpartition('@')[2]}"


def test_object_names_are_taken_as_they_are(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute('CREATE SCHEMA other; CREATE TABLE other."T" (i int); CREATE TABLE "T" (i int, j int)')
    for parts, columns in ((("other", "T"), 1), (("T",), 2), (("public", "T"), 2)):
        relation = Relation(ObjectName(parts))
        assert len(describe(postgres.source, relation).columns) == columns
    assert postgres.source.describe([table("public", "t")]) == {table("public", "t"): None}


@pytest.mark.parametrize("kind", ["int", "numeric(9,2)", "timestamp", "timestamptz", "date", "text"])
def test_a_watermark_counts_what_append_has_still_to_write(
    database: psycopg.Connection[Any], postgres: Connector, kind: str
) -> None:
    first = {"int": "1", "numeric(9,2)": "1.5", "text": "a"}.get(kind, "2026-01-01")
    second = {"int": "2", "numeric(9,2)": "2.5", "text": "b"}.get(kind, "2026-01-02")
    database.execute(f"SET timezone = 'UTC'; CREATE TABLE t (at {kind})")
    for value in (first, first, second, None):
        database.execute("INSERT INTO t VALUES (%s)", [value])
    relation = table("public", "t")
    info = describe(postgres.source, relation)
    position = from_text(info.columns[0].type, first)
    asked = WatermarkRequest(relation, info, info.columns[0], position, position=position, estimate="count")
    above = from_text(info.columns[0].type, second)
    watermarks = postgres.source.high_watermarks(
        {
            "asked": asked,
            "older": replace(asked, check_older=True),
            "none": replace(asked, check_older=True, first=above),
            "whole": WatermarkRequest(relation, info, info.columns[0], estimate="count"),
            "nulls": WatermarkRequest(relation, info, info.columns[0], position, null_rows=True, estimate="count"),
        }
    )
    assert (watermarks["asked"].rows.value, watermarks["asked"].rows_at_position) == (3, 2)
    assert (watermarks["whole"].rows.value, watermarks["whole"].rows_at_position) == (3, None)
    assert watermarks["nulls"].rows.value == 4
    assert (watermarks["older"].has_older, watermarks["none"].has_older) == (True, False)


def test_what_delay_keeps_out_is_not_counted_for_append_and_is_no_empty_table(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("CREATE TABLE t AS SELECT now() - i * interval '89 minutes' AS at FROM generate_series(0, 1) i")
    relation = table("public", "t")
    info = describe(postgres.source, relation)
    watermarks = postgres.source.high_watermarks(
        {
            name: WatermarkRequest(relation, info, info.columns[0], delay=delay, appends=appends, estimate="count")
            for name, delay, appends in (("append", 3600, True), ("merge", 3600, False), ("young", 36000, True))
        }
    )
    assert [watermarks[name].rows.value for name in ("append", "merge", "young")] == [1, 2, 0]
    assert (watermarks["append"].has_younger, watermarks["young"].has_younger) == (False, True)
