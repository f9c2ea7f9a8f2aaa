"""A flow whose tables read one stream into several targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psycopg

from tests.e2e.flows import Flow
from tests.e2e.streams.targets import DeltaPlace, PostgresPlace, SqlitePlace

PASSWORD = {"PG_PASSWORD": "etl-secret"}
#: Each kind of target with its connection and the tables of its pattern.
PATTERNS = {
    "dw": '  "dw_${table}": {from: "cdc:public.*", to: "dw:dw.${table}", mode: merge}',
    "lake": '  "lake_${table}": {from: "cdc:public.*", to: "lake:${table}", mode: merge}',
    "lite": '  "lite_${table}": {from: "cdc:public.*", to: "lite:${table}", mode: merge}',
}


def write_flow(
    folder: Path,
    url: str,
    targets: Sequence[str],
    tables: str = "",
    stream: str = "batch: {rows: 400}",
    spark: str = "sail",
) -> Flow:
    flow = Flow(folder, PASSWORD)
    own = url.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    patterns = "\n".join(PATTERNS[target] for target in targets)
    flow.write(f"""
version: 1
flow: shop
state: state
connections:
  pg: {{type: postgres, url: "{own}"}}
  dw: {{type: postgres, url: "{own}"}}
  lake: {{type: delta, path: lake}}
  lite: {{type: sqlite, path: lite.db}}
spark: {{url: "{spark}"}}
streams:
  cdc: {{from: pg, {stream}}}
tables:
{patterns}
{tables}
""")
    return flow


def place(flow: Flow, url: str, target: str) -> PostgresPlace | DeltaPlace | SqlitePlace:
    match target:
        case "dw":
            return PostgresPlace(url)
        case "lake":
            return DeltaPlace(flow.folder / "lake")
        case _:
            return SqlitePlace(flow.folder / "lite.db")


def flush(url: str) -> None:
    """Everything that has committed is on disk: what a plan calls the end of the log."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("SELECT pg_logical_emit_message(true, 'flowctl', '')")
