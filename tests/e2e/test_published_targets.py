"""A PostgreSQL database all of whose tables are published: it refuses updates and deletions without an identity."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from flowctl.connectors.postgres.client import client
from flowctl.errors import TableError
from tests.e2e.flows import Flow, postgres_rows, sqlite_script

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: src.db}
  dw: {type: postgres, url: "URL"}
tables:
  m: {from: src:t, to: dw:public.m, mode: merge, key: [id], deletes: {detect: missing_keys, action: hard},
    guard: {max_deleted: 100%}, expect: [{column: v, not_null: true, on_fail: quarantine}]}
  c: {from: dw:public.wide, to: dw:public.c, mode: merge, key: [id]}
  r: {from: src:t, to: dw:public.r, mode: truncate}
  h: {from: src:t, to: dw:sales.h, mode: scd2, key: [id], scd2: {valid_from: now}}
  a: {from: src:t, to: dw:public.a, mode: append, cursor: {column: id}}
"""
TABLES = {"m": "public.m", "c": "public.c", "r": "public.r", "h": "sales.h", "a": "public.a"}
FIRST = "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)"
THEN = "DELETE FROM t WHERE id = 2; UPDATE t SET v = 'x' WHERE id = 1; INSERT INTO t VALUES (4, NULL)"


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def flow(tmp_path: Path, postgres_database: str) -> Flow:
    made = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    url = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    made.write(SPEC.replace("URL", url))
    sqlite_script(tmp_path / "src.db", FIRST)
    execute(postgres_database, "CREATE TABLE wide AS SELECT g AS id, 'w' AS v FROM generate_series(1, 9) g")
    return made


def identities(url: str) -> dict[str, str]:
    query = (
        "SELECT relname, relreplident::text FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('public', 'sales'))"
    )
    return dict(postgres_rows(url, query))


def test_tables_of_a_published_database_are_written_again_and_again(flow: Flow, postgres_database: str) -> None:
    execute(postgres_database, "CREATE PUBLICATION everything FOR ALL TABLES")
    execute(postgres_database, "ALTER TABLE wide REPLICA IDENTITY FULL")
    ddl = flow.run("plan", "flow.yaml", "--ddl", expect=0).words
    assert 'ALTER TABLE "public"."m" REPLICA IDENTITY FULL' in ddl
    flow.apply()
    sqlite_script(flow.folder / "src.db", THEN)
    execute(postgres_database, "UPDATE wide SET v = 'z' WHERE id = 1")
    flow.apply()
    flow.apply("--full-refresh", "h")
    assert postgres_rows(postgres_database, "SELECT id, v FROM m") == [(1, "x")]
    assert postgres_rows(postgres_database, "SELECT id FROM r") == [(1,), (3,), (4,)]
    assert postgres_rows(postgres_database, "SELECT count(*) FROM c WHERE v = 'z'") == [(1,)]
    found = identities(postgres_database)
    assert {name for name, letter in found.items() if letter == "d"} == {"_flowctl_commits"}  # has a primary key
    assert {"m", "m__quarantine", "h", "h__observed"} <= found.keys()
    assert not any(name.startswith("_flowctl_stage") for name in found)


@pytest.mark.full
def test_existing_tables_that_are_published_without_an_identity_stop(flow: Flow, postgres_database: str) -> None:
    flow.apply()
    assert set(identities(postgres_database).values()) == {"d"}
    execute(postgres_database, "CREATE PUBLICATION listed FOR TABLE m, r, a, sales.h")
    sqlite_script(flow.folder / "src.db", THEN)
    plan = flow.plan(expect=6)
    stopped = {step["id"]: step for step in plan["steps"] if step["action"] == "stop"}
    assert set(stopped) == {"m", "r", "h"}  # append only inserts
    for id, step in stopped.items():
        assert step["reason"] == (
            f"{TABLES[id]} is published without a replica identity ({TABLES[id]}): the server refuses its updates and "
            "deletions"
        )
        assert step["hint"] == f"ALTER TABLE {TABLES[id]} REPLICA IDENTITY FULL, or add a primary key"
    with (
        pytest.raises(TableError, match='table "m" because it does not have a replica identity') as met,
        client({"url": postgres_database}).connect() as connection,
    ):
        connection.execute("DELETE FROM m")
    assert met.value.hint == "ALTER TABLE … REPLICA IDENTITY FULL for this table, or add a primary key"
    for step in stopped.values():
        execute(postgres_database, step["hint"].partition(",")[0])
    flow.apply()
    assert postgres_rows(postgres_database, "SELECT id, v FROM m") == [(1, "x")]
