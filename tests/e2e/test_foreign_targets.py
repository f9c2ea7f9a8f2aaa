"""A table that another flow has made is left alone, whatever an interrupted first run of ours has left in state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.orders import MODES
from tests.e2e.targets import ENV, KINDS, SQL_KINDS, Databases, Kind, TargetPlace, place, sql_place

KILLED, STOPPED = -9, 6
SPEC = """
version: 1
flow: {flow}
state: state
spark: {{url: sail}}
connections:
  src: {{type: sqlite, path: {flow}.db}}
  dst: {connection}
tables:
  orders: {{from: src:orders, to: "dst:{object}", {mode}}}
"""
COLUMNS = ["id", "note"]
ADOPTED = dict.fromkeys(MODES, "2026-01-01 00:00:00") | {"truncate": "full"}


def write(flow: Flow, name: str, target: TargetPlace, mode: str) -> None:
    """The flow ``name``, whose source holds one row that names it."""
    flow.write(SPEC.format(flow=name, connection=target.connection, object=target.object, mode=MODES[mode]))
    if not (flow.folder / f"{name}.db").exists():
        sqlite_script(
            flow.folder / f"{name}.db",
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, updated_at TIMESTAMP NOT NULL);"
            f"INSERT INTO orders VALUES (1, 'of {name}', '2026-01-01 00:00:00')",
        )


def must_stop(flow: Flow) -> None:
    stopped = flow.apply(expect=STOPPED)
    assert "exists and was not made by this flow" in stopped.words
    assert flow.actions() == {"orders": "stop"}


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_came_after_an_interrupted_first_run_is_not_taken_for_ours(
    kind: Kind, mode: str, tmp_path: Path, databases: Databases
) -> None:
    flow = Flow(tmp_path, ENV)
    target = place(kind, tmp_path, databases)
    write(flow, "ours", target, mode)
    flow.apply(env={"FLOWCTL_CRASH_AT": target.before_table}, expect=KILLED)
    write(flow, "other", target, mode)
    flow.apply()

    write(flow, "ours", target, mode)
    must_stop(flow)
    shutil.rmtree(flow.folder / "state/ours")
    must_stop(flow)  # also with another state
    assert target.rows(COLUMNS) == [(1, "of other")]

    flow.run("state", "adopt", "flow.yaml", "orders", "--position", ADOPTED[mode], "--yes", expect=0)
    write(flow, "other", target, mode)
    assert flow.actions() == {"orders": "change" if mode in ("truncate", "merge") else "none"}


def test_a_delta_table_that_an_interrupted_run_has_made_is_finished_by_us_and_foreign_to_others(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    target = place("delta", tmp_path)
    write(flow, "ours", target, "append")
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=KILLED)
    assert target.rows(COLUMNS) == []
    write(flow, "other", target, "append")
    must_stop(flow)
    write(flow, "ours", target, "append")
    flow.apply()
    assert target.rows(COLUMNS) == [(1, "of ours")]


@pytest.mark.full
def test_a_delta_table_that_another_flow_took_over_is_its_own(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    target = place("delta", tmp_path)
    write(flow, "ours", target, "append")
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=KILLED)
    write(flow, "other", target, "append")
    flow.apply("--full-refresh", "orders")
    write(flow, "ours", target, "append")
    must_stop(flow)
    assert target.rows(COLUMNS) == [(1, "of other")]


@pytest.mark.full
@pytest.mark.parametrize("kind", SQL_KINDS)
def test_accepting_a_changed_to_takes_over_no_table(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    flow, target = Flow(tmp_path, ENV), sql_place(kind, tmp_path, databases)
    theirs = target.named("theirs")
    theirs.run("CREATE TABLE {table} (id INTEGER, note VARCHAR(20), updated_at TIMESTAMP)")
    theirs.run("INSERT INTO {table} VALUES (1, 'theirs', '2020-01-01 00:00:00')")
    write(flow, "ours", target, "merge")
    flow.apply()
    write(flow, "ours", theirs, "merge")
    must_stop(flow)
    flow.run("state", "set", "flow.yaml", "orders", "--accept-definition", "--yes", expect=0)
    must_stop(flow)
    assert theirs.rows(COLUMNS) == [(1, "theirs")]
    flow.apply("--full-refresh", "orders")
    assert theirs.rows(COLUMNS) == [(1, "of ours")]


@pytest.mark.parametrize(
    "kind", ["postgres", *(pytest.param(kind, marks=pytest.mark.full) for kind in SQL_KINDS if kind != "postgres")]
)
def test_a_view_is_neither_written_nor_adopted(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    flow, target = Flow(tmp_path, ENV), sql_place(kind, tmp_path, databases)
    write(flow, "ours", target, "append")
    target.run("CREATE VIEW {table} AS SELECT 1 AS id, 'theirs' AS note, NULL AS updated_at")
    for command in (["plan"], ["plan", "--full-refresh", "orders"], ["state", "adopt", "--yes"]):
        words = [*command, "flow.yaml", *(["orders"] if "adopt" in command else [])]
        stopped = flow.run(*words, expect=STOPPED)
        assert "is a view" in stopped.words
        assert "state adopt" not in stopped.words
