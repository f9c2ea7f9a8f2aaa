"""A table that is written as files: what a reader who follows the manifest sees, whatever happens to a writer."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.files import refuse_name
from flowctl.connectors.files.sink import folder as folders
from flowctl.connectors.files.sink.folder import TableFolder
from flowctl.connectors.files.sink.manifest import Manifest
from flowctl.errors import StateConflict, StoppedByPolicy, TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.files_layout import COMPRESSIONS, FilesLayout
from tests.connectors.files.written import COLUMNS, Table
from tests.services.s3 import S3Server


@pytest.fixture(params=["disk", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    if request.param == "disk":
        return Table(str(tmp_path / "files"))
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = request.getfixturevalue("s3_bucket")
    return Table(f"s3://{bucket}/files", {f"s3://{bucket}": dict(server.storage())})


def test_a_bucket_that_does_not_exist_is_named_with_the_next_step(s3_server: S3Server) -> None:
    table = Table("s3://no-such-bucket/files", {"s3://no-such-bucket": dict(s3_server.storage())})
    with pytest.raises(TableError, match="there is no bucket no-such-bucket") as caught:
        table.write([row(1)], 1)
    assert caught.value.hint == "Create it, or correct the URL"


#: On S3, in the long matrices only.
S3_IN_FULL = pytest.mark.parametrize("table", ["disk", pytest.param("s3", marks=pytest.mark.full)], indirect=True)


def row(id: int, note: str | None = "a") -> dict[str, Any]:
    return {"id": id, "note": note}


def ids(table: Table) -> list[int]:
    return [int(found[0]) for found in table.rows()]


@pytest.mark.parametrize("layout", [
    FilesLayout(format, compression) for format, able in COMPRESSIONS.items() for compression in able
], ids=lambda layout: f"{layout.format}-{layout.compression}")  # fmt: skip
def test_each_format_and_compression_is_read_by_others(layout: FilesLayout, tmp_path: Path) -> None:
    table = Table(str(tmp_path), layout=layout)
    table.write([row(1, 'a, "quoted"\nline'), row(2, "é 😀")], 1)
    table.write([row(3, "")], 2)
    text = layout.format == "csv"
    assert table.rows() == [
        (str(id) if text else id, note) for id, note in ((1, 'a, "quoted"\nline'), (2, "é 😀"), (3, ""))
    ]
    table.write([row(4)], 3, "truncate")
    assert ids(table) == [4]


def test_commits_are_read_back_with_their_records(table: Table) -> None:
    table.write([row(1), row(2)], 1)
    commit = table.write([row(3)], 2)
    assert ids(table) == [1, 2, 3]
    assert (commit.counts.read, commit.counts.inserted, commit.counts.deleted) == (1, 1, None)
    assert table.committed().record() == commit.record()
    assert [(one.name, one.type) for one in table.info().columns] == [(one.name, one.type) for one in COLUMNS]
    assert (table.info().rows.value, table.info().rows.method) == (3, "count")
    assert table.write([row(9)], 2).record() == commit.record()  # changes nothing
    assert ids(table) == [1, 2, 3]
    assert len(table.data_files()) == 2


def test_truncate_replaces_the_files_and_removes_the_old_ones_after_its_commit(table: Table) -> None:
    table.write([row(1), row(2)], 1, "truncate")
    seen: list[list[int]] = []
    commit = table.write([row(3)], 2, "truncate", before_commit=lambda: seen.append(ids(table)))
    assert (seen, ids(table)) == ([[1, 2]], [3])
    assert (commit.counts.inserted, commit.counts.deleted) == (1, 2)
    assert table.data_files() == [file["path"] for file in table.manifest()["files"]]
    table.write([], 3, "truncate")
    assert (ids(table), table.data_files()) == ([], [])


def test_what_an_attempt_has_left_is_removed_by_the_commit_of_its_number(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published, but not in a manifest: as a process leaves it that is killed right before its commit."""
    table.write([row(1)], 1)
    with monkeypatch.context() as broken:
        broken.setattr(TableFolder, "create", _unanswered)
        with pytest.raises(TransientError):
            table.write([row(2)], 2)
    assert len(table.data_files()) == 2
    assert ids(table) == [1]
    assert table.committed().seq == 1
    table.write([row(2)], 2)
    assert ids(table) == [1, 2]
    assert len(table.data_files()) == 2


def test_what_an_attempt_has_left_is_removed_after_a_week_if_its_number_is_never_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the state was lost: the new one has numbers of its own."""
    table, anew = Table(str(tmp_path)), Table(str(tmp_path), lineage="lineage-2")
    table.write([row(1)], 1)
    with monkeypatch.context() as broken:
        broken.setattr(TableFolder, "create", _unanswered)
        with pytest.raises(TransientError):
            table.write([row(2)], 2)
    anew.write([row(3)], 1)
    assert len(table.data_files()) == 3
    long_ago = time.time() - 8 * 86400
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (long_ago, long_ago))
    anew.write([row(4)], 2)
    assert ids(table) == [1, 3, 4]
    assert table.data_files() == sorted(file["path"] for file in table.manifest()["files"])


def test_a_commit_whose_answer_was_lost_is_not_made_twice(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.write([row(1)], 1)
    create = TableFolder.create

    def lost(folder: TableFolder, manifest: Manifest) -> bool:
        create(folder, manifest)
        return _unanswered(folder, manifest)

    with monkeypatch.context() as broken:
        broken.setattr(TableFolder, "create", lost)
        with pytest.raises(TransientError):
            table.write([row(2)], 2)
    assert table.committed().seq == 2
    assert table.write([row(2)], 2).seq == 2
    assert ids(table) == [1, 2]
    assert len(table.data_files()) == 2


def _unanswered(_folder: TableFolder, _manifest: Manifest) -> bool:
    raise TransientError("no answer", hint="Run again")


@S3_IN_FULL
def test_a_failed_write_leaves_no_file(table: Table) -> None:
    table.write([row(1)], 1)
    with pytest.raises(TableError, match="expected"):
        table.write([row(2)], 2, counted=7)
    assert len(table.data_files()) == 1
    assert table.names("_flowctl/unfinished") == []


@S3_IN_FULL
def test_racing_writers_lose_nothing(table: Table) -> None:
    """Tables of several flows in one folder, once it exists."""
    table.write([row(0)], 1)
    writers = [replace(table, lineage=f"lineage-{number}") for number in range(2, 8)]
    errors: list[BaseException] = []

    def append(number: int, writer: Table) -> None:
        try:
            for seq in (1, 2, 3):
                writer.write([row(10 * number + seq)], seq)
        except BaseException as error:  # noqa: BLE001 - any error fails the test
            errors.append(error)

    threads = [threading.Thread(target=append, args=one) for one in enumerate(writers, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ids(table) == [0, *(10 * number + seq for number in range(1, 7) for seq in (1, 2, 3))]
    assert len(table.data_files()) == 19


def test_manifests_are_kept_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that stands on one which is gone would create a version that no reader looks at, and notices."""
    monkeypatch.setattr(folders, "_KEPT", 2)
    table, standing = Table(str(tmp_path)), []
    newest = TableFolder.newest
    for seq in (1, 2, 3, 4, 5, 6):
        table.write([row(seq)], seq)
        if seq == 2:
            standing.append(newest(table.target._folder(ObjectName(("sales/orders",)))))
    assert [int(name[-25:-5]) for name in table.names("_flowctl/commits")] == [5, 6]

    def stale(folder: TableFolder) -> Manifest:
        return standing.pop() if standing else newest(folder)

    job = table.job(3)
    monkeypatch.setattr(TableFolder, "newest", stale)
    with pytest.raises(StateConflict):
        table.target._commit(replace(job, record=replace(job.record, intent_id="another")), None)
    assert ids(table) == [1, 2, 3, 4, 5, 6]


def test_large_batches_become_several_files(tmp_path: Path) -> None:
    for format in ("parquet", "csv"):
        table = Table(str(tmp_path / format), layout=FilesLayout(format, "none", file_bytes=1 << 20))  # type: ignore[arg-type]
        rows = [row(number, f"{number:0100}" * 10) for number in range(8_000)]
        table.write(rows, 1)
        assert sorted(ids(table)) == [one["id"] for one in rows]
        assert len(table.data_files()) > 1, format


def test_csv_tells_null_from_empty_text_and_keeps_every_number(tmp_path: Path) -> None:
    columns = (
        Column("note", types.STRING),
        Column("ratio", types.DOUBLE),
        Column("amount", types.Decimal(12, 2)),
        Column("data", types.BINARY),
        Column("at", types.TIMESTAMP),
        Column("gone", types.BOOL),
    )
    layout = FilesLayout("csv", delimiter=";", null_value="\\N")
    table = Table(str(tmp_path), layout=layout, columns=columns)
    table.write([{"note": "", "ratio": float("-inf"), "data": b"\xff"}, {"ratio": 5e-324, "gone": True}], 1)
    assert table.contents() == [
        b'"note";"ratio";"amount";"data";"at";"gone"\n"";-Infinity;\\N;"/w==";\\N;\\N\n\\N;5e-324;\\N;\\N;\\N;true\n'
    ]
    with pytest.raises(TableError, match="column note holds the text"):
        table.write([{"note": "\\N"}], 2)
    assert len(table.data_files()) == 1


@pytest.mark.parametrize("header", [True, False])
def test_a_null_of_the_only_column_is_a_row(tmp_path: Path, header: bool) -> None:
    columns = (Column("n", types.INT32),)
    table = Table(str(tmp_path), layout=FilesLayout("csv", header=header, quote="'"), columns=columns)
    table.write([{"n": 1}, {"n": None}], 1)
    assert table.contents() == [b"'n'\n1\n''\n" if header else b"1\n''\n"]
    other = replace(table, layout=FilesLayout("csv", null_value="NULL"), columns=(Column("note", types.STRING),))
    other.write([{"note": ""}, {"note": None}], 2, "truncate")
    assert other.contents() == [b'"note"\n""\nNULL\n']


@pytest.mark.parametrize("kind", [types.STRING, types.BINARY], ids=str)
def test_text_as_the_only_column_needs_a_text_for_null(tmp_path: Path, kind: types.DataType) -> None:
    table = Table(str(tmp_path), layout=FilesLayout("csv"), columns=(Column("note", kind),))
    with pytest.raises(StoppedByPolicy, match="column note is the only one") as refused:
        table.write([], 1)
    assert refused.value.hint.startswith("Set `null_value` in `to.format`")
    replace(table, layout=FilesLayout("csv", null_value="\\N")).write([{"note": None}], 1)


@pytest.mark.parametrize(
    ("layout", "kind", "value"),
    [
        (FilesLayout("csv"), types.Array(types.INT64), [1]),
        (FilesLayout("csv"), types.Struct((("a", types.INT64),)), {"a": 1}),
        (FilesLayout("jsonl"), types.DOUBLE, float("nan")),
        (FilesLayout("orc"), types.DATE, dt.date(1582, 10, 14)),
        (FilesLayout("orc"), types.Array(types.TIMESTAMP_NTZ), [dt.datetime(1582, 10, 14, 23)]),
        (FilesLayout("orc"), types.Array(types.TIMESTAMP), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    ],
)
def test_what_a_format_cannot_hold_is_refused_by_name(
    layout: FilesLayout, kind: types.DataType, value: Any, tmp_path: Path
) -> None:
    table = Table(str(tmp_path), layout=layout, columns=(Column("odd one", kind),))
    with pytest.raises((TableError, StoppedByPolicy), match="odd one") as refused:
        table.write([{"odd one": value}], 1)
    assert refused.value.hint
    assert (table.data_files(), table.names("_flowctl/unfinished"), table.committed()) == ([], [], None)


def test_files_of_one_table_are_alike(tmp_path: Path) -> None:
    table = Table(str(tmp_path))
    table.write([row(1)], 1)
    other = replace(table, layout=FilesLayout("csv"))
    with pytest.raises(StoppedByPolicy, match="has files of type parquet"):
        other.write([row(2)], 2)
    other.write([row(2)], 2, "truncate")
    with pytest.raises(StoppedByPolicy, match="another dialect of CSV"):
        replace(table, layout=FilesLayout("csv", delimiter="|")).write([row(3)], 3)
    assert other.rows() == [("2", "a")]
    replace(other, layout=FilesLayout("csv", "gzip")).write([row(3)], 3)  # its name tells
    assert other.rows() == [("2", "a"), ("3", "a")]


def test_a_new_column_needs_a_header(tmp_path: Path) -> None:
    wider = (*COLUMNS, Column("more", types.INT32))
    for header in (True, False):
        table = Table(str(tmp_path / str(header)), layout=FilesLayout("csv", header=header))
        table.write([row(1)], 1)
        more = replace(table, columns=wider)
        if header:
            more.write([{**row(2), "more": 7}], 2)
            assert more.rows() == [("1", "a"), ("2", "a", "7")]
        else:
            with pytest.raises(StoppedByPolicy, match="without a header"):
                more.write([{**row(2), "more": 7}], 2)


@pytest.mark.parametrize("layout", [
    *(FilesLayout(format) for format in COMPRESSIONS), FilesLayout("csv", header=False, null_value="-"),
], ids=lambda layout: f"{layout.format}-{layout.header}")  # fmt: skip
def test_an_append_keeps_the_columns_that_it_does_not_write(layout: FilesLayout, tmp_path: Path) -> None:
    wider = Table(str(tmp_path), layout=layout, columns=(COLUMNS[0], Column("more", types.INT32), COLUMNS[1]))
    wider.write([{**row(1), "more": 7}], 1)
    columns = wider.manifest()["columns"]
    replace(wider, columns=COLUMNS, lineage="lineage-2").write([row(2, "b")], 1)
    assert wider.manifest()["columns"] == columns
    if layout.format == "csv":
        assert wider.rows() == [("1", "7", "a"), ("2", layout.null_value, "b")]
        header = b'"id","more","note"\n'
        assert [content.startswith(header) for content in wider.contents()] == [layout.header] * 2
    else:
        assert wider.rows() == [(1, 7, "a"), (2, None, "b")]
    replace(wider, columns=COLUMNS).write([row(3)], 2, "truncate")
    assert [column["name"] for column in wider.manifest()["columns"]] == ["id", "note"]


@S3_IN_FULL
def test_a_folder_with_files_of_others_is_left_alone(table: Table) -> None:
    table.put("theirs.parquet", b"PAR1")
    assert table.info() is None
    with pytest.raises(StoppedByPolicy, match=r"holds theirs.parquet, which flowctl has not written"):
        table.write([row(1)], 1)
    assert table.data_files() == ["theirs.parquet"]


@S3_IN_FULL
def test_files_that_came_after_an_intent_are_not_taken_for_its_own(table: Table) -> None:
    """Made by another flow since: the intent was for a table that did not exist."""
    replace(table, lineage="another").write([row(1)], 1)
    job = table.job(1)
    foreign = replace(job, record=replace(job.record, target_id=""))
    with pytest.raises(StoppedByPolicy, match="was not made by this flow"):
        table.write([row(2)], 1, record=foreign.record)
    assert ids(table) == [1]


@S3_IN_FULL
def test_a_void_before_the_first_commit_makes_no_table(table: Table) -> None:
    void = table.target.void(table.job(1))
    assert (void.void, table.info(), table.committed().seq) == (True, None, 1)
    with pytest.raises(StateConflict):
        table.write([row(1)], 1)
    table.write([row(2)], 2)
    assert (ids(table), table.committed().seq) == ([2], 2)


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("sales/orders", False),
        ("sales orders/ü", False),
        ("_hidden", True),
        ("sales/.orders", True),
        ("sales//orders", True),
        ("sales[1]", True),
        ("x" * 256, True),
    ],
)
def test_names_of_folders(name: str, is_refused: bool) -> None:
    assert (refuse_name({}, ObjectName((name,)), "") is not None) == is_refused
