"""`flowctl restore` as a user runs it: a table and its state go back together, and the next run continues there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyarrow import table as arrow_table

from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import open_existing
from tests.e2e.flows import Flow, Row, delta_rows, sqlite_rows, sqlite_script, wait_until_stopped

pytestmark = pytest.mark.server

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: source.db}
  lake: {type: delta, path: lake}
  dst: {type: sqlite, path: target.db}
defaults: {to: lake, key: [id], cursor: {column: at}}
tables:
  orders: {from: src:orders, mode: merge}
  events: {from: src:orders, mode: append, key: null}
  versions: {from: src:orders, mode: scd2, scd2: {valid_from: at}}
  copy: {from: src:orders, to: dst, mode: merge}
"""
COLUMNS = {
    "orders": ["id", "note", "at"],
    "events": ["id", "note", "at"],
    "versions": ["id", "note", "valid_from", "valid_to", "is_current"],
}
CONTENT = [
    [(1, "a", 1), (2, "b", 1)],
    [(1, "changed", 2), (3, "c", 2)],
    [(1, "changed again", 3), (4, "d", 3)],
]


def add_rows(folder: Path, rows: list[tuple[int, str, int]]) -> None:
    values = ", ".join(f"({id}, '{note}', '2026-01-0{day} 00:00:00')" for id, note, day in rows)
    create = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)"
    sqlite_script(folder / "source.db", f"{create}; INSERT OR REPLACE INTO orders VALUES {values}")


def rows_of(flow: Flow, table: str) -> list[Row]:
    return delta_rows(flow.folder / "lake" / table, COLUMNS[table])


def with_three_commits(folder: Path, table: str, *last: str) -> tuple[Flow, list[list[Row]]]:
    """The flow, and the table's rows after each commit. ``last`` are options of the last run."""
    flow, contents = Flow(folder), []
    flow.write(SPEC)
    for number, rows in enumerate(CONTENT):
        add_rows(folder, rows)
        flow.apply("--select", table, *(last if number == 2 else ()))
        contents.append(rows_of(flow, table))
    return flow, contents


def restore(flow: Flow, table: str, to: str, expect: int = 0, **env: str) -> str:
    return flow.run("restore", "flow.yaml", table, "--to", to, "--yes", env=env, expect=expect).words


@pytest.mark.parametrize(
    "table", ["orders", *(pytest.param(one, marks=pytest.mark.full) for one in ("events", "versions"))]
)
def test_the_table_and_its_state_go_back_together(tmp_path: Path, table: str) -> None:
    flow, contents = with_three_commits(tmp_path, table)
    shown = flow.run("restore", "flow.yaml", table, "--to", "2", expect=1)  # there is nobody to ask
    assert "undoes sequence number 3" in shown.words and "position 2026-01-03 00:00 → 2026-01-02" in shown.words
    assert rows_of(flow, table) == contents[2]
    said = restore(flow, table, "#1")
    assert f"{table} has the content of sequence number 1 again, as number 4." in said
    assert "undoes 2 sequence numbers, 2 to 3" in said
    assert rows_of(flow, table) == contents[0]
    (step,) = flow.plan("--select", table)["steps"]
    assert step["action"] == "change" and step["seq"] == 5
    assert "already" in restore(flow, table, "1")
    flow.apply("--select", table)
    if table != "orders":  # it reads what the source has now: an order has lost the state in between
        contents[2] = [row for row in contents[2] if row[1] != "changed"] if table == "events" else rows_of(flow, table)
    assert rows_of(flow, table) == contents[2]
    if table == "versions":
        assert {row[:2] for row in rows_of(flow, table) if row[-1]} == {
            (1, "changed again"),
            (2, "b"),
            (3, "c"),
            (4, "d"),
        }
        assert (1, "a") in {row[:2] for row in rows_of(flow, table) if not row[-1]}
    assert flow.actions("--select", table) == {table: "none"}


@pytest.mark.parametrize(
    ("table", "point"),
    [
        ("orders", "before_record:orders"),
        *(
            pytest.param(table, f"{point}:{place}", marks=pytest.mark.full)
            for table, place in (("orders", "orders"), ("versions", "versions"), ("versions", "versions__observed"))
            for point in ("in_commit", "after_commit")
        ),
    ],
)
def test_killed_it_is_completed_by_the_same_command(tmp_path: Path, table: str, point: str) -> None:
    flow, contents = with_three_commits(tmp_path, table)
    restore(flow, table, "1", expect=-9, FLOWCTL_CRASH_AT=point)
    is_begun = point != f"in_commit:{table}"
    assert rows_of(flow, table) == contents[0 if is_begun else 2]
    assert flow.actions("--select", table) == {table: "stop" if is_begun else "none"}
    restore(flow, table, "1")
    assert rows_of(flow, table) == contents[0]
    observed = (
        open_existing(TableLocation(str(tmp_path / "lake" / f"{table}__observed"), {})) if table == "versions" else None
    )
    assert observed is None or sum(file["size"] > 0 for file in observed.files) == 1
    flow.apply("--select", table)
    assert {row[:2] for row in rows_of(flow, table) if row[-1]} == {(1, "changed again"), (2, "b"), (3, "c"), (4, "d")}
    assert flow.actions("--select", table) == {table: "none"}


@pytest.mark.full
@pytest.mark.parametrize("table", ["orders", "versions"])
def test_it_undoes_a_full_refresh(tmp_path: Path, table: str) -> None:
    flow, contents = with_three_commits(tmp_path, table, "--full-refresh", table)
    restore(flow, table, "2")
    assert rows_of(flow, table) == contents[1]
    flow.apply("--select", table)
    assert {row[:2] for row in rows_of(flow, table) if row[-1]} == {(1, "changed again"), (2, "b"), (3, "c"), (4, "d")}


@pytest.mark.full
def test_a_restoration_can_be_undone(tmp_path: Path) -> None:
    flow, contents = with_three_commits(tmp_path, "orders")
    restore(flow, "orders", "1")
    restore(flow, "orders", "3")
    assert rows_of(flow, "orders") == contents[2]
    assert flow.actions("--select", "orders") == {"orders": "none"}
    restore(flow, "orders", "2")
    assert rows_of(flow, "orders") == contents[1]


@pytest.mark.full
def test_columns_go_back_too(tmp_path: Path) -> None:
    flow, contents = with_three_commits(tmp_path, "orders")
    sqlite_script(
        tmp_path / "source.db", "ALTER TABLE orders ADD size INTEGER; UPDATE orders SET size = id, at = '2026-01-04'"
    )
    flow.apply("--select", "orders")
    said = restore(flow, "orders", "3")
    assert "columns without size" in said and rows_of(flow, "orders") == contents[2]
    names = [column.name for column in open_existing(TableLocation(str(tmp_path / "lake" / "orders"), {})).columns]
    assert "size" not in names
    flow.apply("--select", "orders")
    found = delta_rows(tmp_path / "lake" / "orders", ["id", "size"])
    assert found == sqlite_rows(tmp_path / "source.db", "SELECT id, size FROM orders")


def test_what_cannot_be_restored_says_why(tmp_path: Path) -> None:
    flow, contents = with_three_commits(tmp_path, "orders")
    assert "no sequence number 7" in (said := restore(flow, "orders", "7", expect=6)) and "from 1 to 3" in said
    assert "keeps no earlier versions" in restore(flow, "copy", "1", expect=6)
    assert "'none' is not a sequence number" in restore(flow, "orders", "none", expect=64)
    assert "oders" in restore(flow, "oders", "1", expect=64)
    old = open_existing(TableLocation(str(tmp_path / "lake" / "orders"), {}))
    add_rows(tmp_path, [(5, "e", 5)])
    flow.apply("--select", "orders", env={"FLOWCTL_CRASH_AT": "in_commit:orders"}, expect=-9)
    assert "is not finished" in restore(flow, "orders", "1", expect=6)
    flow.apply("--select", "orders")
    for path in (tmp_path / "lake" / "orders").rglob("*.parquet"):
        if "_delta_log" not in path.parts and path.stat().st_mtime < (tmp_path / "source.db").stat().st_mtime:
            path.unlink()
    assert "were deleted (vacuum)" in restore(flow, "orders", "1", expect=6)
    assert old.version < open_existing(old.location).version and contents[2]


@pytest.mark.full
def test_commits_of_others_are_counted_and_one_at_the_same_moment_stops_it(tmp_path: Path) -> None:
    flow, contents = with_three_commits(tmp_path, "events")
    location = TableLocation(str(tmp_path / "lake" / "events"), {})
    foreign = arrow_table({"id": [99], "note": ["theirs"]})
    write_deltalake(location.url, foreign, mode="append", schema_mode="merge")
    stopped_at = {"FLOWCTL_CRASH_AT": "in_commit:events", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    waiting = flow.start("restore", "flow.yaml", "events", "--to", "2", "--yes", env=stopped_at)
    try:
        wait_until_stopped(waiting)
        write_deltalake(location.url, foreign, mode="append", schema_mode="merge")
        os.kill(waiting.pid, signal.SIGCONT)
        out, err = waiting.communicate(timeout=120)
    finally:
        waiting.kill()
    assert waiting.returncode not in (0, None) and "another writer committed" in err
    assert "undoes sequence number 3; 1 commit of others" in " ".join(out.split())
    assert len(rows_of(flow, "events")) == len(contents[2]) + 2
    assert "sequence number 3; 2 commits of others" in restore(flow, "events", "2")
    assert rows_of(flow, "events") == contents[1]
