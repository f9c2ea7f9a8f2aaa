"""Two names of one PostgreSQL table, which only the server can tell: the plan stops both."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.e2e.flows import Flow, sqlite_script

STOPPED = 6


def test_tables_of_one_place_stop_and_so_does_a_table_that_reads_itself(tmp_path: Path, postgres_database: str) -> None:
    sqlite_script(tmp_path / "source.db", "CREATE TABLE t (id INTEGER); CREATE TABLE u (id INTEGER)")
    url = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    other = url.replace("127.0.0.1", "localhost")
    assert other != url
    flow = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    flow.write(
        f"""
version: 1
flow: shop
state: state
spark: {{url: sail}}
connections:
  src: {{type: sqlite, path: source.db}}
  pg: {{type: postgres, url: "{url}"}}
  again: {{type: postgres, url: "{other}"}}
tables:
  bare: {{from: src:t, to: pg:t, mode: truncate}}
  named: {{from: src:u, to: pg:public.t, mode: truncate}}
  elsewhere: {{from: src:u, to: again:t, mode: truncate}}
  sidecar: {{from: src:u, to: again:public.t__quarantine, mode: truncate}}
  itself: {{from: pg:public.kept, to: again:kept, mode: truncate}}
  fine: {{from: src:t, to: pg:public.fine, mode: truncate}}
"""
    )
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id bigint)")
    plan = flow.plan(expect=STOPPED)
    assert {step["id"]: step["reason"] for step in plan["steps"] if step["action"] == "stop"} == {
        "bare": "bare writes the same table as elsewhere, named",
        "named": "named writes the same table as bare, elsewhere",
        "elsewhere": "elsewhere writes the same table as bare, named",
        "sidecar": "sidecar writes to where bare, elsewhere, named keeps its quarantined rows",
        "itself": "pg:public.kept and again:kept are the same table",
    }
    assert flow.actions("--select", "named") == {"named": "stop"}
