"""A history that is gone and begins anew: of the observations of before nothing comes back, and the plan says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.targets import ENV, Databases, Kind, SqlPlace, kinds_with, place

pytestmark = pytest.mark.server


@pytest.mark.full
@pytest.mark.parametrize("kind", kinds_with("scd2"))
def test_a_history_that_is_gone_begins_anew(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    history = "mode: scd2, key: [id], cursor: {column: at}, scd2: {valid_from: now}"
    flow.write(
        "version: 1\nflow: f\nstate: state\nspark: {url: sail}\nconnections:\n"
        f"  src: {{type: sqlite, path: src.db}}\n  out: {target.connection}\n"
        f"tables:\n  people: {{from: src:people, to: out:{target.object}, {history}}}\n"
    )
    sqlite_script(tmp_path / "src.db", "CREATE TABLE people (id BIGINT, name TEXT, at BIGINT)")
    sqlite_script(tmp_path / "src.db", "INSERT INTO people VALUES (1, 'a', 1), (2, 'x', 1)")
    flow.apply()
    sqlite_script(tmp_path / "src.db", "UPDATE people SET name = 'b', at = 2 WHERE id = 1")
    flow.apply()
    observed = target.named(f"{target.name}__observed")
    assert sorted(id for (id,) in observed.rows(("id",))) == [1, 1, 2]
    if isinstance(target, SqlPlace):
        target.run("DROP TABLE {table}")
    else:
        shutil.rmtree(target.path)
    assert "is gone" in flow.run("plan", "flow.yaml", expect=6).words
    plan = flow.run("plan", "flow.yaml", "--full-refresh", "people", expect=0).words
    assert f"destructive: replaces the observations in out:{target.object}__observed: a new history begins" in plan
    assert "existing history is kept" not in plan
    flow.run("apply", "flow.yaml", "--full-refresh", "people", expect=0)
    assert sorted(target.rows(("id", "name"))) == [(1, "b"), (2, "x")]
    assert sorted(id for (id,) in observed.rows(("id",))) == [1, 2]
    sqlite_script(tmp_path / "src.db", "UPDATE people SET name = 'c', at = 3 WHERE id = 1")
    flow.apply()
    assert sorted(target.rows(("id", "name"))) == [(1, "b"), (1, "c"), (2, "x")]
