"""`flowctl maintain` as a user runs it: what is due is shown, confirmed and done; killed anywhere, no row changes."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flowctl.connectors.delta import actions, commit, data_files
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import open_existing
from tests.e2e.flows import Flow, delta_rows, sqlite_rows, sqlite_script, wait_until_stopped
from tests.services.s3 import S3Server

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
tables:
  orders: {from: src:orders, to: lake, mode: merge, key: [id], cursor: {column: at}}
  versions: {from: src:orders, to: lake, mode: scd2, key: [id], cursor: {column: at}, scd2: {valid_from: at}}
  copy: {from: src:orders, to: dst, mode: truncate}
"""
ON_S3 = """
version: 1
flow: shop
state: s3://{bucket}/_flowctl
storage:
  s3://{bucket}:
    {{region: "{region}", endpoint: "{endpoint}",
      access_key: "${{secret:env:AK}}", secret_key: "${{secret:env:SK}}"}}
spark: {{url: sail}}
connections:
  src: {{type: sqlite, path: source.db}}
  lake: {{type: delta, path: "s3://{bucket}/lake"}}
tables:
  orders: {{from: src:orders, to: lake, mode: merge, key: [id], cursor: {{column: at}}}}
"""
ROWS = 520
COLUMNS = ["id", "note"]


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    made = Flow(tmp_path)
    made.write(SPEC)
    fill_source(tmp_path)
    made.apply("--exclude", "versions")
    return made


def fill_source(folder: Path) -> None:
    rows = ", ".join(f"({id}, 'a', '2026-01-01 00:00:00')" for id in range(ROWS))
    create = "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)"
    sqlite_script(folder / "source.db", f"{create}; INSERT INTO orders VALUES {rows}")


def change_source(folder: Path, id: int, note: str, second: int) -> None:
    row = f"({id}, '{note}', '2026-01-02 00:00:{second:02}')"
    sqlite_script(folder / "source.db", f"INSERT OR REPLACE INTO orders VALUES {row}")


def scatter(location: TableLocation) -> None:
    """Each row of the table's one file becomes a file."""
    table = open_existing(location)
    (file,) = table.files
    rows = pq.read_table(io.BytesIO(location.file_system().cat_file(f"{location.url}/{file['path']}")))
    content = [actions.commit_info("", "OPTIMIZE", {}, {}), actions.remove(file)]
    files = {}
    for at in range(rows.num_rows):
        stored, footers = io.BytesIO(), []
        pq.write_table(rows.slice(at, 1), stored, metadata_collector=footers)
        name = f"part-{at}.parquet"
        files[f"{location.url}/{name}"] = stored.getvalue()
        content.append({"add": data_files.add_action(name, len(stored.getvalue()), footers[0], COLUMNS)})
    location.file_system().pipe(files)
    assert commit.publish(location, table.version + 1, content)


def orders(flow: Flow) -> TableLocation:
    return TableLocation(str(flow.folder / "lake" / "orders"), {})


def file_count(location: TableLocation) -> int:
    return open_existing(location).file_count


def must_equal_its_source(flow: Flow) -> None:
    source = sqlite_rows(flow.folder / "source.db", "SELECT id, note FROM orders")
    assert delta_rows(flow.folder / "lake" / "orders", COLUMNS) == source


def test_what_is_due_is_planned_shown_confirmed_and_done(flow: Flow) -> None:
    nothing = flow.run("maintain", "flow.yaml", expect=0)
    assert nothing.out == "Tables: 1 with nothing due.\n"
    scatter(orders(flow))
    change_source(flow.folder, 3, "changed", 1)
    planned = json.dumps(flow.plan("--select", "orders"))
    assert "due for maintenance: 519 small files. Run `flowctl maintain flow.yaml --select orders`" in planned
    refused = flow.run("maintain", "flow.yaml", expect=1)  # there is nobody to ask
    assert "520 files become about 1" in refused.out and file_count(orders(flow)) == ROWS
    done = flow.run("maintain", "flow.yaml", "--yes", expect=0)
    assert "lake:orders: compact: 520 files became 1" in done.err
    assert "1 table maintained." in done.out
    assert file_count(orders(flow)) == 1
    assert "due for maintenance" not in json.dumps(flow.plan("--select", "orders"))
    flow.apply("--select", "orders")
    must_equal_its_source(flow)


def test_the_json_has_what_was_due_and_what_was_done(flow: Flow) -> None:
    scatter(orders(flow))
    found = flow.run("maintain", "flow.yaml", "--yes", "--format", "json", "--select", "orders", expect=0).json()
    (table,) = found["tables"]
    assert (table["id"], table["table"], table["error"], table["left_out"]) == ("orders", "lake:orders", None, None)
    due, done = ({task["task"]: task for task in table[key]} for key in ("due", "done"))
    assert (due["compact"]["files"], due["compact"]["files_after"]) == (ROWS, 1)
    assert (done["compact"]["files"], done["compact"]["files_after"]) == (ROWS, 1)
    assert list(due) == list(done) == ["compact", "checkpoint"]


def test_a_term_that_matches_nothing_is_refused(flow: Flow) -> None:
    assert "nothing" in flow.run("maintain", "flow.yaml", "--select", "nothing", expect=64).words


@pytest.mark.full
def test_sidecars_are_maintained_with_their_table(flow: Flow) -> None:
    flow.apply("--select", "versions")
    observed = TableLocation(str(flow.folder / "lake" / "versions__observed"), {})
    scatter(observed)
    done = flow.run("maintain", "flow.yaml", "--yes", "--select", "versions", expect=0)
    assert "lake:versions__observed: compact" in done.err and file_count(observed) == 1
    change_source(flow.folder, 3, "changed", 1)
    flow.apply("--select", "versions")
    rows = delta_rows(flow.folder / "lake" / "versions", ["id", "note", "is_current"])
    assert len(rows) == ROWS + 1 and (3, "a", False) in rows and (3, "changed", True) in rows


@pytest.mark.full
@pytest.mark.parametrize("point", ["in_commit", pytest.param("after_commit", marks=pytest.mark.full)])
def test_killed_it_changes_no_row_and_continues(flow: Flow, point: str) -> None:
    scatter(orders(flow))
    flow.run("maintain", "flow.yaml", "--yes", env={"FLOWCTL_CRASH_AT": f"{point}:orders"}, expect=-9)
    assert file_count(orders(flow)) == (ROWS if point == "in_commit" else 1)
    must_equal_its_source(flow)
    change_source(flow.folder, 3, "changed", 1)
    flow.apply("--select", "orders")
    must_equal_its_source(flow)
    flow.run("maintain", "flow.yaml", "--yes", expect=0)
    assert file_count(orders(flow)) <= 2
    must_equal_its_source(flow)
    assert {step["id"]: step["action"] for step in flow.plan("--select", "orders")["steps"]} == {"orders": "none"}


@pytest.mark.full
@pytest.mark.parametrize("point", ["before_commit", "in_commit", "after_commit"])
def test_a_table_that_a_killed_run_has_begun_is_left_alone_until_it_is_finished(flow: Flow, point: str) -> None:
    scatter(orders(flow))
    change_source(flow.folder, 3, "changed", 1)
    flow.apply("--select", "orders", env={"FLOWCTL_CRASH_AT": f"{point}:orders"}, expect=-9)
    before = open_existing(orders(flow)).version
    refused = flow.run("maintain", "flow.yaml", "--yes", expect=6)
    assert "is not finished" in refused.words and "`flowctl apply flow.yaml` first" in refused.words
    assert open_existing(orders(flow)).version == before
    flow.apply("--select", "orders")
    flow.run("maintain", "flow.yaml", "--yes", expect=0)
    assert file_count(orders(flow)) == 1
    must_equal_its_source(flow)


@pytest.mark.full
def test_nobody_else_runs_the_flow_meanwhile(flow: Flow) -> None:
    scatter(orders(flow))
    stopped_at = {"FLOWCTL_CRASH_AT": "in_commit:orders", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    waiting = flow.start("maintain", "flow.yaml", "--yes", env=stopped_at)
    try:
        wait_until_stopped(waiting)
        flow.apply(expect=5)
        flow.run("maintain", "flow.yaml", "--yes", expect=5)
    finally:
        waiting.kill()
        waiting.communicate()


@pytest.mark.full
def test_a_stale_writer_changes_nothing_after_a_compaction(flow: Flow) -> None:
    """A merge is suspended right before its commit; another run finishes its number, the table is compacted, and then
    it wakes up."""
    scatter(orders(flow))
    change_source(flow.folder, 3, "changed", 1)
    short = {"FLOWCTL_LEASE_SECONDS": "5"}
    stopped_at = {"FLOWCTL_CRASH_AT": "in_commit:orders", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    stale = flow.start("apply", "flow.yaml", "--select", "orders", env={**short, **stopped_at})
    try:
        wait_until_stopped(stale)
        time.sleep(12)
        flow.apply("--select", "orders", "--lock-timeout", "30s", env=short)
        flow.run("maintain", "flow.yaml", "--yes", "--lock-timeout", "30s", env=short, expect=0)
        version = open_existing(orders(flow)).version
        assert file_count(orders(flow)) == 1
        os.kill(stale.pid, signal.SIGCONT)
        stale.communicate(timeout=120)
        assert stale.returncode not in (0, None)
    finally:
        stale.kill()
        stale.communicate()
    assert open_existing(orders(flow)).version == version
    must_equal_its_source(flow)


@pytest.mark.full
def test_a_table_in_object_storage(tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> None:
    flow = Flow(tmp_path, {"AK": s3_server.access_key, "SK": s3_server.secret_key})
    flow.write(ON_S3.format(bucket=s3_bucket, endpoint=s3_server.endpoint, region=s3_server.region))
    fill_source(tmp_path)
    flow.apply()
    place = {"region": s3_server.region, "endpoint": s3_server.endpoint}
    keys = {"access_key": s3_server.access_key, "secret_key": s3_server.secret_key}
    location = TableLocation(f"s3://{s3_bucket}/lake/orders", {f"s3://{s3_bucket}": {**place, **keys}})
    scatter(location)
    done = flow.run("maintain", "flow.yaml", "--yes", expect=0)
    assert "lake:orders: compact: 520 files became 1" in done.err
    assert file_count(location) == 1
    change_source(tmp_path, 3, "changed", 1)
    flow.apply()
    (added,) = [file for file in open_existing(location).files if "deletionVector" not in file]
    assert actions.row_count(added) == 1
    names = {entry["Key"] for entry in s3_server.client().list_objects_v2(Bucket=s3_bucket)["Contents"]}
    assert any("_flowctl/lease/orders/" in name for name in names)
