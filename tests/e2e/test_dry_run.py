"""`plan --effects` from the command line: what it says, its exit codes, what it leaves behind, also when it is killed,
and saved plans with what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows, sqlite_script

pytestmark = pytest.mark.server

ORDERS = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, updated_at TIMESTAMP NOT NULL);
INSERT INTO orders VALUES (1, 'first', '2026-01-01 00:00:00'), (2, NULL, '2026-01-02 00:00:00');
"""
SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: source.db}
  dst: {type: sqlite, path: target.db}
tables:
  orders: {from: src:orders, to: dst:orders, mode: merge, key: [id], cursor: {column: updated_at}}
"""
GUARDED = SPEC.replace(
    "cursor: {column: updated_at}", "deletes: {detect: missing_keys}, guard: {max_deleted: 10%}"
)  # fmt: skip


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    sqlite_script(tmp_path / "source.db", ORDERS)
    made = Flow(tmp_path)
    made.write(SPEC)
    return made


def files(flow: Flow) -> list[str]:
    return sorted(str(path.relative_to(flow.folder)) for path in flow.folder.rglob("*"))


def change(flow: Flow) -> None:
    sqlite_script(
        flow.folder / "source.db",
        "UPDATE orders SET note = 'other', updated_at = '2026-01-03 00:00:00' WHERE id = 1;"
        "INSERT INTO orders VALUES (3, 'third', '2026-01-03 00:00:01')",
    )


def test_it_says_what_would_change_and_leaves_nothing_behind(flow: Flow) -> None:
    before = files(flow)
    first = flow.run("plan", "flow.yaml", "--effects", "--detailed-exitcode", expect=2)
    assert "effects    2 inserted" in first.out
    assert "Effects: 2 inserted, as of 20" in first.out
    assert "orders: compared, 2 inserted" in first.err
    assert files(flow) == before
    flow.apply()
    change(flow)
    before = files(flow)
    second = flow.run("plan", "flow.yaml", "--effects", "--samples", "5", "--values", expect=0)
    assert "effects    1 inserted, 1 updated (note 1, updated_at 1), 1 unchanged" in second.out
    assert "samples    + id 3  note third, updated_at 2026-01-03 00:00:01" in second.out
    assert "           ~ id 1  note first → other, updated_at 2026-01-01 00:00:00 →" in second.out
    assert files(flow) == before


@pytest.mark.full
def test_a_saved_plan_holds_what_was_found_and_apply_ignores_it(flow: Flow) -> None:
    flow.run("plan", "flow.yaml", "--effects", "--samples", "1", "--out", "plan.json", expect=0)
    saved = json.loads((flow.folder / "plan.json").read_text())
    assert saved["steps"][0]["effects"]["samples"] == [{"action": "insert", "key": {"id": "1"}}]
    change(flow)
    assert "effects    2 inserted" in flow.apply("--plan", "plan.json").out
    assert len(sqlite_rows(flow.folder / "target.db", "SELECT * FROM orders")) == 3
    assert '"effects"' not in "".join(path.read_text() for path in (flow.folder / "state").rglob("*.json"))


def test_what_would_stop_the_run_has_the_exit_code_of_the_run(flow: Flow) -> None:
    flow.write(GUARDED)
    flow.apply()
    sqlite_script(flow.folder / "source.db", "DELETE FROM orders WHERE id = 1")
    done = flow.run("plan", "flow.yaml", "--effects", expect=6)
    assert "effects would stop: guard.max_deleted 10%: 1 of 2 rows would be deleted" in done.words
    assert "Would not be committed: orders" in done.out
    assert flow.plan()["steps"][0]["action"] == "change"
    found = flow.plan("--effects", expect=6)["steps"][0]["effects"]
    assert (found["exit_code"], found["stopped"]) == (6, "guard.max_deleted 10%: 1 of 2 rows would be deleted")


@pytest.mark.parametrize("point", ["during_stage", pytest.param("after_stage", marks=pytest.mark.full)])
def test_a_killed_one_leaves_folders_of_the_buffer_that_the_next_run_removes(flow: Flow, point: str) -> None:
    flow.run("plan", "flow.yaml", "--effects", env={"FLOWCTL_CRASH_AT": point}, expect=-9)
    left = [name for name in files(flow) if name not in ("flow.yaml", "source.db")]
    assert all("state/shop/buffer".startswith(name) or name.startswith("state/shop/buffer/") for name in left), left
    flow.apply()
    assert [name for name in files(flow) if name.startswith("state/shop/buffer/")] == []
    assert len(sqlite_rows(flow.folder / "target.db", "SELECT * FROM orders")) == 2


@pytest.mark.full
def test_a_begun_number_is_counted_and_what_follows_it_is_not(flow: Flow) -> None:
    flow.apply()
    change(flow)
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=-9)
    sqlite_script(flow.folder / "source.db", "INSERT INTO orders VALUES (4, 'fourth', '2026-01-04 00:00:00')")
    begun, since = flow.plan("--effects")["steps"]
    found = begun["effects"]
    assert (begun["action"], found["inserted"] + found["updated"] >= 2) == ("recover", True)
    assert since["effects"] == {"unknown": "continues after sequence number 2, which this run finishes first"}


@pytest.mark.parametrize("options", [("--samples", "3"), ("--effects", "--values"), ("--effects", "--samples", "0")])
def test_options_that_need_another(flow: Flow, options: tuple[str, ...]) -> None:
    flow.run("plan", "flow.yaml", *options, expect=64)
