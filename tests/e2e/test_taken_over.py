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


def test_a_backup_from_before_another_mode_stops(flow: Flow) -> None:
    define(flow, "append")
    flow.apply()
    backup = (flow.folder / "dst.db").read_bytes()
    define(flow, MERGE)
    flow.apply("--full-refresh", "ev")
    (flow.folder / "dst.db").write_bytes(backup)
    assert "state adopt" in hint(flow)
    state(flow, "adopt")
    assert "--full-refresh ev" in hint(flow)
    flow.apply("--full-refresh", "ev")
    assert ids(flow) == [1]


def test_a_rollback_does_not_make_a_merge_of_a_history(flow: Flow) -> None:
    define(flow, MERGE)
    flow.apply()
    before = serial(flow)
    define(flow, HISTORY)
    flow.apply("--full-refresh", "ev")
    define(flow, MERGE)
    state(flow, "rollback", "--to", str(before))
    assert "it cannot continue from here: the target holds a history" in hint(flow)


def test_append_under_a_former_id_continues_where_it_is_told(flow: Flow) -> None:
    define(flow, "append")
    flow.apply()
    define(flow, "append", id="events")
    assert "--position" in state(flow, "adopt", id="events", expect=64)
    state(flow, "adopt", "--position", "1", id="events")
    insert(flow, 2)
    flow.apply()
    define(flow, "append")
    insert(flow, 3)
    assert "--position" in hint(flow)
    assert "events has appended to dst:ev since, up to 2" in state(flow, "adopt", expect=64)
    state(flow, "adopt", "--position", "2")
    flow.apply()
    assert ids(flow) == [1, 2, 3]
    define(flow, "append", id="events")
    assert "state adopt" in hint(flow, "events")
