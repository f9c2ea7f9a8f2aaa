"""Maintenance of Delta tables: other files, the same rows, for every reader, engine and kind of table."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from flowctl.connectors.delta import maintenance, spark_commit, vacuum
from flowctl.connectors.delta import target as target_module
from flowctl.connectors.delta.choice import Choice, Way
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.connectors.target import CommitLookup
from flowctl.engine.session import has_jvm
from flowctl.errors import TableError, TransientError
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from tests.connectors.delta import delta_tables
from tests.connectors.delta.test_readers import COSTS, KINDS, READERS, WITH, WITHOUT, of_every_kind, rows_of, statements
from tests.connectors.reading import describe
from tests.connectors.target_matrix import delta
from tests.connectors.writing import COLUMNS, LINEAGE, TABLE, Writer, gone, row, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.long_on_spark


@pytest.fixture(autouse=True)
def everything_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "MANY", 0)
    monkeypatch.setattr(maintenance, "MANY_HIDDEN", 0)
    monkeypatch.setattr(maintenance, "HIDDEN_SHARE", 0)
    monkeypatch.setattr(maintenance, "LONG_LOG", 0)


def due(writer: Writer) -> Maintenance:
    engine = "local[2]" if has_jvm(writer.spark) else "sail"
    return writer.place.target.maintenance([writer.place.object], engine)[writer.place.object]


def maintain(writer: Writer) -> dict[str, Task]:
    return {task.name: task for task in writer.place.target.maintain(due(writer), lambda: writer.spark, lambda: None)}


def grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on all that vacuum finds is eight days old."""
    monkeypatch.setattr(vacuum, "time", lambda: time.time() + 8 * 86400)


def fill(writer: Writer, layout: Layout = WITH) -> None:
    """Thirty rows in three files; then one row is changed, and one is gone."""
    for seq in range(1, 4):
        create = statements(writer, COLUMNS, layout) if seq == 1 else ()
        rows = upserts(*(row(id) for id in range(10 * seq, 10 * seq + 10)))
        writer.write(rows, seq, "merge", layout=layout, rows=len(rows), create=create)
    writer.write([*upserts(row(10, "changed")), gone(11)], 4, "merge", layout=layout, rows=2)


FILLED = {**{id: "a" for id in range(10, 40) if id != 11}, 10: "changed"}


@of_every_kind
def test_every_kind_of_table_keeps_its_rows_and_its_commit(
    kind: str,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    scratch: Buffer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = KINDS[kind]
    with delta(request, tmp_path, scratch) as place:
        writer = Writer(spark, replace(place, object=ObjectName((of.name,))))
        of.make(writer)
        target, object = place.target, writer.place.object
        info = describe(target, object)
        path, committed = delta_tables.location(writer).url, writer.committed()
        before = rows_of(target.scan(spark, object, info.columns).toArrow())
        files = delta_tables.files(writer)
        partitions = {str(file["partitionValues"]) for file in files}
        untidy = len(files) > len(partitions) or any("deletionVector" in file for file in files)
        assert ("compact" in maintain(writer)) == untidy
        grow_old(monkeypatch)
        maintain(writer)
        assert rows_of(target.scan(spark, object, info.columns).toArrow()) == before
        assert writer.committed() == committed
        for name, read in READERS.items():
            if (kind, name) not in COSTS:
                assert rows_of(read(path)) == before, name
        files = delta_tables.files(writer)
        assert len(files) == len({str(file["partitionValues"]) for file in files})
        assert not any("deletionVector" in file for file in files)
        assert stored(path) == {unquote(file["path"]) for file in files}
        assert due(writer).tasks == ()


def stored(path: str) -> set[str]:
    """Files in the table's folder, without Hadoop's checksums."""
    names = (str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file())
    return {name for name in names if not name.startswith("_") and not name.endswith(".crc")}


@pytest.mark.parametrize("layout", [WITH, WITHOUT], ids=["deletion vectors", "without"])
def test_a_merge_continues_where_compaction_was(writer: Writer, layout: Layout) -> None:
    fill(writer, layout)
    maintain(writer)
    writer.write([*upserts(row(10, "again"), row(50)), gone(12)], 5, "merge", layout=layout, rows=3)
    expected = {**FILLED, 10: "again", 50: "a"}
    del expected[12]
    assert delta_tables.content(writer) == expected
    maintain(writer)
    assert delta_tables.content(writer) == expected
    committed = writer.committed()
    assert committed is not None and committed.seq == 5


def test_a_merge_over_an_older_version_conflicts_with_a_compaction(writer: Writer) -> None:
    """The stale writer has computed its rows before, and commits afterwards."""
    fill(writer)

    def compact() -> None:
        assert maintain(writer)["compact"].figures["files_after"] == 1

    change = [*upserts(row(20, "late")), gone(21)]
    with pytest.raises(TransientError, match="another writer"):
        writer.write(change, 5, "merge", rows=2, before_commit=compact)
    assert delta_tables.content(writer) == FILLED
    writer.write(change, 5, "merge", rows=2)
    expected = {**FILLED, 20: "late"}
    del expected[21]
    assert delta_tables.content(writer) == expected


@pytest.mark.needs("Delta's own statements")
def test_a_merge_by_sparks_statement_conflicts_with_a_compaction(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta looks for conflicts itself; the compaction commits while the statement runs."""
    monkeypatch.setattr(target_module, "choose", lambda *_: Choice(Way.STATEMENTS))
    fill(writer)
    monkeypatch.setattr(spark_commit, "_killable", partial(_compacted_meanwhile, writer))
    change = [*upserts(row(20, "late")), gone(21)]
    for _ in range(3):  # it may be done before, or begin after
        try:
            writer.write(change, 5, "merge", rows=2)
            break
        except TransientError:
            assert delta_tables.content(writer) == FILLED
    else:
        monkeypatch.undo()
        writer.write(change, 5, "merge", rows=2)
    expected = {**FILLED, 20: "late"}
    del expected[21]
    assert delta_tables.content(writer) == expected


@contextmanager
def _compacted_meanwhile(writer: Writer, _: str) -> Iterator[None]:
    started = threading.Thread(target=lambda: maintain(writer))
    started.start()
    try:
        yield
    finally:
        started.join()


def test_a_compaction_over_an_older_version_begins_again(writer: Writer) -> None:
    """Its files are written when a merge commits: what the merge has changed and deleted must not come back."""
    fill(writer)
    merges = iter([[*upserts(row(20, "late")), gone(21)], [*upserts(row(30, "later"))]])

    def before_commit() -> None:
        for seq, rows in zip((writer.committed().seq + 1,), merges, strict=False):  # type: ignore[union-attr]
            writer.write(rows, seq, "merge", rows=len(rows))

    tasks = {task.name: task for task in writer.place.target.maintain(due(writer), no_engine, before_commit)}
    assert tasks["compact"].figures["files_after"] == 1
    expected = {**FILLED, 20: "late", 30: "later"}
    del expected[21]
    assert delta_tables.content(writer) == expected


def no_engine() -> SparkSession:
    raise AssertionError("no engine is needed")


def test_appended_rows_and_a_compaction_do_not_disturb_each_other(writer: Writer) -> None:
    for seq in range(1, 5):
        writer.write([row(seq)], seq)
    stale = writer.job(5, "append", before_commit=lambda: maintain(writer) and None)
    writer.place.target.write(writer.spark, writer.batch([row(5)], COLUMNS), stale)
    assert delta_tables.content(writer) == dict.fromkeys(range(1, 6), "a")


def test_vacuum_keeps_what_younger_versions_need_and_what_a_stale_writer_may_commit(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer)
    path = delta_tables.location(writer).url
    version = DeltaTable(path).version()
    Path(path, "part-of-a-killed-run.parquet").write_bytes(b"x")
    Path(path, "_flowctl").mkdir(exist_ok=True)
    Path(path, "_flowctl", "old.json").write_text("{}")
    assert "vacuum" not in maintain(writer)
    old = time.time() - 8 * 86400
    for name in stored(path):  # old files, but it is not long that they are not needed
        os.utime(Path(path, name), (old, old))
    assert maintain(writer)["vacuum"].figures["files"] == 1
    assert "part-of-a-killed-run.parquet" not in stored(path)
    assert len(by_deltalake_at(path, version)) == len(FILLED)
    grow_old(monkeypatch)
    maintain(writer)
    assert stored(path) == {unquote(file["path"]) for file in delta_tables.files(writer)}
    assert Path(path, "_flowctl", "old.json").exists()
    assert delta_tables.content(writer) == FILLED


def test_vacuum_deletes_no_files_of_others(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow's state may be in a table's folder, and so may another table."""
    fill(writer)
    path = Path(delta_tables.location(writer).url)
    below = replace(writer, place=replace(writer.place, object=ObjectName((*writer.place.object.parts, "archive"))))
    fill(below)
    (path / "state").mkdir()
    (path / "state" / "1.json").write_text("{}")
    killed = path / "name=a" / "part-of-a-killed-run.parquet"
    killed.parent.mkdir()
    killed.write_bytes(b"x")
    old = stored(str(path / "archive"))
    grow_old(monkeypatch)
    maintain(writer)
    assert not killed.exists()
    assert (path / "state" / "1.json").exists()
    assert stored(str(path / "archive")) == old
    assert delta_tables.content(below) == delta_tables.content(writer) == FILLED


def test_vacuum_refuses_a_table_whose_files_it_does_not_find(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(writer)
    path = delta_tables.location(writer).url
    live = Path(path, unquote(delta_tables.files(writer)[0]["path"]))
    live.rename(live.with_suffix(".elsewhere"))
    before = stored(path)
    grow_old(monkeypatch)
    with pytest.raises(TableError, match="has 1 file that its folder does not list"):
        due(writer)
    assert stored(path) == before


def by_deltalake_at(path: str, version: int) -> pa.Table:
    table = DeltaTable(path, version=version)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def test_a_commit_is_found_when_log_and_files_before_it_are_gone(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log entries behind the checkpoint are cleaned up, and only the copy of the record is left."""
    fill(writer)
    committed = writer.committed()
    delta_tables.foreign_commit(
        delta_tables.location(writer),
        {"metaData": {**open_existing(delta_tables.location(writer)).metadata,
                      "configuration": {"delta.enableDeletionVectors": "true",
                                        "delta.logRetentionDuration": "interval 0 days"}}},
    )  # fmt: skip
    log = Path(delta_tables.location(writer).url, "_delta_log")
    old = time.time() - 40 * 86400
    for file in log.glob("*.json"):
        os.utime(file, (old, old))
    grow_old(monkeypatch)
    maintain(writer)
    maintain(writer)
    assert len(list(log.glob("*.json"))) < 5
    assert writer.committed() == committed
    writer.write(upserts(row(99)), 5, "merge", rows=1)
    assert delta_tables.content(writer) == {**FILLED, 99: "a"}


def test_a_plan_knows_how_many_rows_flowctls_own_merges_have_hidden(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        found = writer.place.target.described_and_committed([CommitLookup(LINEAGE, TABLE, writer.place.object)])
        info, _ = found[TABLE]
        assert info is not None
        return writer.place.target.maintenance_due(info)

    monkeypatch.setattr(maintenance, "MANY", 500)
    monkeypatch.setattr(maintenance, "LONG_LOG", 100)
    fill(writer)
    assert told() == "2 of 31 rows hidden"
    writer.write([*upserts(row(12, "changed"), row(50))], 5, "merge", rows=2)
    assert told() == "3 of 33 rows hidden"
    maintain(writer)
    assert told() == ""
    writer.write(upserts(row(51)), 6, "merge", rows=1)
    assert told() == ""


def test_what_only_spark_can_rewrite_is_left_out_on_sail(writer: Writer) -> None:
    fill(writer)
    location = delta_tables.location(writer)
    protocol = open_existing(location).protocol
    named = {**protocol, "writerFeatures": [*protocol["writerFeatures"], "domainMetadata", "clustering"]}
    delta_tables.foreign_commit(location, {"protocol": named})
    found = writer.place.target.maintenance([writer.place.object], "sail")[writer.place.object]
    assert "needs Spark (the Delta feature clustering)" in found.left_out
    assert "compact" not in [task.name for task in found.tasks]
    found = writer.place.target.maintenance([writer.place.object], "local[2]")[writer.place.object]
    assert "by Spark's OPTIMIZE" in found.tasks[0].text


def test_files_that_flowctl_cannot_read_are_rewritten_by_spark_or_not_at_all(writer: Writer) -> None:
    fill(writer)
    location = delta_tables.location(writer)
    rows = pa.table({"id": pa.array([99], pa.int64()), "name": ["a"], "amount": pa.array([None], pa.decimal128(12, 2))})
    delta_tables.foreign_rows(location, rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}))
    if has_jvm(writer.spark):
        assert maintain(writer)["compact"].figures["files_after"] == 1
    else:
        with pytest.raises(TableError, match="another calendar"):
            maintain(writer)
    assert delta_tables.content(writer) == {**FILLED, 99: "a"}


def test_what_flowctl_does_not_know_is_left_to_its_owner(writer: Writer) -> None:
    fill(writer)
    location = delta_tables.location(writer)
    protocol = open_existing(location).protocol
    named = {**protocol, "writerFeatures": [*protocol["writerFeatures"], "inCommitTimestamp"]}
    delta_tables.foreign_commit(location, {"protocol": named})
    found = due(writer)
    assert found.tasks == () and "inCommitTimestamp" in found.left_out
