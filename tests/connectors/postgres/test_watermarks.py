"""What plans ask PostgreSQL about cursors: zones in which a delay is counted, transactions that are still writing."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres.conditions import _local
from flowctl.connectors.source import HighWatermark, Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import earliest_local
from flowctl.model import types
from flowctl.model.position import CursorPosition
from flowctl.model.table_info import ObjectName
from flowctl.model.value import TypedValue
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, table


def watermarks(postgres: Connector, relation: Relation, *requests: WatermarkRequest) -> list[HighWatermark]:
    info = describe(postgres.source, relation)
    asked = {str(n): replace(one, info=info, cursor=info.columns[0]) for n, one in enumerate(requests)}
    found = postgres.source.high_watermarks(asked)
    return [found[name] for name in asked]


def request(relation: Relation, **more: Any) -> WatermarkRequest:
    return WatermarkRequest(relation, None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
def test_delay_counts_in_the_databases_own_zone_unless_the_spec_names_one(
    database: psycopg.Connection[Any], postgres: Connector, zone: str
) -> None:
    database.execute(f"ALTER DATABASE {database.info.dbname} SET timezone TO '{zone}'")
    with psycopg.connect(**database.info.get_parameters(), password=database.info.password, autocommit=True) as local:
        local.execute("CREATE TABLE t (at timestamp DEFAULT now(), day date DEFAULT now())")
        local.execute("INSERT INTO t SELECT now() - i * interval '30 minutes' FROM generate_series(1, 5, 2) i")
    relation = table("public", "t")
    own, named = watermarks(postgres, relation, request(relation, delay=3600), request(relation, delay=3600, zone=zone))
    assert isinstance(own.position, CursorPosition) and own.position == named.position
    age = dt.datetime.now(ZoneInfo(zone)).replace(tzinfo=None) - own.position.at.value  # type: ignore[operator]
    assert dt.timedelta(hours=1.4) < age < dt.timedelta(hours=1.6)
    assert (own.zone, named.zone) == (zone, "")
    (unknown,) = watermarks(postgres, relation, request(relation, delay=3600, zone="Europe/Nowhere"))
    assert "Nowhere" in str(unknown.failure)


def test_a_table_that_fails_leaves_the_others_what_is_known_of_them(
    database: psycopg.Connection[Any], postgres: Connector, postgres_database: str
) -> None:
    database.execute(f"ALTER DATABASE {database.info.dbname} SET timezone TO 'Asia/Tokyo'")
    database.execute("CREATE TABLE t (at timestamp); INSERT INTO t SELECT '2026-01-01' FROM generate_series(1, 5000)")
    database.execute("ANALYZE t; SELECT pg_stat_force_next_flush()")
    healthy, lower = table("public", "t"), TypedValue(types.TIMESTAMP_NTZ, dt.datetime(2025, 1, 1))
    asked = request(healthy, count_writers=True, delay=3600, lower=lower)
    broken = replace(asked, relation=replace(healthy, where="no_such_column = 1"))
    with psycopg.connect(postgres_database) as other:
        other.execute("INSERT INTO t VALUES (now())")
        (alone,) = watermarks(postgres, healthy, asked)
        beside, failed = watermarks(postgres, healthy, asked, broken)
    assert "no_such_column" in str(failed.failure)
    assert replace(beside, clock=None) == replace(alone, clock=None)
    assert (beside.writers, beside.zone, beside.rows.method) == (1, "Asia/Tokyo", "stats")
    assert 4_000 < (beside.rows.value or 0) < 12_000


@pytest.mark.parametrize(
    "moment", ["2026-10-24T23:30", "2026-10-25T00:30:17.5", "2026-10-25T01:30", "2026-03-29T01:00"]
)
def test_the_hour_that_comes_twice_is_the_same_in_sql(database: psycopg.Connection[Any], moment: str) -> None:
    (found,) = database.execute(_local(f"timestamptz '{moment}+00'", "Europe/Amsterdam").encode()).fetchone() or ()
    assert found == earliest_local(dt.datetime.fromisoformat(moment).replace(tzinfo=dt.UTC), "Europe/Amsterdam")


def test_open_transactions_that_have_written_are_counted(
    database: psycopg.Connection[Any], postgres: Connector, postgres_database: str
) -> None:
    database.execute(
        "CREATE TABLE t (id int); CREATE TABLE other (id int); CREATE VIEW v AS SELECT * FROM t;"
        "CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)"
    )
    with psycopg.connect(postgres_database) as first, psycopg.connect(postgres_database) as second:
        first.execute("INSERT INTO t VALUES (1); INSERT INTO p1 VALUES (1)")
        second.execute("SELECT * FROM t")
        second.execute("INSERT INTO other VALUES (1)")
        counted = {}
        for name in ("t", "p", "v", "other"):
            relation = table("public", name)
            minds, does_not = watermarks(postgres, relation, request(relation, count_writers=True), request(relation))
            counted[name] = (minds.writers, does_not.writers)
        query = Relation(None, query="SELECT id FROM t")
        (asked,) = watermarks(postgres, query, request(query, count_writers=True))
    assert counted == {"t": (1, 0), "p": (1, 0), "v": (2, 0), "other": (1, 0)} and asked.writers == 2
    relation = Relation(ObjectName(("t",)))
    (after,) = watermarks(postgres, relation, request(relation, count_writers=True))
    assert after.writers == 0


def asked_as(
    database: psycopg.Connection[Any],
    postgres: Connector,
    native: str,
    kind: types.DataType | None = None,
    rows: str = "(NULL)",
) -> HighWatermark:
    database.execute(f"CREATE TABLE t (c {native}); INSERT INTO t VALUES {rows}")
    relation = table("public", "t")
    info = describe(postgres.source, relation)
    cursor = replace(info.columns[0], type=kind or info.columns[0].type)
    return postgres.source.high_watermarks({"t": WatermarkRequest(relation, info, cursor)})["t"]


@pytest.mark.parametrize(
    ("native", "kind"),
    [
        *((native, None) for native in ("xid8", "pg_lsn", "interval", "money", "numeric", "wide", "timetz", "inet")),
        ("int", types.STRING),
    ],
)
def test_a_cursor_whose_texts_sort_in_another_way_is_refused(
    database: psycopg.Connection[Any], postgres: Connector, native: str, kind: types.DataType | None
) -> None:
    database.execute("CREATE DOMAIN wide AS numeric")
    failure = asked_as(database, postgres, native, kind).failure
    assert "is read as text, in which 10 comes before 9" in str(failure)


@pytest.mark.parametrize("native", ["text", "varchar(9)", "char(9)", "name", "uuid", "time(3)", "macaddr", "word"])
def test_a_cursor_whose_texts_sort_as_its_values_do(
    database: psycopg.Connection[Any], postgres: Connector, native: str
) -> None:
    database.execute("CREATE DOMAIN word AS varchar(9) CHECK (value <> '')")
    assert asked_as(database, postgres, native).failure is None


@pytest.mark.parametrize("native", ["bytea", "boolean", "int[]"])
def test_a_cursor_of_a_type_that_cannot_be_one_is_refused(
    database: psycopg.Connection[Any], postgres: Connector, native: str
) -> None:
    assert "which cannot be a cursor" in str(asked_as(database, postgres, native).failure)


@pytest.mark.parametrize(("native", "kind"), [("xid8", "decimal(38,0)"), ("wide", "bigint"), ("text", "bigint")])
def test_a_type_gives_such_a_cursor_its_order(
    database: psycopg.Connection[Any], postgres: Connector, native: str, kind: str
) -> None:
    database.execute("CREATE DOMAIN wide AS numeric")
    found = asked_as(database, postgres, native, types.parse(kind), "('9'), ('10')")
    assert isinstance(found.position, CursorPosition) and found.position.at.value == 10


def test_a_materialized_view_without_rows_stops_the_plan(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute("CREATE TABLE t (c int); CREATE MATERIALIZED VIEW seen AS SELECT * FROM t WITH NO DATA")

    def refused() -> str:
        info = describe(postgres.source, table("public", "seen"))
        return str(postgres.source.refuse_read(info, ReadHints(), reads_twice=False) or "")

    assert "public.seen has not been populated" in refused()
    database.execute("REFRESH MATERIALIZED VIEW seen")
    assert refused() == ""
