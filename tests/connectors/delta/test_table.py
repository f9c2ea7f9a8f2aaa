"""What a commit stands on is asked of one opened version: others that commit in between are seen, never overlooked."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from flowctl.connectors.delta import log
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.lake.record import app_id
from flowctl.errors import StateConflict, TableError, TransientError
from flowctl.model.mode import Mode
from flowctl.spec.spec import Layout
from tests.connectors.delta import delta_tables
from tests.connectors.writing import COLUMNS, LINEAGE, TABLE, Row, Writer, row, upserts

APP = app_id(LINEAGE, TABLE)
PLAIN, PARTITIONED, CLUSTERED = Layout(), Layout(partition_by=("name",)), Layout(cluster_by=("id",))


def create(writer: Writer, layout: Layout) -> list[str]:
    return writer.place.target.create_statements(writer.place.object, list(COLUMNS), layout)


def theirs(writer: Writer, *ids: int, name: str = "theirs") -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids)})
    partitioned = open_existing(delta_tables.location(writer)).partition_by
    if partitioned:
        delta_tables.foreign_rows(delta_tables.location(writer), rows.drop_columns(["name"]), name=name)
    else:
        delta_tables.foreign_rows(delta_tables.location(writer), rows)


def until_it_lands(writer: Writer, rows: list[Row], seq: int, mode: Mode, **fields: object) -> None:
    """As a run does it: again after a conflict."""
    try:
        writer.write(rows, seq, mode, **fields)
    except TransientError:
        fields.pop("before_commit")
        writer.write(rows, seq, mode, **fields)


def once(work: object) -> object:
    """``work`` at the first call only."""
    calls = iter([work])
    return lambda: next(calls, lambda: None)()


@pytest.mark.long_on_spark
@pytest.mark.parametrize("mode", ["append", pytest.param("truncate", marks=pytest.mark.full), "merge"])
def test_a_void_is_decided_on_the_version_that_it_is_written_over(writer: Writer, mode: Mode) -> None:
    """The stale writer lands after the void has asked for the number: then the number is its, and no void."""
    batch = upserts if mode == "merge" else lambda *rows: list(rows)
    writer.write(batch(row(1)), 1, mode)
    commit = writer.void(2, before_commit=once(lambda: writer.write(batch(row(2)), 2, mode)))
    assert not commit.void
    assert not writer.committed().void
    assert sorted(id for (id,) in writer.place.read(["id"])) == ([2] if mode == "truncate" else [1, 2])


@pytest.mark.parametrize("mode", ["append", pytest.param("truncate", marks=pytest.mark.full), "merge"])
@pytest.mark.parametrize(
    "layout",
    [pytest.param(PLAIN, id="plain", marks=pytest.mark.long_on_spark), pytest.param(PARTITIONED, id="partitioned")],
)
def test_a_write_whose_number_was_given_up_meanwhile_says_so(writer: Writer, mode: Mode, layout: Layout) -> None:
    batch = upserts if mode == "merge" else lambda *rows: list(rows)
    writer.write(batch(row(1)), 1, mode, layout=layout, create=create(writer, layout))
    with pytest.raises(StateConflict, match="given up"):
        writer.write(batch(row(2)), 2, mode, layout=layout, before_commit=once(lambda: writer.void(2)))
    assert writer.place.read(["id"]) == [(1,)]


@pytest.mark.long_on_spark
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(PARTITIONED, id="partitioned", marks=pytest.mark.full),
        pytest.param(CLUSTERED, id="clustered", marks=[pytest.mark.needs("clustering"), pytest.mark.full]),
    ],
)
@pytest.mark.parametrize("mode", ["truncate", "merge"])
def test_that_a_table_is_empty_holds_for_one_version(writer: Writer, mode: Mode, layout: Layout) -> None:
    batch = upserts if mode == "merge" else lambda *rows: list(rows)
    statements = create(writer, layout)
    writer.write([], 1, layout=layout, create=statements)
    fields = {"layout": layout, "before_commit": once(lambda: theirs(writer, 1, 7))}
    until_it_lands(writer, batch(row(1), row(2)), 2, mode, **fields)
    found = sorted(writer.place.read(["id", "name"]))
    assert found == [(1, "a"), (2, "a"), *([(7, "theirs")] if mode == "merge" else [])]


def test_a_new_table_without_deletion_vectors_takes_its_first_merge_at_once(writer: Writer) -> None:
    """Nobody else wrote: nothing is to be tried again."""
    layout = Layout(deletion_vectors=False)
    writer.write(upserts(row(1)), 1, "merge", layout=layout, create=create(writer, layout), rows=1)
    assert writer.place.read(["id"]) == [(1,)]


@pytest.mark.long_on_spark
def test_a_failed_checkpoint_is_a_warning(writer: Writer) -> None:
    for seq in range(1, 10):
        writer.write([row(seq)], seq)
    # A folder of that name: whoever writes the checkpoint cannot.
    in_the_way = Path(delta_tables.location(writer).url, "_delta_log", f"{10:020}.checkpoint.parquet")
    (in_the_way / "x").mkdir(parents=True)
    commit = writer.write([row(10)], 10)
    assert commit.seq == 10
    if commit.version == 10:
        assert any("no checkpoint at version 10" in warning for warning in commit.warnings)
    in_the_way.joinpath("x").rmdir()
    in_the_way.rmdir()
    assert writer.committed().seq == 10


@pytest.mark.long_on_spark
def test_a_copy_of_the_record_that_cannot_be_kept_is_a_warning(writer: Writer) -> None:
    writer.write([row(1)], 1)
    kept = Path(delta_tables.location(writer).url, "_flowctl", "commits")
    for copy in kept.iterdir():
        copy.unlink()
    kept.rmdir()
    kept.write_text("in the way")
    commit = writer.write([row(2)], 2)
    assert (commit.seq, len(commit.warnings)) == (2, 1)
    assert writer.void(3).warnings


@pytest.mark.needs("clustering")
@pytest.mark.long_on_spark
def test_a_void_makes_the_table_as_the_plan_would(writer: Writer) -> None:
    writer.void(1, layout=CLUSTERED, columns=COLUMNS)
    for seq in (2, 3):
        writer.write(upserts(row(seq)), seq, "merge", layout=CLUSTERED, create=create(writer, CLUSTERED))
    location = delta_tables.location(writer)
    (described,) = writer.spark.sql(f"DESCRIBE DETAIL {location.identifier}").collect()
    assert described["clusteringColumns"] == ["id"]
    writer.spark.sql(f"OPTIMIZE {location.identifier}").collect()
    assert sorted(id for (id,) in writer.place.read(["id"])) == [2, 3]


def test_what_asks_more_of_writers_is_seen_by_the_commit(writer: Writer) -> None:
    """Features that the table gets once it was prepared."""
    writer.write([row(1)], 1)
    location = delta_tables.location(writer)
    protocol = open_existing(location).protocol
    more = {**protocol, "writerFeatures": [*protocol["writerFeatures"], "rowTracking", "domainMetadata"]}
    change = once(lambda: delta_tables.foreign_commit(location, {"protocol": more}))
    with pytest.raises((TransientError, TableError)):
        writer.write([row(2)], 2, before_commit=change)
    assert [id for (id,) in writer.place.read(["id"])] == [1]


def test_the_log_is_walked_back_from_the_version_that_was_opened(writer: Writer) -> None:
    """What was committed since must not be counted as an earlier commit."""
    writer.write([row(1)], 1)
    location = delta_tables.location(writer)
    delta_tables.foreign_commit(location)
    opened = open_existing(location)
    for _ in range(3):
        delta_tables.foreign_commit(location)
    found = opened.newest(APP)
    assert found is not None
    info = log.commit_info(log.read_entry(location, found.commit.version))
    assert '"seq": 1' in info["userMetadata"]


def test_entries_of_the_log_survive_a_power_cut(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """State says that a number is committed, durably: so must the commit be."""
    writer.write([row(1)], 1)
    synced: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    writer.write([row(2)], 2, in_memory=True)
    url = delta_tables.location(writer).url
    assert any(name.startswith(f"{url}/_delta_log/.{2:020}.json") for name in synced)
    assert f"{url}/_delta_log" in synced
    assert any(name.startswith(f"{url}/part-") for name in synced)
