"""`flowctl maintain` of Iceberg tables, as a user runs it; their rows as DuckDB reads them."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from flowctl.connectors.iceberg import data_files
from flowctl.connectors.iceberg.table import OpenTable, TablePlace, open_existing
from flowctl.connectors.iceberg.writer import Draft
from tests.connectors.iceberg.iceberg_tables import catalog_of, change
from tests.e2e.flows import Flow, Row, iceberg_query, sqlite_rows, sqlite_script, wait_until_stopped

pytestmark = pytest.mark.server

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: source.db}
  lake: {type: iceberg, warehouse: lake}
  dst: {type: sqlite, path: target.db}
tables:
  orders: {from: src:orders, to: lake, mode: merge, key: [id], cursor: {column: at}}
  versions: {from: src:orders, to: lake, mode: scd2, key: [id], cursor: {column: at}, scd2: {valid_from: at}}
  events: {from: src:orders, to: lake:events, mode: append, cursor: {column: at}}
  copy: {from: lake:events, to: dst:events, mode: append}
"""
ROWS = 520
DAY = 86400


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    made = Flow(tmp_path)
    made.write(SPEC)
    rows = ", ".join(f"({id}, 'a', '2026-01-01 00:00:00')" for id in range(ROWS))
    create = "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)"
    sqlite_script(tmp_path / "source.db", f"{create}; INSERT INTO orders VALUES {rows}")
    return made


def change_source(flow: Flow, id: int, note: str, second: int) -> None:
    row = f"({id}, '{note}', '2026-01-02 00:00:{second:02}')"
    sqlite_script(flow.folder / "source.db", f"INSERT OR REPLACE INTO orders VALUES {row}")


def folder(flow: Flow, name: str) -> Path:
    return flow.folder / "lake" / "default" / name


def rows(flow: Flow, name: str, columns: str = "id, note") -> list[Row]:
    return iceberg_query(folder(flow, name), f"SELECT {columns} FROM {{table}}")


def must_equal_its_source(flow: Flow) -> None:
    assert rows(flow, "orders") == sorted(
        sqlite_rows(flow.folder / "source.db", "SELECT id, note FROM orders"), key=repr
    )


def with_table(flow: Flow, name: str, use: Callable[[OpenTable], object]) -> object:
    with catalog_of(flow.folder / "lake") as catalog:
        return use(open_existing(TablePlace(catalog, ("default", name), {})))


def file_count(flow: Flow, name: str = "orders") -> int:
    return int(str(with_table(flow, name, lambda table: len(table.files))))


def scatter(flow: Flow, name: str = "orders") -> None:
    """Each row of the table becomes a file."""

    def into_files(table: OpenTable) -> None:
        found: pa.Table = table.handle.scan().to_arrow()
        files = [
            file
            for at in range(found.num_rows)
            for file in data_files.write(table.metadata, {}, found.slice(at, 1).combine_chunks().to_batches())
        ]
        draft = Draft(table, table.transaction())
        draft.replace_files(files, [task.file for task in table.files], same_rows=True)
        assert draft.hand_over()

    with_table(flow, name, into_files)


def make_older(flow: Flow, name: str, days: float) -> None:
    """The table's files and snapshots, as if nothing had happened since."""
    place = folder(flow, name)
    then = time.time() - days * DAY
    for path in (path for path in place.rglob("*") if path.is_file()):
        if path.name.endswith(".metadata.json"):
            aged = re.sub(
                r'("(?:timestamp-ms|last-updated-ms)":\s*)(\d+)',
                lambda found: f"{found[1]}{int(found[2]) - int(days * DAY * 1000)}",
                path.read_text(),
            )
            path.write_text(aged)
        os.utime(path, (then, then))


def files_of(flow: Flow, name: str) -> set[str]:
    return {path.name for path in folder(flow, name).rglob("*") if path.is_file()}


@pytest.mark.full
def test_what_is_due_is_planned_shown_confirmed_and_done(flow: Flow) -> None:
    flow.apply("--select", "orders")
    assert flow.run("maintain", "flow.yaml", expect=0).out == "Tables: 1 with nothing due.\n"
    scatter(flow)
    change_source(flow, 3, "changed", 1)
    planned = json.dumps(flow.plan("--select", "orders"))
    assert "due for maintenance: 520 files of" in planned
    refused = flow.run("maintain", "flow.yaml", expect=1)  # there is nobody to ask
    assert "520 files become about 1" in refused.out and file_count(flow) == ROWS
    flow.apply("--select", "orders", env={"FLOWCTL_CRASH_AT": "after_commit:orders"}, expect=-9)
    assert "is not finished" in flow.run("maintain", "flow.yaml", "--yes", expect=6).words
    flow.apply("--select", "orders")
    done = flow.run("maintain", "flow.yaml", "--yes", expect=0)
    assert "lake:orders: compact: 520 files became 1" in done.err and file_count(flow) == 1
    assert "due for maintenance" not in json.dumps(flow.plan("--select", "orders"))
    must_equal_its_source(flow)
    make_older(flow, "orders", 8)
    change_source(flow, 4, "changed", 2)
    flow.apply("--select", "orders")
    must_equal_its_source(flow)
    before = files_of(flow, "orders")
    assert "expire 3 snapshots replaced over 7 days ago" in flow.run("maintain", "flow.yaml", expect=1).words
    flow.run("maintain", "flow.yaml", "--yes", expect=0)
    left = [name for name in files_of(flow, "orders") if name.endswith(".parquet")]
    assert len(left) == file_count(flow) + 1  # and that of the version before, which was replaced just now
    assert len(before - files_of(flow, "orders")) > ROWS
    must_equal_its_source(flow)
    assert flow.actions("--select", "orders") == {"orders": "none"}
    assert flow.run("maintain", "flow.yaml", expect=0).out == "Tables: 1 with nothing due.\n"
    assert "no sequence number 1" in flow.run("restore", "flow.yaml", "orders", "--to", "1", expect=6).words


@pytest.mark.full
@pytest.mark.parametrize("point", ["in_commit", "after_commit"])
def test_killed_it_changes_no_row_and_continues(flow: Flow, point: str) -> None:
    flow.apply("--select", "orders")
    scatter(flow)
    flow.run("maintain", "flow.yaml", "--yes", env={"FLOWCTL_CRASH_AT": f"{point}:orders"}, expect=-9)
    assert file_count(flow) == (ROWS if point == "in_commit" else 1)
    must_equal_its_source(flow)
    change_source(flow, 3, "changed", 1)
    flow.apply("--select", "orders")
    flow.run("maintain", "flow.yaml", "--yes", expect=0)
    assert file_count(flow) <= 2
    must_equal_its_source(flow)
    make_older(flow, "orders", 8)
    flow.run("maintain", "flow.yaml", "--yes", expect=0)
    must_equal_its_source(flow)
    assert flow.actions("--select", "orders") == {"orders": "none"}


@pytest.mark.full
def test_somebody_elses_commit_at_the_same_moment_is_kept(flow: Flow) -> None:
    flow.apply("--select", "orders")
    scatter(flow)
    stopped_at = {"FLOWCTL_CRASH_AT": "in_commit:orders", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    waiting = flow.start("maintain", "flow.yaml", "--yes", env=stopped_at)
    try:
        wait_until_stopped(waiting)
        foreign = pa.table({"id": [1000], "note": ["theirs"]})
        with catalog_of(flow.folder / "lake") as catalog:
            change(catalog, ("default", "orders"), lambda transaction: transaction.append(foreign))
        os.kill(waiting.pid, signal.SIGCONT)
        time.sleep(0.1)
        wait_until_stopped(waiting)  # it has begun again
        os.kill(waiting.pid, signal.SIGCONT)
        _, err = waiting.communicate(timeout=120)
    finally:
        waiting.kill()
    assert waiting.returncode == 0, err
    assert file_count(flow) == 1 and len(rows(flow, "orders")) == ROWS + 1


@pytest.mark.full
def test_histories_and_readers_of_versions_go_on(flow: Flow) -> None:
    """An append from a table reads no row again because it was compacted, and its snapshots before expired."""
    flow.apply("--exclude", "orders", "--exclude", "copy")
    flow.apply("--exclude", "orders")
    for name in ("versions", "versions__observed", "events"):
        scatter(flow, name)
    done = flow.run("maintain", "flow.yaml", "--yes", expect=0)
    assert done.err.count("520 files became 1") == 3
    for name in ("versions", "versions__observed", "events"):
        make_older(flow, name, 8)
    change_source(flow, 3, "changed", 1)
    flow.apply("--exclude", "orders")
    flow.run("maintain", "flow.yaml", "--yes", expect=0)
    change_source(flow, 4, "changed", 2)
    flow.apply("--exclude", "orders")
    found = rows(flow, "versions", "id, note, is_current")
    assert len(found) == ROWS + 2 and {(3, "a", False), (3, "changed", True), (4, "changed", True)} <= set(found)
    flow.apply("--select", "copy")  # it does not wait for what writes its source
    copied = sqlite_rows(flow.folder / "target.db", "SELECT id, note FROM events")
    assert sorted(copied, key=repr) == rows(flow, "events") and len(copied) == ROWS + 2


@pytest.mark.full
def test_what_tags_branches_and_properties_keep_stays(flow: Flow) -> None:
    flow.apply("--select", "orders")
    with catalog_of(flow.folder / "lake") as catalog:
        first = catalog.load_table(("default", "orders")).metadata.current_snapshot_id

        for second in (1, 2, 3):
            change_source(flow, second, "changed", second)
            flow.apply("--select", "orders")
        tag = SetSnapshotRefUpdate(ref_name="audit", type="tag", snapshot_id=first)
        catalog.commit_table(catalog.load_table(("default", "orders")), (), (tag,))
        make_older(flow, "orders", 8)
        flow.run("maintain", "flow.yaml", "--yes", expect=0)
        table = catalog.load_table(("default", "orders"))
        assert {one.snapshot_id for one in table.metadata.snapshots} == {first, table.metadata.current_snapshot_id}
        assert table.scan(snapshot_id=first).to_arrow().num_rows == ROWS
        change(catalog, ("default", "orders"), lambda transaction: transaction.set_properties({"gc.enabled": "false"}))
        change_source(flow, 9, "changed", 9)
        flow.apply("--select", "orders")
        make_older(flow, "orders", 8)
        before = files_of(flow, "orders")
        assert "gc.enabled is false" in flow.run("maintain", "flow.yaml", "--yes", expect=0).words
        assert files_of(flow, "orders") == before
    must_equal_its_source(flow)


@pytest.mark.full
def test_nothing_is_deleted_if_a_file_is_missing(flow: Flow) -> None:
    flow.apply("--select", "orders")
    (folder(flow, "orders") / "data" / "orphan.parquet").write_bytes(b"x")
    make_older(flow, "orders", 8)
    (live,) = [path for path in folder(flow, "orders").rglob("*.parquet") if path.name != "orphan.parquet"]
    live.rename(live.with_suffix(".moved"))
    refused = flow.run("maintain", "flow.yaml", "--yes", expect=4)
    assert f"such as {live.name}" in refused.words and "orphan.parquet" in files_of(flow, "orders")
    live.with_suffix(".moved").rename(live)
    assert "1 file" in flow.run("maintain", "flow.yaml", "--yes", expect=0).words
    assert "orphan.parquet" not in files_of(flow, "orders")
    must_equal_its_source(flow)
