"""State, buffer, files and Delta tables in each object store: the same run, the same promises."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flowctl.connectors.delta import deletion_vectors
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import open_existing
from tests.e2e.flows import Flow, sqlite_rows, sqlite_script
from tests.storage.stores import Bucket

HEAD = """
version: 1
flow: shop
state: {url}/_flowctl
{storage}
connections:
  src: {{type: sqlite, path: source.db}}
  inbox: {{type: files, path: {url}/inbox}}
  lake: {{type: delta, path: {url}/lake}}
  dst: {{type: sqlite, path: target.db}}
spark: {{url: "{spark}"}}
tables:
"""
ON_SAIL = """
  merged: {from: src:orders, to: lake, mode: merge, key: [id], cursor: {column: at}}
  added: {from: src:orders, to: lake, mode: append, cursor: {column: at}}
  versions: {from: src:orders, to: lake, mode: scd2, key: [id], cursor: {column: at}, scd2: {valid_from: at}}
"""
ON_BOTH = """
  orders: {from: src:orders, to: lake:orders, mode: merge, key: [id], cursor: {column: at}}
"""
FILES = """
  lines: {from: "inbox:*.csv", to: lake, mode: append, format: {type: csv, schema: {id: bigint, total: "decimal(9,2)"}}}
"""
#: What rows of text bring besides their fields.
PLACES = """
  events:
    from: inbox:**/*.jsonl.gz
    to: lake
    mode: append
    format: {schema: {id: bigint}, partitions: {day: date, of: string}, source_file: true, on_fail: quarantine}
"""
COPY = """
  copy: {from: {sql: "SELECT id, note FROM {{ ref('orders') }}"}, to: dst:copy, mode: truncate}
"""


def flow_in(bucket: Bucket, folder: Path, tables: str, spark: str = "sail") -> Flow:
    flow = Flow(folder, bucket.secrets)
    rewrite(flow, bucket, tables, spark)
    return flow


def rewrite(flow: Flow, bucket: Bucket, tables: str, spark: str = "sail") -> None:
    flow.write(HEAD.format(url=bucket.url, storage=bucket.spec, spark=spark) + tables)


def fill(folder: Path, rows: int = 2) -> Path:
    source = folder / "source.db"
    sqlite_script(source, "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)")
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
    sqlite_script(source, f"{numbers} INSERT INTO orders SELECT i, 'note ' || i, '2026-01-01 00:00:00' FROM n")
    return source


def live_rows(bucket: Bucket, table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
    """File by file, without what deletion vectors hide: neither pyarrow nor deltalake know of those."""
    location = TableLocation(f"{bucket.url}/lake/{table}", bucket.storage)
    found = []
    for file in open_existing(location).files:
        vector = file.get("deletionVector")
        hidden = deletion_vectors.read(location, vector) if vector else ()
        with location.file_system().open(f"{location.url}/{file['path']}") as stored:
            rows = pq.read_table(stored).select(columns).to_pylist()
        found += [tuple(row.values()) for number, row in enumerate(rows) if number not in hidden]
    return sorted(found, key=repr)


def change_one(source: Path) -> None:
    sqlite_script(source, "UPDATE orders SET note = 'changed', at = '2026-01-03 00:00:00' WHERE id = 1")


def test_sail_reads_and_writes_object_storage_with_the_specs_credentials(bucket: Bucket, tmp_path: Path) -> None:
    flow, source = flow_in(bucket, tmp_path, ON_SAIL), fill(tmp_path)
    flow.apply()
    change_one(source)
    flow.apply(env={"FLOWCTL_CRASH_AT": "in_commit:merged"}, expect=-9)
    flow.apply()
    assert live_rows(bucket, "merged", ["id", "note"]) == [(1, "changed"), (2, "note 2")]
    assert live_rows(bucket, "added", ["id", "note"]) == [(1, "changed"), (1, "note 1"), (2, "note 2")]
    versions = live_rows(bucket, "versions", ["id", "note", "is_current"])
    assert versions == [(1, "changed", True), (1, "note 1", False), (2, "note 2", True)]


@pytest.mark.full
def test_files_in_object_storage_are_read_once_each(bucket: Bucket, tmp_path: Path) -> None:
    flow = flow_in(bucket, tmp_path, FILES)
    inbox = TableLocation(f"{bucket.url}/inbox", bucket.storage)
    inbox.write_file("1.csv", b"id,total\n1,2.50\n")
    flow.apply()
    inbox.write_file("2.csv", b"id,total\n2,3.00\n")
    flow.apply()
    assert [(id, str(total)) for id, total in live_rows(bucket, "lines", ["id", "total"])] == [(1, "2.50"), (2, "3.00")]
    inbox.write_file("1.csv", b"id,total\n1,9.99\n")
    assert flow.actions() == {"lines": "stop"}


@pytest.mark.full
@pytest.mark.parametrize("spark", ["sail", "local[2]"])
def test_files_in_object_storage_have_a_path_and_lines(bucket: Bucket, tmp_path: Path, spark: str) -> None:
    flow = flow_in(bucket, tmp_path, PLACES, spark)
    inbox = TableLocation(f"{bucket.url}/inbox", bucket.storage)
    first, second = (
        "day=2026-11-01/of=a b%2Fü/1 %41.jsonl.gz",
        "day=2026-11-02/of=__HIVE_DEFAULT_PARTITION__/1.jsonl.gz",
    )
    inbox.write_file(first, gzip.compress(b'{"id": 1}\n\n{"id": "x"}\n{"id": \xff}\n'))
    inbox.write_file(second, gzip.compress(b'{"id": 2}\n'))
    assert flow.apply(env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=None).code == -9
    flow.apply()
    days = dt.date(2026, 11, 1), dt.date(2026, 11, 2)
    rows = live_rows(bucket, "events", ["id", "day", "of", "_source_file"])
    assert rows == [(1, days[0], "a b/ü", first), (2, days[1], None, second)]
    bad = live_rows(bucket, "events__quarantine", ["_source_file", "_line", "_raw", "_reason"])
    assert bad == [
        (first, "3", '{"id": "x"}', "column id holds a value that is not exactly bigint"),
        (first, "4", '{"id": \\xff}', "is not UTF-8 text"),
    ]


@pytest.mark.full
@pytest.mark.parametrize("spark", ["sail", "local[2]"])
def test_more_rows_than_fit_in_memory(bucket: Bucket, tmp_path: Path, spark: str) -> None:
    """The engine writes the files, and reads the buffer."""
    rows = 400_000
    flow, source = flow_in(bucket, tmp_path, ON_BOTH, spark), fill(tmp_path, rows)
    flow.apply()
    sqlite_script(source, "UPDATE orders SET note = 'changed', at = '2026-01-03 00:00:00' WHERE id % 2 = 0")
    flow.apply()
    found = live_rows(bucket, "orders", ["id", "note"])
    assert sorted(found) == [(id, f"note {id}" if id % 2 else "changed") for id in range(1, rows + 1)]


@pytest.mark.full
def test_a_flow_that_lives_in_object_storage(bucket: Bucket, tmp_path: Path) -> None:
    """Begun on Sail, continued on Spark."""
    flow, source = flow_in(bucket, tmp_path, ON_BOTH), fill(tmp_path)
    flow.apply()
    change_one(source)
    rewrite(flow, bucket, ON_BOTH + COPY, "local[2]")
    flow.apply()
    assert sqlite_rows(tmp_path / "target.db", "SELECT id, note FROM copy") == [(1, "changed"), (2, "note 2")]
    contents = bucket.contents
    assert not [name for name in contents if "/buffer/" in name], "the buffer is emptied at the end of a run"
    for secret in bucket.secrets.values():
        assert not [name for name, text in contents.items() if secret.encode() in text]
