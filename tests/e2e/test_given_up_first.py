"""The first sequence number of a new table is given up, wherever its run was killed: the next run loads the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.crashpoints import POINTS, Point
from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.orders import MODES, SPEC
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, in_turn, place

KILLED = -9
EXPECTATION = ", expect: [{column: note, not_null: true, on_fail: quarantine}]"
SOURCE = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, updated_at TIMESTAMP NOT NULL);
INSERT INTO orders VALUES (1, 'one', '2026-01-01 00:00:00'), (2, NULL, '2026-01-02 00:00:00');
"""
#: How a user gives the number up: by a command, or by options of the next `apply`.
COMMANDS = {
    "set": ("state", "set", "flow.yaml", "orders", "--position", "beginning", "--append-again", "--yes"),
    "reset": ("state", "reset", "flow.yaml", "orders", "--yes"),
}
OPTIONS = {"refresh": ("--full-refresh", "orders")}
#: The number is begun, and not committed.
BEGUN = POINTS[POINTS.index("after_intent") : POINTS.index("after_commit")]


def load_after_giving_up(flow: Flow, target: TargetPlace, mode: str, way: str, point: Point, spark: str) -> None:
    flow.folder.mkdir()
    sqlite_script(flow.folder / "source.db", SOURCE)
    names = {
        "state": "state: state",
        "connection": target.connection,
        "object": target.object,
        "mode": MODES[mode] + EXPECTATION,
        "spark": spark,
    }
    flow.write(SPEC.format(**names))
    flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=KILLED)
    if way in COMMANDS:
        flow.run(*COMMANDS[way], expect=0)
    flow.apply(*OPTIONS.get(way, ()))
    assert target.rows(["id", "note"]) == [(1, "one")]
    rejected = target.named(f"{target.name}__quarantine")
    assert rejected.rows(["id", "_seq"]) == [("2", 2)]
    sqlite_script(flow.folder / "source.db", "INSERT INTO orders VALUES (3, 'three', '2026-01-03 00:00:00')")
    flow.apply()
    assert target.rows(["id", "note"]) == [(1, "one"), (3, "three")]


@pytest.mark.full
def test_a_table_whose_columns_are_not_known_yet_is_loaded(tmp_path: Path) -> None:
    """Those of SQL are known once the engine has started; until then the void has none to create a table with."""
    flow, target = Flow(tmp_path), place("delta", tmp_path).named("totals")
    sqlite_script(tmp_path / "source.db", SOURCE)
    names = {
        "state": "state: state",
        "connection": target.connection,
        "object": "orders",
        "mode": MODES["truncate"] + EXPECTATION,
        "spark": "local[2]",
    }
    sql = "SELECT count(*) AS n FROM {{ ref('orders') }}"
    totals = f'  totals: {{from: {{sql: "{sql}"}}, to: dst:totals, mode: truncate}}\n'
    flow.write(SPEC.format(**names) + totals)
    flow.apply(env={"FLOWCTL_CRASH_AT": "after_intent"}, expect=KILLED)
    flow.run("state", "set", "flow.yaml", "totals", "--position", "beginning", "--yes", expect=0)
    flow.apply()
    assert target.rows(["n"]) == [(1,)]
    sqlite_script(tmp_path / "source.db", "INSERT INTO orders VALUES (3, 'three', '2026-01-03 00:00:00')")
    flow.apply()
    assert target.rows(["n"]) == [(2,)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "mode", "way", "spark"),
    [
        ("delta", "merge", "set", "local[2]"),
        *((kind, mode, "set", "sail") for kind, mode in in_turn(MODES)),
        *((kind, "append", way, "sail") for kind in ("delta", "files", "postgres") for way in ("reset", "refresh")),
    ],
)
def test_a_table_whose_first_number_is_given_up_is_loaded(
    kind: Kind, mode: str, way: str, spark: str, tmp_path: Path, databases: Databases
) -> None:
    for point in BEGUN:
        flow = Flow(tmp_path / point, ENV)
        target = place(kind, flow.folder, databases)
        load_after_giving_up(flow, target.named(point), mode, way, point, spark)
