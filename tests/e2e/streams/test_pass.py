"""`flowctl apply` over a change stream, pass after pass: every target equals its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.flow import flush, place, write_flow
from tests.e2e.streams.sources import MysqlDatabase, database_of
from tests.e2e.streams.targets import (
    must_be_history,
    must_be_marked,
    must_equal,
    must_have_every_change,
    orphans,
)
from tests.e2e.streams.workload import Workload


@pytest.fixture(
    params=["sail", pytest.param("local[2]", marks=pytest.mark.full), pytest.param("connect", marks=pytest.mark.full)]
)
def engine_url(request: pytest.FixtureRequest) -> str:
    """`spark.url`."""
    return str(request.getfixturevalue("connect_server")) if request.param == "connect" else str(request.param)


ALL = ("dw", "lake", "lite", "duck", "ice")


@pytest.mark.server
def test_targets_equal_the_source_after_each_pass(tmp_path: Path, each_source_url: str, engine_url: str) -> None:
    workload = Workload(each_source_url, seed=1, big=20_000, rows=700)
    workload.create()
    is_mysql = isinstance(database_of(each_source_url), MysqlDatabase)
    some = ("dw", "lite", "ice") if is_mysql else ("dw", "lake", "duck")
    targets = some if engine_url == "sail" else ALL
    flow = write_flow(tmp_path, each_source_url, targets, spark=engine_url)
    for _ in range(3):
        flush(each_source_url)
        flow.apply()
        for target in targets:
            must_equal(each_source_url, place(flow, each_source_url, target))
        assert not orphans(each_source_url)
        workload.run(60)


@pytest.mark.server
@pytest.mark.parametrize(
    "target", ["lake", pytest.param("duck", marks=pytest.mark.full), pytest.param("ice", marks=pytest.mark.full)]
)
def test_changes_histories_and_soft_deletes(target: str, tmp_path: Path, source_url: str, engine_url: str) -> None:
    workload = Workload(source_url, seed=3, big=20_000, rows=300)
    workload.create()
    flow = write_flow(
        tmp_path,
        source_url,
        [],
        f"""
  documents_log: {{from: "cdc:public.documents", to: {target}:documents_log, mode: append}}
  orders_log: {{from: "cdc:public.orders", to: {target}:orders_log, mode: append}}
  customers_history: {{from: "cdc:public.customers", to: {target}:customers_history, mode: scd2}}
  documents_history: {{from: "cdc:public.documents", to: {target}:documents_history, mode: scd2}}
  documents_soft: {{from: "cdc:public.documents", to: {target}:documents_soft, mode: merge, deletes: {{action: soft}}}}
  tags_soft: {{from: "cdc:public.tags", to: {target}:tags_soft, mode: merge, deletes: {{action: soft}}}}
  orders_files: {{from: "cdc:public.orders", to: "files:orders_files", mode: append}}
""",
        spark=engine_url,
    )
    oracle = database_of(source_url).oracle()
    there = place(flow, source_url, target)
    for _ in range(3):
        flush(source_url)
        flow.apply()
        must_have_every_change(oracle, there, {"documents": "documents_log", "orders": "orders_log"})
        must_have_every_change(oracle, place(flow, source_url, "files"), {"orders": "orders_files"})
        must_be_history(source_url, there, "customers", "customers_history", ["id"])
        must_be_history(source_url, there, "documents", "documents_history", ["id"])
        must_be_marked(source_url, there, "documents", "documents_soft")
        must_be_marked(source_url, there, "tags", "tags_soft")
        workload.run(60)
    oracle.end()


ALTERS = ("add", "add", "default", "drop", "rename")
#: Sail widens no column of a Delta table.
WIDENS = {"dw": (*ALTERS, "type"), "lake": ALTERS}


@pytest.mark.server
@pytest.mark.full
@pytest.mark.parametrize("target", ["dw", "lake"])
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_columns_change_at_their_place(seed: int, target: str, tmp_path: Path, source_url: str) -> None:
    """Columns come, go, and change their types and names, between transactions and within."""
    workload = Workload(source_url, seed=seed, big=2_000, rows=100, alters=WIDENS[target])
    workload.create()
    to = {"dw": database_of(source_url).dw()[1], "lake": "lake:${table}"}[target]
    tables = f"""
  "{target}_${{table}}": {{from: "cdc:public.*", to: "{to}", mode: merge,
    on_schema_change: {{unsent: resnapshot, dropped_column: "null"}}}}
"""
    flow = write_flow(tmp_path, source_url, [], tables)
    for _ in range(4):
        flush(source_url)
        flow.apply()
        must_equal(source_url, place(flow, source_url, target))
        workload.run(120)
