"""Files as targets of whole runs: in S3, killed around the commit; and what a plan says of a folder before anything is
written."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from tests.connectors.files.written import Table
from tests.e2e.flows import Flow, sqlite_script
from tests.services.s3 import S3Server

STOPPED, KILLED = 6, -9
SPEC = """
version: 1
flow: shop
state: state
spark: {{url: sail}}
storage: {storage}
connections:
  src: {{type: sqlite, path: source.db}}
  out: {{type: files, path: "{path}"}}
tables:
  orders: {{from: src:orders, to: {{connection: out, path: sales/orders{format}}}, mode: {mode}}}
"""
APPEND = "append, cursor: {column: at}"
CSV = ", format: {type: csv, compression: gzip}"


def write(flow: Flow, mode: str = APPEND, format: str = "", path: str = "out", storage: str = "{}") -> Path:
    flow.write(SPEC.format(mode=mode, format=format, path=path, storage=storage))
    source = flow.folder / "source.db"
    if not source.exists():
        sqlite_script(source, "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP NOT NULL)")
    return source


def add(source: Path, *ids: int) -> None:
    rows = ", ".join(f"({id}, 'note {id}', '2026-01-01 00:00:{id:02}')" for id in ids)
    sqlite_script(source, f"INSERT INTO orders VALUES {rows}")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_killed_around_its_commit_in_s3_a_run_loses_and_doubles_nothing(
    mode: str, tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    flow = Flow(tmp_path, {"AK": s3_server.access_key, "SK": s3_server.secret_key})
    url = f"s3://{s3_bucket}"
    secrets = {"access_key": "${secret:env:AK}", "secret_key": "${secret:env:SK}"}
    storage = json.dumps({url: {"region": s3_server.region, "endpoint": s3_server.endpoint, **secrets}})
    source = write(flow, APPEND if mode == "append" else mode, CSV, f"{url}/exports", storage)
    table = Table(f"{url}/exports", {url: dict(s3_server.storage())})
    for round, point in enumerate(("after_intent", "before_commit", "in_commit", "after_commit")):
        add(source, 2 * round)
        assert flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None).code == KILLED
        add(source, 2 * round + 1)
        flow.apply(expect=0)
        rows = [row for content in table.contents() for row in csv.reader(content.decode().splitlines()) if row]
        assert sorted(int(id) for id, *_ in rows if id != "id") == list(range(2 * round + 2)), point
        assert len(table.data_files()) == len(table.manifest()["files"]), point


def test_files_that_a_killed_run_has_replaced_are_removed_by_the_next(tmp_path: Path) -> None:
    flow, table = Flow(tmp_path), Table(str(tmp_path / "out"))
    add(write(flow), 1)
    flow.apply(expect=0)
    again = flow.apply("--full-refresh", "orders", env={"FLOWCTL_CRASH_AT": "before_clean"}, expect=None)
    assert (again.code, len(table.data_files())) == (KILLED, 2)
    flow.apply(expect=0)  # only records the commit
    assert table.data_files() == [file["path"] for file in table.manifest()["files"]]


@pytest.mark.full
def test_a_plan_stops_where_the_folder_has_something_else(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    add(write(flow), 1, 2)
    folder = tmp_path / "out/sales/orders"
    folder.mkdir(parents=True)
    (folder / "theirs.csv").touch()
    stopped = flow.run("plan", "flow.yaml", expect=STOPPED)
    assert f"{folder} holds theirs.csv, which flowctl has not written" in stopped.words
    (folder / "theirs.csv").unlink()
    flow.apply(expect=0)
    add(write(flow, format=CSV), 3)
    stopped = flow.run("plan", "flow.yaml", expect=STOPPED)
    assert f"{folder} has files of type parquet" in stopped.words
    assert "Set `to.format` as it was" in stopped.words
    flow.apply("--full-refresh", "orders", expect=0)
    (found,) = folder.glob("*.csv.gz")
    assert gzip.decompress(found.read_bytes()).decode().splitlines()[1:] == [
        f'{id},"note {id}",2026-01-01T00:00:{id:02}.000000' for id in (1, 2, 3)
    ]
    assert list(folder.glob("*.parquet")) == []


@pytest.mark.full
def test_a_command_for_tables_with_versions_says_that_files_have_none(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    add(write(flow), 1)
    flow.apply(expect=0)
    refused = flow.run("restore", "flow.yaml", "orders", "--to", "1", expect=STOPPED)
    assert "keeps no earlier versions" in refused.words
    assert "tables in Delta and Iceberg can be restored" in refused.words
    assert "There are no tables in Delta or Iceberg" in flow.run("maintain", "flow.yaml", expect=0).words
