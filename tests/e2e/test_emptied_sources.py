"""A full refresh of a table with a cursor whose source has no rows to read: the target is emptied, and what comes later
is read from the beginning, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.targets import ENV, Databases, Kind, kinds_with, place

pytestmark = [pytest.mark.server, pytest.mark.full]

KILLED = -9


@pytest.mark.parametrize(("kind", "mode"), [(kind, mode) for mode in ("append", "merge") for kind in kinds_with(mode)])
def test_a_full_refresh_of_an_emptied_source_empties_the_target(
    kind: Kind, mode: str, tmp_path: Path, databases: Databases
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)

    def put(*ids: int) -> None:
        rows = ", ".join(f"({id}, '2026-01-{id:02} 00:00:00')" for id in ids)
        sqlite_script(tmp_path / "src.db", f"INSERT INTO orders VALUES {rows}")

    def write(cursor: str = "column: at", guard: str = "") -> None:
        key = ", key: [id]" if mode == "merge" else ""
        flow.write(
            "version: 1\nflow: f\nstate: state\nspark: {url: sail}\nconnections:\n"
            f"  src: {{type: sqlite, path: src.db}}\n  out: {target.connection}\n"
            f"tables:\n  orders: {{from: src:orders, to: 'out:{target.object}', "
            f"mode: {mode}{key}, cursor: {{{cursor}}}{guard}}}\n"
        )

    def ids() -> list[int]:
        return sorted(id for (id,) in target.rows(("id",)))

    sqlite_script(tmp_path / "src.db", "CREATE TABLE orders (id BIGINT, at TIMESTAMP)")
    put(5, 6)
    write()
    flow.apply()
    sqlite_script(tmp_path / "src.db", "DELETE FROM orders")
    write(guard=", guard: {allow_empty: false}")
    assert "guard allow_empty" in flow.run("plan", "flow.yaml", "--full-refresh", "orders", expect=6).words
    write()
    flow.run("plan", "flow.yaml", "--full-refresh", "orders", "--out", "plan.json", expect=0)
    put(3, 9)  # between plan and run
    flow.run("apply", "flow.yaml", "--plan", "plan.json", expect=0)
    assert ids() == []
    flow.apply()
    assert ids() == [3, 9]
    assert flow.actions()["orders"] == "none"

    write("column: at, start: '2027-01-01'")
    crash = {"FLOWCTL_CRASH_AT": "before_commit", "FLOWCTL_CRASH_WITH": "SIGKILL"}
    assert flow.apply("--full-refresh", "orders", env=crash, expect=None).code == KILLED
    flow.apply()
    assert ids() == []
    write()
    put(4)
    flow.apply()
    assert ids() == [3, 4, 9]
    flow.apply()
    assert ids() == [3, 4, 9]
