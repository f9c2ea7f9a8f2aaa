"""Targets that `state adopt` takes over after `to`, the table's id or its definition changed, and what a rollback makes
of such changes: the run then loses and doubles nothing, or the plan stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows, sqlite_script

pytestmark = [pytest.mark.server, pytest.mark.full]

FLOW = """
version: 1
flow: shop
state: state
spark: {{url: sail}}
connections:
  src: {{type: sqlite, path: src.db}}
  dst: {{type: sqlite, path: dst.db}}
tables:
  {id}: {{from: src:ev, to: "dst:{to}", mode: {mode}, cursor: {{column: at}}}}
"""
MERGE, HISTORY = "merge, key: [id]", "scd2, key: [id], scd2: {valid_from: now}"


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    """Over a source with row 1."""
    flow = Flow(tmp_path)
    sqlite_script(tmp_path / "src.db", "CREATE TABLE ev (id INTEGER, at INTEGER, region TEXT)")
    insert(flow, 1)
    return flow


def insert(flow: Flow, *ids: int, region: str = "a") -> None:
    for id in ids:
        sqlite_script(flow.folder / "src.db", f"INSERT INTO ev VALUES ({id}, {id}, '{region}')")


def define(flow: Flow, mode: str, to: str = "ev", id: str = "ev") -> None:
    flow.write(FLOW.format(mode=mode, to=to, id=id))


def state(flow: Flow, verb: str, *more: str, id: str = "ev", expect: int = 0) -> str:
    return flow.run(
        "state", verb, "flow.yaml", *([] if verb == "rollback" else [id]), *more, "--yes", expect=expect
    ).words


def ids(flow: Flow, table: str = "ev") -> list[int]:
    return [id for (id,) in sqlite_rows(flow.folder / "dst.db", f"SELECT id FROM {table}")]


def hint(flow: Flow, id: str = "ev") -> str:
    return next(str(step["hint"]) for step in flow.plan(expect=6)["steps"] if step["id"] == id)


def serial(flow: Flow) -> int:
    return int(flow.run("state", "history", "flow.yaml", "--format", "json", expect=0).json()["versions"][0]["serial"])


@pytest.mark.parametrize("mode", [MERGE, "append", HISTORY])
def test_a_target_from_before_another_to_does_not_get_the_others_position(flow: Flow, mode: str) -> None:
    define(flow, mode)
    flow.apply()
    define(flow, mode, "ev2")
    state(flow, "set", "--accept-definition")
    insert(flow, 2, 3)
    flow.apply()
    assert ids(flow, "ev2") == [1, 2, 3]
    define(flow, mode)
    assert "state adopt" in hint(flow)
    if mode == "append":
        assert "--position" in state(flow, "adopt", expect=64)
        state(flow, "adopt", "--position", "1")
    else:
        assert "position" in state(flow, "adopt")
    insert(flow, 4)
    flow.apply()
    assert ids(flow) == [1, 2, 3, 4]
