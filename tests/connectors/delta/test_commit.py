"""Commits that flowctl writes itself: what they are worked out from, and who else commits meanwhile.

The suites of targets run on them with ``FLOWCTL_TEST_SPARK=sail``; here any engine writes the files.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from flowctl.connectors.delta import actions, commit
from flowctl.connectors.delta.actions import may_match, with_columns
from flowctl.connectors.delta.file_writer import FileWriter
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import read_live_files
from flowctl.connectors.delta.record import keep_copy, newest_record
from flowctl.connectors.delta.table import open_existing, open_table
from flowctl.connectors.delta.types import Action, columns_of, schema_json
from flowctl.connectors.lake.conditions import ALWAYS
from flowctl.connectors.lake.record import Record, app_id
from flowctl.connectors.target import WriteJob
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from tests.connectors.delta import delta_tables
from tests.connectors.target_matrix import delta
from tests.connectors.writing import COLUMNS, LINEAGE, TABLE, Writer, row, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long_on_spark

APP = app_id(LINEAGE, TABLE)


class Hand:
    """Writes as ``Writer`` does, through :class:`FileWriter` whatever the engine is, with the engine's own files."""

    def __init__(self, writer: Writer, scratch: Buffer, is_counted: bool) -> None:
        self.writer, self.scratch, self.is_counted = writer, scratch, is_counted
        self.location = delta_tables.location(writer)

    def write(self, rows, seq, mode="append", /, **fields):
        job: WriteJob = self.writer.job(seq, mode, rows=len(rows) if self.is_counted else None, **fields)
        own = FileWriter(self.writer.spark, self.scratch)
        table = own.prepare(self.location, open_table(self.location), job)
        job = replace(job, record=replace(job.record, target_id=table.identity))
        return own.put(table, Record(job.record), self.writer.batch(rows, job.columns), job)

    def rows(self) -> list[tuple]:
        return sorted(self.writer.place.read(["id", "name"]))

    def foreign_commit(self, **action: object) -> None:
        """Somebody else's commit, as the next version."""
        info = actions.commit_info("", "WRITE", {"mode": "Append"}, actions.EMPTY)
        version = DeltaTable(self.location.url).version() + 1
        assert commit.publish(self.location, version, [info, *([dict(action)] if action else [])])


@pytest.fixture(params=["counted", "in memory", pytest.param("uncounted", marks=pytest.mark.full)])
def hand(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Hand]:
    """Nobody looks for rows by himself whose number he does not know: the engine does, or writes files anew."""
    with delta(request, tmp_path, scratch) as place:
        writer = Writer(spark, place, in_memory=request.param == "in memory")
        yield Hand(writer, scratch, is_counted=request.param != "uncounted")


def test_the_number_is_deltas_own_and_spark_goes_on_from_it(hand: Hand) -> None:
    done = hand.write([row(1)], 1)
    assert DeltaTable(hand.location.url).transaction_version(APP) == 1
    assert (done.seq, done.commit.counts.read) == (1, 1)
    assert hand.writer.committed().seq == 1
    hand.writer.write([row(2)], 2)  # the engine's own writer
    hand.write([row(3)], 3)
    assert hand.rows() == [(1, "a"), (2, "a"), (3, "a")]


def test_an_append_takes_the_next_version_when_somebody_else_has_committed(hand: Hand) -> None:
    hand.write([row(1)], 1)
    hand.write([row(2)], 2, before_commit=hand.foreign_commit)
    assert hand.rows() == [(1, "a"), (2, "a")]
    assert DeltaTable(hand.location.url).version() == 3


@pytest.mark.parametrize("mode", ["truncate", "merge"])
def test_what_replaces_files_is_worked_out_anew_when_somebody_else_has_committed(hand: Hand, mode: str) -> None:
    hand.write(upserts(row(1)) if mode == "merge" else [row(1)], 1, mode)
    with pytest.raises(TransientError, match="same moment"):
        hand.write(upserts(row(1, "b")) if mode == "merge" else [row(2)], 2, mode, before_commit=hand.foreign_commit)
    assert hand.rows() == [(1, "a")]


@pytest.mark.parametrize("mode", ["append", "truncate", "merge"])
def test_a_stale_writer_of_the_same_number_that_lands_first_is_the_only_one(hand: Hand, mode: str) -> None:
    batch = upserts if mode == "merge" else lambda *rows: list(rows)
    hand.write(batch(row(1)), 1, mode)
    hand.write(batch(row(2)), 2, mode, before_commit=lambda: hand.write(batch(row(2)), 2, mode) and None)
    assert hand.rows() == ([(2, "a")] if mode == "truncate" else [(1, "a"), (2, "a")])
    assert hand.writer.committed().seq == 2


def test_a_changed_schema_is_never_appended_to_blindly(hand: Hand) -> None:
    hand.write([row(1)], 1)
    metadata = open_existing(hand.location).metadata
    wider = with_columns(metadata, [*COLUMNS, Column("theirs", types.STRING)], replaces=False)
    with pytest.raises(TransientError, match="same moment"):
        hand.write([row(2)], 2, before_commit=lambda: hand.foreign_commit(metaData=wider))
    hand.write([row(2)], 2)
    assert hand.rows() == [(1, "a"), (2, "a")]


def test_a_merge_leaves_columns_of_others_and_files_without_a_change_alone(hand: Hand) -> None:
    for seq in (1, 2):
        hand.write(upserts(row(seq * 10), row(seq * 10 + 1)), seq, "merge")
    metadata = open_existing(hand.location).metadata
    hand.foreign_commit(metaData=with_columns(metadata, [*COLUMNS, Column("theirs", types.STRING)], replaces=False))
    theirs = (*COLUMNS, Column("theirs", types.STRING))
    hand.write(upserts({**row(10), "theirs": "kept"}), 3, "merge", columns=theirs)
    before = {_identity(file) for file in _files(hand.location)}
    hand.write(upserts(row(10, "new"), row(12)), 4, "merge")
    after = {_identity(file) for file in _files(hand.location)}
    assert len(before & after) == len(before) - 1, "only the file with key 10 is another one"
    assert sorted(hand.writer.place.read(["id", "name", "theirs"])) == [
        (10, "new", "kept"), (11, "a", None), (12, "a", None), (20, "a", None), (21, "a", None)
    ]  # fmt: skip


def test_rows_hidden_by_deletion_vectors_stay_hidden(hand: Hand) -> None:
    hand.writer.write(upserts(*(row(id) for id in range(50))), 1, "merge")
    hand.writer.write(upserts(row(0, "b")), 2, "merge")  # hides one row and adds a file
    assert any("deletionVector" in file for file in _files(hand.location))
    hand.write(upserts(row(1, "c")), 3, "merge")
    assert hand.rows() == sorted([(0, "b"), (1, "c"), *((id, "a") for id in range(2, 50))])


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout(), id="plain"),
        pytest.param(
            Layout(partition_by=("name",)), id="partitioned", marks=pytest.mark.needs("partitions by flowctl")
        ),
    ],
)
def test_partitions_and_keys_that_move_between_them(hand: Hand, layout: Layout) -> None:
    hand.write(upserts(row(1, "a"), row(2, "ä b/c"), row(3, None)), 1, "merge", layout=layout)
    hand.write(upserts(row(1, "ä b/c"), row(3, "a")), 2, "merge", layout=layout)
    assert hand.rows() == [(1, "ä b/c"), (2, "ä b/c"), (3, "a")]


def test_every_tenth_version_is_a_checkpoint_that_keeps_the_number(hand: Hand) -> None:
    for seq in range(1, 12):
        hand.write([row(seq)], seq)
    log_folder = Path(hand.location.url, "_delta_log")
    assert json.loads((log_folder / "_last_checkpoint").read_text())["version"] == 10
    for entry in log_folder.glob("0*.json"):
        if int(entry.stem) < 10:
            entry.unlink()
    assert hand.writer.committed().seq == 11
    assert len(_files(hand.location)) == len(DeltaTable(hand.location.url).file_uris())
    hand.write([row(12)], 12)
    assert len(hand.rows()) == 12


def test_a_checkpoint_takes_expired_entries_out_of_the_log(hand: Hand) -> None:
    for seq in range(1, 10):
        hand.write([row(seq)], seq)
    log_folder, long_ago = Path(hand.location.url, "_delta_log"), time.time() - 90 * 86_400
    for entry in log_folder.iterdir():
        os.utime(entry, (long_ago, long_ago))
    hand.write([row(10)], 10)
    assert not (log_folder / f"{3:020}.json").exists()
    assert [id for id, _ in hand.rows()] == list(range(1, 11))
    assert hand.writer.committed().seq == 10


def test_the_newest_record_is_found_as_the_newest_commit_behind_others_and_as_a_copy(tmp_path: Path) -> None:
    path, location = tmp_path / "t", TableLocation(str(tmp_path / "t"), {})
    record = Record(Commit(LINEAGE, TABLE, 1, "intent", "id", None))
    number = CommitProperties({"userMetadata": record.text}, app_transactions=[Transaction(APP, 1)])
    write_deltalake(path, pa.table({"id": [1]}), commit_properties=number)
    newest = newest_record(location, DeltaTable(path), APP)
    assert newest == record.logged(version=0, counts=newest.commit.counts)
    assert newest_record(location, DeltaTable(path), app_id(LINEAGE, "another")) is None

    write_deltalake(path, pa.table({"id": [2]}), mode="append")
    assert newest_record(location, DeltaTable(path), APP) == newest

    keep_copy(location, newest)
    DeltaTable(path).create_checkpoint()
    for entry in (path / "_delta_log").glob("0*.json"):
        entry.unlink()
    kept = newest_record(location, DeltaTable(path), APP)
    assert kept == record.logged(version=0)


def test_a_log_is_replayed_from_its_checkpoint(tmp_path: Path) -> None:
    for number in range(15):
        rows = pa.table({"id": [number], "part": [f"p {number % 2}"]})
        mode = "overwrite" if number == 4 else "append"
        write_deltalake(tmp_path / "t", rows, mode=mode, partition_by=["part"])
        if number == 11:
            DeltaTable(tmp_path / "t").create_checkpoint()
    table = DeltaTable(tmp_path / "t")
    found = open_existing(TableLocation(str(tmp_path / "t"), {}))
    assert len(found.files) == len(table.file_uris()) == 11
    assert {file["partitionValues"]["part"] for file in found.files} == {"p 0", "p 1"}
    assert [column.name for column in columns_of(found.metadata["schemaString"])] == ["id", "part"]


def test_a_log_with_a_hole_is_refused(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append")
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(TableError, match="version 1 is missing"):
        read_live_files(TableLocation(str(tmp_path / "t"), {}), 2)


def test_which_files_a_batch_touches() -> None:
    def file(low: object, high: object) -> dict:
        return {"path": f"{low}", "stats": json.dumps({"minValues": {"id": low}, "maxValues": {"id": high}})}

    files = [file(1, 10), file(11, 20), {"path": "without statistics"}]

    def within(low: int, high: int) -> list[str]:
        condition = [[("id", ">=", low), ("id", "<=", high)]]
        return [file["path"] for file in files if may_match(condition, file)]

    assert within(5, 7) == ["1", "without statistics"]
    assert within(10, 11) == ["1", "11", "without statistics"]
    assert all(may_match(ALWAYS, file) for file in files)


@pytest.mark.parametrize(
    ("low", "high", "value", "may"),
    [
        ("2024-01-01", "2024-02-01", dt.date(2024, 1, 31), True),
        ("2024-01-01", "2024-02-01", dt.date(2024, 3, 1), False),
        ("+10000-01-01", "+10001-01-01", dt.date(2024, 3, 1), True),
        (0.1, 12345678901234567890.12, Decimal("0.09"), False),
        (0.1, 0.3, Decimal("0.30"), True),
    ],
)
def test_dates_and_decimals_are_compared_exactly(low: object, high: object, value: object, may: bool) -> None:
    file = {"stats": json.dumps({"minValues": {"v": low}, "maxValues": {"v": high}})}
    assert may_match([[("v", ">=", value), ("v", "<=", value)]], file) is may


def test_columns_are_added_relaxed_and_retyped_only_with_the_content() -> None:
    schema = json.loads(schema_json((Column("id", types.INT32),)))
    schema["fields"][0]["nullable"] = False
    metadata = {"id": "x", "schemaString": json.dumps(schema), "configuration": {}}
    same = with_columns({**metadata, "schemaString": schema_json((Column("id", types.INT32),))}, [], replaces=False)
    assert json.loads(same["schemaString"])["fields"][0]["nullable"] is True
    more = with_columns(metadata, [Column("id", types.INT32), Column("n", types.STRING)], replaces=False)
    assert [(field["name"], field["nullable"]) for field in json.loads(more["schemaString"])["fields"]] == [
        ("id", True),
        ("n", True),
    ]
    with pytest.raises(TableError, match="cannot become bigint"):
        with_columns(metadata, [Column("id", types.INT64)], replaces=False)
    wide = with_columns(metadata, [Column("id", types.INT64)], replaces=True)
    assert columns_of(wide["schemaString"])[0].type == types.INT64


def _identity(file: Action) -> str:
    return f"{file['path']} {file.get('deletionVector')}"


def _files(location: TableLocation) -> tuple[Action, ...]:
    return open_existing(location).files


def test_a_log_without_an_entry_is_no_table_yet(tmp_path: Path) -> None:
    """Whoever was to write the first entry was killed, had no space, or is about to."""
    location = TableLocation(str(tmp_path / "t"), {})
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / ".00000000000000000000.json.0a1b").touch()
    assert open_table(location) is None
    (tmp_path / "t" / "part-0.parquet").touch()
    with pytest.raises(TableError, match="holds files that are not a Delta table"):
        open_table(location)


def test_a_file_in_place_of_a_folder_is_an_error_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with pytest.raises(TableError, match="a file where one of its folders should be"):
        open_table(TableLocation(str(tmp_path / "lake" / "t"), {}))
