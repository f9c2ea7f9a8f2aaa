"""Files that were read and cannot be opened any more: a store has archived them, say. Others are still read."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowctl.connectors.files import schema
from flowctl.connectors.files.listing import matching
from flowctl.errors import AccessDenied, TableError, TransientError
from flowctl.model import types
from flowctl.model.position import FileStamp
from flowctl.model.table_info import Column
from tests.connectors.files.test_object_store import inbox as inbox_in_store
from tests.connectors.reading import files
from tests.e2e.flows import Flow, sqlite_rows

RECORDED = (Column("id", types.INT64, nullable=False), Column("v", types.STRING))


def write(path: Path, **columns: list[Any]) -> None:
    pq.write_table(pa.table(columns), path)


def damage(path: Path) -> None:
    """As if it could not be opened: root may open all files. Its stamp stays."""
    seen = path.stat()
    path.write_bytes(bytes(seen.st_size))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def read(source: Any, pattern: str = "*.parquet") -> Mapping[str, FileStamp]:
    return {stamp.path: stamp for stamp in matching(source.root, pattern)}


def test_a_file_that_was_read_need_not_be_opened_again(inbox: Path, source: Any) -> None:
    write(inbox / "a.parquet", id=[1], v=["x"])
    known = read(source)
    damage(inbox / "a.parquet")
    info, watermark = source.describe_files(files("*.parquet"), known, RECORDED)
    assert (info.columns, watermark.closed) == (RECORDED, ("a.parquet",))
    assert {*watermark.position.files} == {*known.values()}

    write(inbox / "b.parquet", id=pa.array([2], pa.int32()), w=["y"])
    info, watermark = source.describe_files(files("*.parquet"), known, RECORDED)
    kinds = {column.name: (column.type, column.nullable) for column in info.columns}
    assert kinds == {"id": (types.INT32, True), "v": (types.STRING, True), "w": (types.STRING, True)}
    assert (watermark.closed, info.lacking, info.only_without) == (
        ("a.parquet",),
        {"v": "b.parquet"},
        {"v": ("w",), "w": ("v",)},
    )

    (inbox / "a.parquet").write_bytes(b"")  # changed: it is to be read again, where that is allowed
    with pytest.raises(TableError, match=r"a\.parquet cannot be read as parquet"):
        source.describe_files(files("*.parquet"), known, RECORDED)


def test_without_any_columns_the_first_file_stops_the_plan(inbox: Path, source: Any) -> None:
    write(inbox / "a.parquet", id=[1])
    known = read(source)
    damage(inbox / "a.parquet")
    for of_read, recorded in ((known, ()), ({}, RECORDED)):  # no columns were recorded; a truncate reads all files
        with pytest.raises(TableError, match=r"a\.parquet cannot be read as parquet"):
            source.describe_files(files("*.parquet"), of_read, recorded)


def test_a_file_in_glacier(moto: Any) -> None:
    bucket = f"archive-{os.getpid()}"
    moto.client().create_bucket(Bucket=bucket)
    content = io.BytesIO()
    pq.write_table(pa.table({"id": [1], "v": ["x"]}), content)
    with inbox_in_store(moto, bucket) as (store, source):
        store.pipe_file(f"{bucket}/inbox/a.parquet", content.getvalue())
        known = read(source)
        key = "inbox/a.parquet"
        store.call_s3("put_object", Bucket=bucket, Key=key, Body=content.getvalue(), StorageClass="GLACIER")
        info, watermark = source.describe_files(files("*.parquet"), known, RECORDED)
        with pytest.raises(AccessDenied, match=r"a\.parquet refuses access"):
            source.describe_files(files("*.parquet"), {}, RECORDED)
    assert (info.columns, watermark.closed) == (RECORDED, ("a.parquet",))


def test_a_store_that_does_not_answer_is_an_error(inbox: Path, source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files may have other columns than those that were recorded, so the next run looks again."""
    write(inbox / "a.parquet", id=[1])
    known = read(source)
    damage(inbox / "a.parquet")
    monkeypatch.setattr(schema, "_unreadable", lambda *_: TransientError("cannot be read"))
    with pytest.raises(TransientError):
        source.describe_files(files("*.parquet"), known, RECORDED)


@pytest.mark.full
@pytest.mark.server
@pytest.mark.parametrize("mode", ["append", "merge, key: [id]"])
def test_later_files_are_read_beside_it(tmp_path: Path, mode: str) -> None:
    flow = Flow(tmp_path)
    flow.write(f"""\
version: 1
flow: archive
state: ./state
spark: {{url: sail}}
connections:
  inbox: {{type: files, path: ./inbox}}
  out: {{type: sqlite, path: ./out.db}}
tables:
  orders: {{from: "inbox:*.parquet", to: out, mode: {mode}, columns: {{exclude: [secret], mask: {{v: sha256}}}}}}
""")
    (tmp_path / "inbox").mkdir()
    write(tmp_path / "inbox/a.parquet", id=[1], v=["x"], secret=["x"])
    flow.apply()
    damage(tmp_path / "inbox/a.parquet")
    (step,) = flow.plan()["steps"]
    note = "a.parquet cannot be opened any more; the columns are those of the last run and new files"
    assert (step["action"], step["notes"]) == ("none", [note])
    write(tmp_path / "inbox/b.parquet", id=[2], v=["x"])
    flow.apply()
    rows = sqlite_rows(tmp_path / "out.db", "SELECT id, length(v) FROM orders ORDER BY id")
    assert [tuple(row) for row in rows] == [(1, 64), (2, 64)]
    write(tmp_path / "inbox/c.parquet", id=[3], v2=["unmasked"])
    assert flow.actions() == {"orders": "stop"}
