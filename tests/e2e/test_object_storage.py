"""State, buffer and Delta tables in S3: the same run, the same promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flowctl.connectors.delta import deletion_vectors
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import open_existing
from tests.e2e.flows import Flow, sqlite_rows, sqlite_script
from tests.services.s3 import S3Server

SPEC = """
version: 1
flow: shop
state: s3://{bucket}/_flowctl
storage:
  s3://{bucket}:
    {{region: "{region}", endpoint: "{endpoint}",
      access_key: "${{secret:env:AK}}", secret_key: "${{secret:env:SK}}"}}
connections:
  src: {{type: sqlite, path: source.db}}
  lake: {{type: delta, path: "s3://{bucket}/lake"}}
  dst: {{type: sqlite, path: target.db}}
tables:
  orders: {{from: src:orders, to: lake:orders, mode: merge, key: [id], cursor: {{column: at}}}}
  copy: {{from: {{sql: "SELECT id, note FROM {{{{ ref('orders') }}}}"}}, to: dst:copy, mode: truncate}}
"""


ON_SAIL = """
spark: {{url: sail}}
tables:
  merged: {{from: src:orders, to: lake, mode: merge, key: [id], cursor: {{column: at}}}}
  added: {{from: src:orders, to: lake, mode: append, cursor: {{column: at}}}}
  versions: {{from: src:orders, to: lake, mode: scd2, key: [id], cursor: {{column: at}}, scd2: {{valid_from: at}}}}
"""


def test_sail_reads_and_writes_object_storage_with_the_specs_credentials(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    flow = Flow(tmp_path, {"AK": s3_server.access_key, "SK": s3_server.secret_key})
    spec = SPEC.partition("tables:")[0] + ON_SAIL
    flow.write(spec.format(bucket=s3_bucket, endpoint=s3_server.endpoint, region=s3_server.region))
    source = tmp_path / "source.db"
    sqlite_script(source, "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)")
    sqlite_script(source, "INSERT INTO orders VALUES (1, 'a', '2026-01-01 00:00:00'), (2, 'b', '2026-01-02 00:00:00')")
    flow.apply(expect=0)
    sqlite_script(source, "UPDATE orders SET note = 'changed', at = '2026-01-03 00:00:00' WHERE id = 1")
    flow.apply(env={"FLOWCTL_CRASH_AT": "in_commit:merged"}, expect=-9)
    flow.apply(expect=0)

    def rows(table: str, *columns: str) -> list[tuple[object, ...]]:
        return live_rows(f"s3://{s3_bucket}/lake/{table}", s3_server, columns)

    assert rows("merged", "id", "note") == [(1, "changed"), (2, "b")]
    assert rows("added", "id", "note") == [(1, "a"), (1, "changed"), (2, "b")]
    assert rows("versions", "id", "note", "is_current") == [(1, "a", False), (1, "changed", True), (2, "b", True)]


def live_rows(url: str, server: S3Server, columns: Sequence[str]) -> list[tuple[object, ...]]:
    """File by file, without what deletion vectors hide: neither pyarrow nor deltalake know of those."""
    credentials = {"access_key": server.access_key, "secret_key": server.secret_key}
    place = {"region": server.region, "endpoint": server.endpoint}
    location = TableLocation(url, {url: {**place, **credentials}})
    found = []
    for file in open_existing(location).files:
        vector = file.get("deletionVector")
        hidden = deletion_vectors.read(location, vector) if vector else ()
        with location.file_system().open(f"{url}/{file['path']}") as stored:
            rows = pq.read_table(stored).select(columns).to_pylist()
        found += [tuple(row.values()) for number, row in enumerate(rows) if number not in hidden]
    return sorted(found, key=repr)


@pytest.mark.full
def test_a_flow_that_lives_in_object_storage(tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> None:
    """Begun on Sail, continued on Spark."""
    flow = Flow(tmp_path, {"AK": s3_server.access_key, "SK": s3_server.secret_key})
    spec = SPEC.format(bucket=s3_bucket, endpoint=s3_server.endpoint, region=s3_server.region)
    only_orders = spec[: spec.index("  copy:")]
    flow.write(only_orders + "spark: {url: sail}\n")
    source = tmp_path / "source.db"
    sqlite_script(source, "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT, at TIMESTAMP)")
    sqlite_script(source, "INSERT INTO orders VALUES (1, 'a', '2026-01-01 00:00:00'), (2, 'b', '2026-01-02 00:00:00')")
    flow.apply(expect=0)
    sqlite_script(source, "UPDATE orders SET note = 'changed', at = '2026-01-03 00:00:00' WHERE id = 1")
    flow.write(spec)
    flow.apply(expect=0)
    assert sqlite_rows(tmp_path / "target.db", "SELECT id, note FROM copy") == [(1, "changed"), (2, "b")]
    names = {entry["Key"] for entry in s3_server.client().list_objects_v2(Bucket=s3_bucket)["Contents"]}
    assert not [name for name in names if "/buffer/" in name], "the buffer is emptied at the end of a run"
    texts = [s3_server.client().get_object(Bucket=s3_bucket, Key=name)["Body"].read() for name in names]
    assert not [text for text in texts if s3_server.secret_key.encode() in text]
