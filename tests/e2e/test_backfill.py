"""`apply --select orders --from … --to …`: a range is read again, exactly once, wherever the run is killed."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from flowctl.crashpoints import POINTS
from tests.e2e.flows import Flow, Row, delta_rows, sqlite_rows, sqlite_script

pytestmark = pytest.mark.server

KILLED = -9
SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: source.db}
  lake: {type: delta, path: lake}
defaults: {to: lake}
tables:
  orders:
    from: src:orders
    mode: merge
    key: [id]
    cursor: {column: at, lag: 400d}
    deletes: {detect: missing_keys, action: hard}
    guard: {max_deleted: 60%}
  history: {from: src:orders, mode: scd2, key: [id], cursor: {column: at}, scd2: {valid_from: at}}
  log: {from: src:orders, mode: append, cursor: {column: id}}
  copy: {from: src:orders, mode: truncate}
"""
OCTOBER = ("--from", "2025-10-01", "--to", "2025-11-01")
#: Rows that a run after the first sees only by a range: their `at` stays.
CHANGES = """
    UPDATE orders SET note = 'fixed' WHERE id IN (1, 2, 3, 4);
    INSERT INTO orders VALUES (9, 'late', '2025-10-15 00:00'), (10, 'new', '2025-12-01 00:00');
    DELETE FROM orders WHERE id = 5;
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    flow = Flow(tmp_path)
    sqlite_script(
        tmp_path / "source.db",
        """
        CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP NOT NULL);
        INSERT INTO orders VALUES (1, 'a', '2025-09-30 23:59:59.999999'), (2, 'a', '2025-10-01'),
            (3, 'a', '2025-10-31 23:59:59.999999'), (4, 'a', '2025-11-01'), (5, 'a', '2025-10-20'),
            (6, 'a', '2025-11-20');
        """,
    )
    flow.write(SPEC)
    flow.apply()
    sqlite_script(tmp_path / "source.db", CHANGES)
    return flow


#: October: 2 and 3 are read again, 9 is new; 5 is gone from the source, and stays; 10 is left to the next run.
AFTER = [(1, "a"), (2, "fixed"), (3, "fixed"), (4, "a"), (5, "a"), (6, "a"), (9, "late")]


def rows(flow: Flow, table: str) -> list[Row]:
    return delta_rows(flow.folder / "lake" / table, ["id", "note"])


def position(flow: Flow, table: str) -> object:
    return flow.run("state", "show", "flow.yaml", table, "--format", "json", expect=0).json()["table"]["position"]


def test_a_range_is_read_again_and_the_position_stays(flow: Flow) -> None:
    before = position(flow, "orders")
    plan = flow.plan("--select", "orders", *OCTOBER)
    (step,) = plan["steps"]
    assert step["rows"] == {"value": 3, "method": "count"}
    flow.apply("--select", "orders", *OCTOBER)
    assert rows(flow, "orders") == AFTER
    assert position(flow, "orders") == before
    flow.apply("--select", "orders")  # its lag reads all again
    assert (10, "new") in rows(flow, "orders")


def test_a_saved_plan_and_a_history(flow: Flow) -> None:
    flow.run("plan", "flow.yaml", "--select", "history", *OCTOBER, "--out", "plan.json", expect=0)
    flow.apply("--plan", "plan.json")
    current = delta_rows(flow.folder / "lake" / "history", ["id", "note", "is_current"])
    assert sorted(row[:2] for row in current if row[2]) == AFTER
    flow.apply("--select", "history", *OCTOBER)
    assert delta_rows(flow.folder / "lake" / "history", ["id", "note", "is_current"]) == current


#: At the other steps, long.
SHORT = ("orders", "before_commit")


@pytest.mark.parametrize(
    ("table", "point"),
    [
        pytest.param(table, point, marks=[] if (table, point) == SHORT else [pytest.mark.full])
        for table in ("orders", "history")
        for point in POINTS
        if point != "after_quarantine"
    ],
)
def test_a_killed_backfill_is_finished_by_the_next_run(flow: Flow, table: str, point: str) -> None:
    """One without a range: it finishes the range, and then reads what is new."""
    before = position(flow, table)
    ended = flow.apply("--select", table, *OCTOBER, env={"FLOWCTL_CRASH_AT": point}, expect=None)
    assert ended.code == KILLED
    assert position(flow, table) == before
    if point == "before_intent":
        flow.apply("--select", table, *OCTOBER)
    flow.apply("--select", table)
    flow.apply("--select", table)  # keys are compared at the latest now
    found = delta_rows(flow.folder / "lake" / table, ["id", "note", *(["is_current"] if table == "history" else [])])
    current = sorted(row[:2] for row in found if len(row) == 2 or row[2])
    expected = dict([*AFTER, (10, "new")])
    if table == "orders":  # the lag of the runs that follow, and their look for deleted keys
        expected |= {1: "fixed", 4: "fixed"}
        del expected[5]
    assert current == sorted(expected.items())


def test_what_has_no_range(flow: Flow) -> None:
    for arguments, code, said in (
        (["--select", "log", "--from", "1"], 6, "append would write the rows of a range that is read again twice"),
        (["--select", "copy", "--from", "1"], 6, "truncate replaces all rows"),
        (["--select", "orders", "--from", "x"], 6, '--from x is no range of "at"'),
        (["--from", "2025-10-01"], 64, "--from and --to require --select"),
        (["--select", "orders", "--full-refresh", "orders", "--to", "1"], 64, "--full-refresh reads all rows"),
    ):
        assert said in flow.run("plan", "flow.yaml", *arguments, expect=code).words
    followed = flow.run("apply", "flow.yaml", "--follow", "--select", "orders", *OCTOBER, expect=64)
    assert "--follow plans by itself" in followed.words


@pytest.mark.full
@pytest.mark.parametrize("read", ["{}", "{splits: 3, split_by: id}"])
def test_a_range_of_postgres(tmp_path: Path, postgres_database: str, read: str) -> None:
    """Days are those of UTC, whatever the server's time zone is."""
    flow = Flow(tmp_path, {"URL": postgres_database})
    flow.write(POSTGRES.replace("{}", read))
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(DAYS)
        flow.apply()
        connection.execute("UPDATE days SET note = 'fixed'")
    flow.apply("--select", "days", "--from", "2025-10-10", "--to", "2025-10-20")
    found = sqlite_rows(tmp_path / "copy.db", "SELECT id FROM days WHERE note = 'fixed'")
    assert sorted(number for (number,) in found) == list(range(10, 20))


POSTGRES = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  pg: {type: postgres, url: "${secret:env:URL}"}
  dst: {type: sqlite, path: copy.db}
tables:
  days: {from: pg:public.days, to: dst, mode: merge, key: [id], cursor: {column: at}, read: {}}
"""
DAYS = """
    CREATE TABLE days (id int PRIMARY KEY, note text, at timestamptz NOT NULL);
    INSERT INTO days SELECT n, 'a', timestamptz '2025-09-30T00:00:00Z' + n * interval '1 day'
    FROM generate_series(0, 60) AS n
"""
