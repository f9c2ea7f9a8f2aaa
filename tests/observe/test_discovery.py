"""Which objects a pattern has: names are compared as the source compares them, in `from` and in `exclude`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import pytest

from flowctl.plan.planning import make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.load import load_spec

SPEC = """
version: 1
flow: shop
state: state
connections:
  db: {{type: {type}, path: {path}}}
  lake: {{type: delta, path: lake}}
defaults: {{to: lake}}
tables:
  "${{table}}": {{from: "db:T*", exclude: [TMP_*, t_salaries, "main.T_SECRET"], include_views: true, mode: truncate}}
"""
TABLES = "CREATE TABLE tmp_x (i INTEGER); CREATE TABLE T_Salaries (i INTEGER); CREATE TABLE t_kept (i INTEGER);"
VIEWS = "CREATE VIEW t_view AS SELECT i FROM t_kept; CREATE VIEW tmp_view AS SELECT i FROM t_kept"


@pytest.mark.parametrize("type", ["sqlite", "duckdb"])
def test_exclude_ignores_case_where_from_does(tmp_path: Path, type: str) -> None:
    path = tmp_path / "shop.db"
    if type == "sqlite":
        with sqlite3.connect(path) as made:
            made.executescript(TABLES + VIEWS)
        made.close()
    else:
        duckdb.connect(str(path)).execute(TABLES + VIEWS).close()
    (tmp_path / "flow.yaml").write_text(SPEC.format(type=type, path=path.name), encoding="utf-8")
    steps = make_plan(load_spec([tmp_path / "flow.yaml"], {}), PlanOptions()).plan.steps
    assert [step.table.id for step in steps] == ["t_kept", "t_view"]
