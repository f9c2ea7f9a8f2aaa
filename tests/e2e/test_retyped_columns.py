"""A column whose type the target cannot change: each next step that the plan names is taken, until the rows agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows, sqlite_script

pytestmark = pytest.mark.server

FLOW = """\
version: 1
flow: versions
state: ./state
spark: {url: sail}
connections:
  source: {type: sqlite, path: ./source.db}
  out: {type: sqlite, path: ./out.db}
tables:
  t: {from: source:t, to: "out:t", mode: merge, key: [id], cursor: {column: ver}}
"""
BEFORE = "CREATE TABLE t (id INTEGER, ver INTEGER, v INTEGER); INSERT INTO t VALUES (1, 99, 1), (2, 100, 2)"
AFTER = "DROP TABLE t; CREATE TABLE t (id INTEGER, ver {ver}, v {v});"
ROWS = "INSERT INTO t VALUES (1, '99', '1'), (2, '100', '2'), (3, '103', '3')"


def hint(flow: Flow, *args: str) -> str:
    (step,) = flow.plan(*args, expect=6)["steps"]
    return str(step["hint"])


@pytest.mark.full
@pytest.mark.parametrize("column", ["ver", pytest.param("v", marks=pytest.mark.full)])
def test_a_column_of_a_target_that_cannot_change_its_type(tmp_path: Path, column: str) -> None:
    flow = Flow(tmp_path)
    flow.write(FLOW)
    sqlite_script(tmp_path / "source.db", BEFORE)
    flow.apply()
    kinds = {"ver": "INTEGER", "v": "INTEGER", column: "TEXT"}
    sqlite_script(tmp_path / "source.db", AFTER.format(**kinds) + ROWS)
    drop = "drop the table in the target, then run with --full-refresh t"
    if column == "v":
        assert hint(flow).endswith(f", or {drop}")
    else:
        assert hint(flow).startswith("Read all again with --full-refresh t; ")
    assert hint(flow, "--full-refresh", "t") == f"D{drop[1:]}"
    sqlite_script(tmp_path / "out.db", "DROP TABLE t")
    assert hint(flow) == "Restore it, or --full-refresh t to create it again"
    flow.apply("--full-refresh", "t")
    query = "SELECT * FROM t"
    assert sqlite_rows(tmp_path / "out.db", query) == sqlite_rows(tmp_path / "source.db", query)
    assert flow.actions() == {"t": "none"}
