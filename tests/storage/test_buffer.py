"""The buffer on a disk and in object storage: segments that are there complete or not at all, of any size."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowctl.storage import buffer as buffers
from flowctl.storage.buffer import Buffer
from flowctl.storage.options import spark_url
from tests.conftest import OBJECT_STORES
from tests.storage.stores import StoreAddress, address_on

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.decimal128(38, 10)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
    ]
)


class Broken(Exception):
    pass


@pytest.fixture(params=["disk", *OBJECT_STORES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    if request.param == "disk":
        return StoreAddress(str(tmp_path / "state" / "shop"))
    return address_on(request.getfixturevalue(request.param))


@pytest.fixture
def buffer(place: StoreAddress) -> Buffer:
    return run_buffer(place, "run-2")


def run_buffer(place: StoreAddress, run_id: str) -> Buffer:
    return Buffer(place.url, run_id, place.storage)


def batch(first: int, rows: int, filler: bytes = b"") -> pa.RecordBatch:
    ids = range(first, first + rows)
    return pa.RecordBatch.from_pydict(
        {
            "id": list(ids),
            "amount": [None] * rows,
            "at": [n * 1_000_000 for n in ids],
            "local": list(ids),
            "tags": [["a", str(n)] for n in ids],
            "raw": [filler + str(n).encode() for n in ids],
        },
        schema=SCHEMA,
    )


def test_what_was_written_streams_back_exactly(buffer: Buffer) -> None:
    folder = buffer.folder("orders")
    with folder.sink(SCHEMA) as sink:
        sink.write(batch(0, 3))
        sink.write(batch(3, 2))
    found = pa.Table.from_batches(folder.batches(), SCHEMA)
    assert found.equals(pa.Table.from_batches([batch(0, 5)]))


@pytest.mark.parametrize("name", ["rows-${env:HOME}", "rows-a/b\\\\..\n%2F é", "r" * 300, "rows-a:b", "rows-a.b"])
def test_any_name_of_a_table_may_be_part_of_a_folder(buffer: Buffer, name: str) -> None:
    folders = [buffer.folder(name), buffer.folder(name)]
    for at, folder in enumerate(folders):
        with folder.sink(SCHEMA) as sink:
            sink.write(batch(at, 1))
    ends = [folder.url.rpartition("/")[2] for folder in folders]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,110}", end) for end in ends) and ends[0] != ends[1]
    assert [pa.Table.from_batches(folder.batches()).column("id").to_pylist() for folder in folders] == [[0], [1]]


def test_an_empty_segment_still_has_its_columns(buffer: Buffer) -> None:
    folder = buffer.folder("orders")
    with folder.sink(SCHEMA):
        pass
    assert len(folder.segments()) == 1
    assert sum(found.num_rows for found in folder.batches()) == 0


def test_a_segment_appears_only_when_it_is_whole(buffer: Buffer) -> None:
    folder = buffer.folder("orders")
    with folder.sink(SCHEMA) as sink:
        sink.write(batch(0, 3))
        assert folder.segments() == []
    assert len(folder.segments()) == 1


def test_a_segment_that_failed_never_appears(buffer: Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "ROW_GROUP_BYTES", 2**20)
    folder = buffer.folder("orders")
    with pytest.raises(Broken), folder.sink(SCHEMA) as sink:
        for number in range(12):  # beyond what one part of an S3 upload holds
            sink.write(batch(number, 1, filler=uuid.uuid4().bytes * 2**16))
        raise Broken
    assert folder.segments() == []


def test_memory_is_bounded_by_a_row_group(buffer: Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "ROW_GROUP_BYTES", 2**16)
    folder = buffer.folder("orders")
    with folder.sink(SCHEMA) as sink:
        for number in range(64):
            sink.write(batch(number * 1000, 1000))
            assert sink._bytes < 2**16 + batch(0, 1000).nbytes
    assert sum(found.num_rows for found in folder.batches()) == 64_000


def test_a_name_used_before_is_a_new_folder(buffer: Buffer) -> None:
    first, second = buffer.folder("orders"), buffer.folder("orders")
    assert first.url != second.url
    with first.sink(SCHEMA) as sink:
        sink.write(batch(0, 1))
    assert list(second.batches()) == []


def test_what_spark_has_not_finished_is_left_out(tmp_path: Path) -> None:
    folder = run_buffer(StoreAddress(str(tmp_path)), "run-2").folder("orders")
    path = Path(folder.url.removeprefix("file://"))
    table = pa.Table.from_batches([batch(0, 1)])
    for name in ("part-00000.snappy.parquet", "_temporary/0/part-00001.parquet", ".part-2.parquet", "_SUCCESS"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path / name)
    assert [Path(found).name for found in folder.segments()] == ["part-00000.snappy.parquet"]


def test_urls_are_sparks(place: StoreAddress, buffer: Buffer) -> None:
    url = buffer.folder("orders").url
    assert url == f"{spark_url(place.url, place.storage)}/buffer/run-2/orders"


def test_sweeping_removes_what_other_runs_left(place: StoreAddress) -> None:
    old, new = run_buffer(place, "run-1"), run_buffer(place, "run-2")
    assert new.sweep() == []
    for buffer in (old, new):
        with buffer.folder("orders").sink(SCHEMA) as sink:
            sink.write(batch(0, 1))
    assert new.sweep() == ["run-1"]
    assert len(run_buffer(place, "run-2").folder("orders").segments()) == 1
    assert run_buffer(place, "run-1").folder("orders").segments() == []


def test_a_runs_folders_go_with_it(place: StoreAddress) -> None:
    with run_buffer(place, "run-2") as buffer, buffer.folder("orders").sink(SCHEMA) as sink:
        sink.write(batch(0, 1))
    assert run_buffer(place, "run-2").folder("orders").segments() == []


def test_a_part_is_removed_before_the_rest(buffer: Buffer) -> None:
    def written(where: Buffer) -> buffers.BufferFolder:
        folder = where.folder("orders")
        with folder.sink(SCHEMA) as sink:
            sink.write(batch(0, 3))
        return folder

    kept = written(buffer)
    with buffer.part() as one, buffer.part() as two:
        inner = [written(one), written(two)]
        assert [folder.rows() for folder in inner] == [3, 3]
        assert all(0 < folder.bytes() < 10_000 for folder in inner)
        assert len({kept.url, *(folder.url for folder in inner)}) == 3
    assert [len(folder.segments()) for folder in (kept, *inner)] == [1, 0, 0]
