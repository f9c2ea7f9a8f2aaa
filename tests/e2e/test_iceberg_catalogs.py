"""Iceberg tables in every catalog and on every object store: the same run, the same promises."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from flowctl.connectors.iceberg.address import address_of
from flowctl.connectors.iceberg.catalogs import open_catalog
from flowctl.connectors.iceberg.file_io import split
from tests.e2e.flows import Flow, Row, sqlite_rows, sqlite_script
from tests.services import iceberg_rest
from tests.services.s3 import S3Server
from tests.storage.stores import Bucket, new_bucket

pytestmark = pytest.mark.server

SPEC = """
version: 1
flow: shop
state: state
spark: {{url: sail}}
{storage}
connections:
  src: {{type: sqlite, path: source.db}}
  lake: {connection}
  dst: {{type: sqlite, path: target.db}}
tables:
  merged: {{from: src:orders, to: lake, mode: merge, key: [id], cursor: {{column: at}}}}
  added: {{from: src:orders, to: lake, mode: append, cursor: {{column: at}}}}
  replaced: {{from: src:orders, to: lake, mode: truncate}}
  versions: {{from: src:orders, to: lake, mode: scd2, key: [id], cursor: {{column: at}}, scd2: {{valid_from: at}}}}
"""
BACK = """
  copied: {from: lake:merged, to: dst:copied, mode: merge, key: [id], deletes: {detect: missing_keys, action: hard}}
"""


@dataclass(frozen=True)
class Lake:
    """A flow whose tables are in the catalog of ``options``, a connection without secrets; ``hidden`` are references in
    their place."""

    flow: Flow
    options: Mapping[str, Any]
    bucket: Bucket | None = None
    hidden: Mapping[str, str] = field(default_factory=dict)

    def write(self, more: str = "") -> None:
        connection = json.dumps({"type": "iceberg", **self.options, **self.hidden})
        storage = self.bucket.spec if self.bucket else ""
        self.flow.write(SPEC.format(storage=storage, connection=connection) + more)

    @contextmanager
    def table(self, name: str) -> Iterator[Table]:
        address = address_of(self.options, str(self.flow.folder))
        with open_catalog(address, self.bucket.storage if self.bucket else {}) as catalog:
            yield catalog.load_table((str(self.options.get("namespace", "default")), name))

    def rows(self, name: str, *columns: str) -> list[Row]:
        """File by file: flowctl writes no deletions."""
        found: list[Row] = []
        with self.table(name) as table:
            for task in table.scan().plan_files():
                assert not task.delete_files
                place, file = split(task.file.file_path, self.bucket.storage if self.bucket else {})
                with place.file_system().open(f"{place.url}/{file}") as stored:
                    found += [tuple(row.values()) for row in pq.read_table(stored).select(columns).to_pylist()]
        return sorted(found, key=repr)

    def snapshots(self, name: str) -> int:
        with self.table(name) as table:
            return len(table.metadata.snapshots)

    def change(self, script: str) -> None:
        sqlite_script(self.flow.folder / "source.db", script)


def new_lake(folder: Path, options: Mapping[str, Any], bucket: Bucket | None = None, **hidden: str) -> Lake:
    made = Lake(Flow(folder, bucket.secrets if bucket else {}), options, bucket, hidden)
    made.change(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP);"
        "INSERT INTO orders VALUES (1, 'a', '2026-01-01'), (2, 'b', '2026-01-01')"
    )
    made.write()
    return made


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    catalog, _, store = str(request.param).partition(" on ")
    bucket = new_bucket(request.getfixturevalue(f"{store}_server")) if store else None
    root = f"{bucket.url}/lake" if bucket else "lake"
    match catalog:
        case "hadoop":
            return new_lake(tmp_path, {"warehouse": root}, bucket)
        case "jdbc":
            return new_lake(tmp_path, {"catalog": "jdbc", "uri": "sqlite:///catalog.db", "warehouse": root}, bucket)
        case "postgres":
            uri = request.getfixturevalue("postgres_database")
            hidden = {"uri": uri.replace("etl-secret", "${secret:env:PG_PASSWORD}")}
            made = new_lake(tmp_path, {"catalog": "jdbc", "uri": uri, "warehouse": root}, bucket, **hidden)
            return replace(made, flow=Flow(tmp_path, {**made.flow.env, "PG_PASSWORD": "etl-secret"}))
        case "rest":
            served = request.getfixturevalue("rest_catalog")
            return new_lake(tmp_path, {"catalog": "rest", "uri": served.url, "namespace": f"n{abs(hash(tmp_path))}"})
        case "glue":
            assert bucket is not None
            server: S3Server = request.getfixturevalue("moto")  # whatever has the bucket: VersityGW has no Glue
            properties = {"glue.endpoint": server.endpoint, "glue.region": server.region}
            env = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
            request.getfixturevalue("monkeypatch").setenv("AWS_ACCESS_KEY_ID", server.access_key)
            request.getfixturevalue("monkeypatch").setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
            namespace = f"n{abs(hash(tmp_path))}"  # the server's one catalog knows the tables of other tests' buckets
            options = {"catalog": "glue", "warehouse": root, "namespace": namespace, "properties": properties}
            made = new_lake(tmp_path, options, bucket)
            return replace(made, flow=Flow(tmp_path, {**made.flow.env, **env}))
        case unknown:
            raise AssertionError(unknown)


CATALOGS = (
    "hadoop on s3",
    "hadoop on azure",
    "hadoop on gcs",
    "jdbc",
    "jdbc on s3",
    "postgres",
    "rest",
    "glue on s3",
)


@pytest.mark.full
@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_all_modes_and_a_kill(lake: Lake) -> None:
    lake.flow.apply()
    lake.change("UPDATE orders SET note = 'changed', at = '2026-01-03' WHERE id = 1")
    for table, point in (("merged", "in_commit"), ("added", "after_commit")):
        lake.flow.apply("--select", table, env={"FLOWCTL_CRASH_AT": f"{point}:{table}"}, expect=-9)
    lake.flow.apply()
    assert lake.rows("merged", "id", "note") == [(1, "changed"), (2, "b")]
    assert lake.rows("added", "id", "note") == [(1, "a"), (1, "changed"), (2, "b")]
    assert lake.rows("replaced", "id", "note") == [(1, "changed"), (2, "b")]
    assert lake.rows("versions", "id", "note", "is_current") == [(1, "a", False), (1, "changed", True), (2, "b", True)]
    assert lake.snapshots("added") == 2
    assert lake.flow.actions("--exclude", "replaced") == dict.fromkeys(("added", "merged", "versions"), "none")


@pytest.mark.full
@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_read_back_restored_and_maintained(lake: Lake) -> None:
    lake.write(BACK)
    lake.flow.apply("--exclude", "copied")
    lake.flow.apply("--select", "copied")
    changed = "UPDATE orders SET note = 'c', size = 7, at = '2026-01-04' WHERE id = 1"
    lake.change(f"ALTER TABLE orders ADD size INTEGER; {changed}")
    lake.flow.apply("--exclude", "copied")
    copied = lake.flow.folder / "target.db"
    lake.flow.apply("--select", "copied")
    assert sqlite_rows(copied, "SELECT id, note, size FROM copied") == [(1, "c", 7), (2, "b", None)]
    lake.flow.run("restore", "flow.yaml", "merged", "--to", "1", "--yes", expect=0)
    assert lake.rows("merged", "id", "note") == [(1, "a"), (2, "b")]
    lake.flow.apply("--select", "copied")
    assert sqlite_rows(copied, "SELECT id, note FROM copied") == [(1, "a"), (2, "b")]
    lake.flow.run("maintain", "flow.yaml", "--yes", expect=0)
    lake.flow.apply("--select", "merged")
    assert lake.rows("merged", "id", "note", "size") == [(1, "c", 7), (2, "b", None)]


@pytest.mark.full
@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_two_flows_that_append_to_one_table_lose_nothing(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each has its own state, and the other's commits come in between."""
    lake.flow.apply("--select", "added")
    other = replace(lake, flow=Flow(tmp_path_factory.mktemp("other"), lake.flow.env))
    if "warehouse" in lake.options and lake.bucket is None:
        other = replace(other, options={**lake.options, "warehouse": str(lake.flow.folder / "lake")})
    if str(lake.options.get("uri", "")).startswith("sqlite"):
        other = replace(other, options={**other.options, "uri": f"sqlite:///{lake.flow.folder}/catalog.db"})
    other.change(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP);"
        "INSERT INTO orders VALUES (7, 'theirs', '2026-01-01')"
    )
    other.write()
    taken = other.flow.run("apply", "flow.yaml", "--select", "added")
    assert "added" in taken.words and taken.code != 0  # the table belongs to another flow
    other.flow.run("state", "adopt", "flow.yaml", "added", "--position", "beginning", "--yes", expect=0)
    processes = []
    with ExitStack() as stack:
        for one, first in ((lake, 100), (other, 200)):
            for number in range(3):
                one.change(f"INSERT INTO orders VALUES ({first + number}, 'x', '2026-02-0{number + 1}')")
            processes.append(stack.enter_context(one.flow.start("apply", "flow.yaml", "--select", "added")))
        for process in processes:
            process.communicate(timeout=120)
    for one in (lake, other):
        one.flow.apply("--select", "added")
    found = [row[0] for row in lake.rows("added", "id")]
    assert sorted(found) == [1, 2, 7, 100, 101, 102, 200, 201, 202]


@pytest.mark.parametrize("habit", ["bad gateway", "drops the answer", "unavailable"])
@pytest.mark.parametrize("mode", ["merged", "added", "replaced", "versions"])
def test_an_answer_that_is_lost_commits_once(
    rest_catalog: iceberg_rest.Server, tmp_path: Path, mode: str, habit: iceberg_rest.Habit
) -> None:
    """Of the commit that makes the table, and of the next one."""
    with iceberg_rest.gate(rest_catalog) as between:
        lake = new_lake(tmp_path, {"catalog": "rest", "uri": between.url, "namespace": f"n{abs(hash(tmp_path))}"})
        for number, note in enumerate(("a", "changed"), start=1):
            between.habit = habit
            lake.change(f"UPDATE orders SET note = '{note}', at = '2026-01-0{number}' WHERE id = {number}")
            lake.flow.apply("--select", mode)
            assert between.habit == "none"
            assert lake.snapshots(mode) == number
        before = [] if mode in ("merged", "replaced") else [(2, "b")]
        assert lake.rows(mode, "id", "note") == [(1, "a"), *before, (2, "changed")]
