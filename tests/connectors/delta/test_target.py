"""What only Delta has: a log that forgets, foreign writers, numbers skipped in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowctl.connectors.base import OpenContext
from flowctl.connectors.delta.partitions import check_values
from flowctl.connectors.delta.types import schema_json
from flowctl.connectors.registry import open as open_connection
from flowctl.connectors.target import CommitLookup
from flowctl.diagnostics import Mark
from flowctl.errors import StateConflict, StoppedByPolicy, TableError, TransientError
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Connection, Layout
from flowctl.storage.buffer import Buffer
from flowctl.storage.options import hadoop_conf
from tests.connectors.target_matrix import Place
from tests.connectors.writing import COLUMNS, LINEAGE, TABLE, Writer, gone, row, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.s3 import S3Server


PLAIN = Layout()


def ids(writer: Writer) -> list[int]:
    return sorted(id for (id,) in writer.place.read(["id"]))


def folder(place: Place) -> Path:
    return Path(place.options["path"], *place.object.parts)


def test_what_a_new_table_says_of_itself(writer: Writer) -> None:
    everything = tuple(
        Column(f"c{at}", kind)
        for at, kind in enumerate(
            [*types.SCALARS, types.Decimal(38, 10), types.Array(types.STRING), types.Struct((("a", types.INT32),))]
        )
    )
    writer.write([], 1, columns=everything, create=create(writer, everything))
    found = writer.info()
    assert [(column.name, column.type) for column in found.columns] == [(c.name, c.type) for c in everything]
    assert set(found.extra["features"]) == {"deletionVectors", "timestampNtz", "appendOnly", "invariants"}
    assert (found.version, found.rows.value) == (1, 0)


@pytest.mark.needs("Delta's own statements")
def test_a_new_table_is_the_one_that_the_planned_statement_makes(writer: Writer) -> None:
    """Where nothing else is to be known, Spark is not asked to run it."""
    columns = (
        *COLUMNS,
        Column("day", types.DATE),
        Column("at", types.TIMESTAMP_NTZ),
        Column("list", types.Array(types.Decimal(10, 2))),
        Column("pair", types.Struct((("a", types.INT32), ("b", types.BINARY)))),
    )
    layout = Layout(("day",), statistics=("id", "at"))
    writer.write([], 1, columns=columns, layout=layout, create=create(writer, columns, layout))
    ours = folder(writer.place)
    theirs = ours.with_name("theirs")
    (statement,) = create(writer, columns, layout)
    writer.spark.sql(statement.replace(ours.as_uri(), theirs.as_uri()).replace(str(ours), str(theirs))).collect()
    made = [actions_of(each / "_delta_log" / f"{0:020}.json") for each in (ours, theirs)]
    for action in made:
        action["metaData"] = {
            **{name: value for name, value in action["metaData"].items() if name not in ("id", "createdTime")},
            "schemaString": json.loads(action["metaData"]["schemaString"]),
        }
        for kind in ("readerFeatures", "writerFeatures"):
            action["protocol"][kind] = sorted(action["protocol"][kind])
    assert made[0]["protocol"] == made[1]["protocol"]
    assert made[0]["metaData"] == made[1]["metaData"]
    checksums = [json.loads((each / "_delta_log" / f"{0:020}.crc").read_text()) for each in (ours, theirs)]
    for name in ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "setTransactions", "allFiles"):
        assert checksums[0][name] == checksums[1][name], name


def actions_of(file: Path) -> dict[str, dict]:
    return {kind: action for line in file.read_text().splitlines() for kind, action in json.loads(line).items()}


@pytest.mark.long_on_spark
def test_a_first_batch_of_a_merge_is_an_insert_and_the_next_a_merge(writer: Writer) -> None:
    writer.write([*upserts(row(1)), gone(2)], 1, "merge")
    assert ids(writer) == [1]
    commit = writer.write(upserts(row(1, "b"), row(3)), 2, "merge")
    assert (commit.counts.inserted, commit.counts.updated) == (1, 1)
    assert sorted(writer.place.read(["id", "name"])) == [(1, "b"), (3, "a")]


def create(writer: Writer, columns: tuple[Column, ...], layout: Layout = PLAIN) -> list[str]:
    return writer.place.target.create_statements(writer.place.object, columns, layout)


@pytest.mark.parametrize(
    "mode", ["append", *(pytest.param(one, marks=pytest.mark.full) for one in ("truncate", "merge"))]
)
@pytest.mark.parametrize("lost", ["", pytest.param("__HIVE_DEFAULT_PARTITION__", marks=pytest.mark.full)])
def test_a_text_that_a_partition_would_keep_as_null_is_refused_by_name(writer: Writer, mode: Mode, lost: str) -> None:
    layout = Layout(("name",))
    writer.write([row(1), row(2, None)], 1, create=create(writer, COLUMNS, layout), layout=layout)
    rows = [row(3, "b"), row(4, lost)]
    with pytest.raises(Exception, match="column name, by which the table is partitioned"):
        writer.write(upserts(*rows) if mode == "merge" else rows, 2, mode)
    assert sorted(writer.place.read(["id", "name"])) == [(1, "a"), (2, None)]
    rows = [row(3, "b"), row(4, " ")]
    writer.write(upserts(*rows) if mode == "merge" else rows, 2, mode)
    assert (4, " ") in writer.place.read(["id", "name"])


def test_values_of_partitions_are_looked_at_before_they_are_committed() -> None:
    columns = (Column("n", types.INT32), Column("m", types.Decimal(10, 2)), Column("t", types.TIMESTAMP))
    metadata = {"partitionColumns": ["n", "m", "t"], "schemaString": schema_json(columns)}
    good = {"n": "-1", "m": "-1.10", "t": "2026-01-01 00:00:00.000001"}
    check_values(metadata, [{"partitionValues": good}, {"partitionValues": {**good, "n": None, "t": ""}}], "lake")
    for name, wrong in {"n": "1.0", "m": "-.-1", "t": "yesterday"}.items():
        with pytest.raises(TableError, match=f"column {name}, by which"):
            check_values(metadata, [{"partitionValues": {**good, name: wrong}}], "lake")


def test_layouts(writer: Writer) -> None:
    layout = Layout(("name",), deletion_vectors=False)
    writer.write([row(1)], 1, create=create(writer, COLUMNS, layout), layout=layout)
    assert writer.info().extra["partition_by"] == ["name"]
    assert writer.info().extra["properties"]["delta.enableDeletionVectors"] == "false"


def test_a_clustered_table_takes_a_void(writer: Writer) -> None:
    writer.write([row(1)], 1, create=create(writer, COLUMNS, Layout(cluster_by=("id",))))
    assert writer.void(2).void
    writer.write([row(2)], 3)
    assert ids(writer) == [1, 2]


@pytest.mark.long_on_spark
def test_a_void_on_a_table_that_is_not_there_makes_it(writer: Writer) -> None:
    """The stale writer of the number finds the table with its number taken, and the next number goes on in it."""
    void = writer.void(1, columns=COLUMNS)
    assert (void.void, void.target_id) == (True, writer.info().identity)
    with pytest.raises(StateConflict):
        writer.write([row(1)], 1, intent="stale writer", create=create(writer, COLUMNS))
    writer.write([row(2)], 2)
    assert ids(writer) == [2]


def test_without_columns_a_void_makes_no_table_and_the_stale_writer_of_its_number_cannot_land(writer: Writer) -> None:
    """The columns are not known before the engine has started; a table without any could not even be opened."""
    stale, given_up, next_one = (
        writer.job(seq, "append", columns=c) for seq, c in ((1, COLUMNS), (1, ()), (2, COLUMNS))
    )
    assert writer.place.target.void(given_up) is None
    assert writer.place.target.describe([writer.place.object]) == {writer.place.object: None}
    rows = writer.batch([row(2)], COLUMNS)
    writer.place.target.write(writer.spark, rows, next_one)
    with pytest.raises(StateConflict):
        writer.place.target.write(writer.spark, writer.batch([row(1)], COLUMNS), stale)
    assert ids(writer) == [2]


def test_the_try_that_was_given_up_learns_it(writer: Writer) -> None:
    writer.write([row(1)], 1)
    writer.void(2)
    with pytest.raises(StateConflict, match="given up"):
        writer.write([row(2)], 2)


@pytest.mark.needs("Delta's own statements")
def test_a_column_added_by_a_try_that_died_is_no_error(writer: Writer) -> None:
    writer.write([row(1)], 1)
    wider = (*COLUMNS, Column("note", types.STRING))
    change = SchemaChange("note", "new_column", None, types.STRING, "add", "on_schema_change.new_column: add")
    (made,) = writer.place.target.alter_statements(writer.info(), [change])
    writer.spark.sql(made.statement).collect()
    writer.write([{**row(2), "note": "x"}], 2, columns=wider, alter=[made])
    assert sorted(writer.place.read(["id", "note"]), key=str) == [(1, None), (2, "x")]


@pytest.mark.long_on_spark
def test_a_full_refresh_may_change_types_in_its_one_commit(writer: Writer) -> None:
    writer.write([row(1), row(2)], 1)
    identity, narrow = writer.info().identity, (COLUMNS[0], Column("name", types.INT32))
    writer.write([{"id": 9, "name": 7}], 2, columns=narrow, replace=True)
    assert writer.place.read(["id", "name"]) == [(9, 7)]
    assert [column.name for column in writer.info().columns] == ["id", "name"]
    assert (writer.info().identity, writer.info().version) == (identity, 2)


@pytest.mark.long_on_spark
def test_a_session_that_overwrites_partitions_does_not_turn_truncate_into_that(writer: Writer) -> None:
    layout = Layout(partition_by=("name",))
    partitioned = create(writer, COLUMNS, layout)
    writer.write([row(1, "a"), row(2, "b")], 1, "truncate", create=partitioned, layout=layout)
    writer.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        writer.write([row(3, "a")], 2, "truncate")
    finally:
        writer.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(writer) == [3]


@pytest.mark.needs("Delta's own statements")
def test_settings_of_a_number_do_not_outlive_it(writer: Writer) -> None:
    writer.write([row(1)], 1)
    writer.place.execute("INSERT INTO {table} (id) VALUES (2)")
    writer.place.execute("INSERT INTO {table} (id) VALUES (3)")
    assert ids(writer) == [1, 2, 3]


def test_a_merge_skips_files_by_key_and_still_finds_rows_that_move_partition(writer: Writer) -> None:
    layout = Layout(partition_by=("name",))
    partitioned = create(writer, COLUMNS, layout)
    writer.write(upserts(row(1, "a"), row(2, "a")), 1, "merge", create=partitioned, layout=layout)
    writer.write(upserts(row(1, "b")), 2, "merge")
    assert sorted(writer.place.read(["id", "name"])) == [(1, "b"), (2, "a")]


@pytest.mark.needs("Delta's own statements")
def test_the_record_survives_a_log_that_forgot_it(writer: Writer) -> None:
    """Foreign commits, a checkpoint, and the clean-up that follows it after thirty days."""
    written = writer.write([row(1)], 1)
    for id in range(2, 14):
        writer.place.execute(f"INSERT INTO {{table}} (id) VALUES ({id})")
    log = folder(writer.place) / "_delta_log"
    checkpoint = json.loads((log / "_last_checkpoint").read_text())["version"]
    for commit in log.glob("0*.json"):
        if int(commit.stem) < checkpoint:
            commit.unlink()
    assert writer.committed().record() == written.record()
    for copy in (folder(writer.place) / "_flowctl" / "commits").iterdir():
        copy.unlink()
    forgotten = writer.committed()
    assert (forgotten.seq, forgotten.intent_id, forgotten.position) == (1, "", None)
    with pytest.raises(StateConflict, match="intent unknown"):
        writer.write([row(1)], 1)


@pytest.mark.full
@pytest.mark.needs("Delta's own statements")
def test_a_restored_table_says_so(writer: Writer) -> None:
    """RESTORE takes the content back and keeps the numbers: the newest number stands with the record of the content."""
    first = writer.write([row(1)], 1)
    writer.write([row(2)], 2)
    writer.place.execute("RESTORE TABLE {table} TO VERSION AS OF 1")
    assert ids(writer) == [1]
    found = writer.committed()
    assert (found.seq, found.intent_id, found.position) == (2, first.intent_id, first.position)
    with pytest.raises(StateConflict):
        writer.write([row(2)], 2)
    writer.write([row(3)], 3)
    assert (writer.committed().intent_id, ids(writer)) == ("intent-3", [1, 3])


@pytest.mark.needs("Delta's own statements")
def test_a_table_restored_to_before_its_first_number_has_no_record(writer: Writer) -> None:
    writer.write([row(1)], 1)
    writer.place.execute("RESTORE TABLE {table} TO VERSION AS OF 0")
    found = writer.committed()
    assert (found.seq, found.intent_id, found.position) == (1, "", None)


def test_a_table_made_again_is_another_one(writer: Writer) -> None:
    writer.write([row(1)], 1)
    job = writer.job(2, "append")
    stranger = replace(job, record=replace(job.record, target_id="the table that was here"))
    with pytest.raises(StateConflict, match="the plan was made for"):
        writer.place.target.write(writer.spark, writer.batch([row(2)], COLUMNS), stranger)
    assert ids(writer) == [1]


@pytest.mark.needs("Delta's own statements")
def test_a_table_that_somebody_made_since_the_plan_is_left_alone(writer: Writer) -> None:
    planned = writer.job(1, "append")
    writer.spark.sql(planned.statements[0]).collect()
    writer.place.execute("INSERT INTO {table} (id) VALUES (7)")
    with pytest.raises(StoppedByPolicy, match="was not made by this flow"):
        writer.place.target.write(writer.spark, writer.batch([row(1)], COLUMNS), planned)
    assert ids(writer) == [7]


@pytest.mark.needs("Delta's own statements")
def test_an_empty_table_that_somebody_made_since_the_plan_is_left_alone(writer: Writer) -> None:
    planned = writer.job(1, "append")
    writer.spark.sql(planned.statements[0]).collect()
    with pytest.raises(StoppedByPolicy, match="was not made by this flow"):
        writer.place.target.write(writer.spark, writer.batch([row(1)], COLUMNS), planned)
    assert ids(writer) == []


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(Layout(), id="plain"),
        pytest.param(Layout(cluster_by=("id",)), id="clustered", marks=pytest.mark.needs("clustering")),
    ],
)
def test_the_empty_table_of_an_interrupted_try_is_told_from_others(writer: Writer, layout: Layout) -> None:
    """A plain one is made by flowctl, a clustered one by Spark; both name the intent."""

    def killed() -> None:
        raise TransientError("killed")

    planned = writer.job(1, "append", create=create(writer, COLUMNS, layout), layout=layout)
    with pytest.raises(TransientError, match="killed"):
        writer.place.target.write(writer.spark, writer.batch([row(1)], COLUMNS), replace(planned, before_commit=killed))
    lookup = CommitLookup(LINEAGE, TABLE, writer.place.object)
    info, commit = writer.place.target.described_and_committed([lookup])[TABLE]
    assert (info.created_by, commit) == (planned.record.intent_id, None)
    writer.place.target.write(writer.spark, writer.batch([row(1)], COLUMNS), planned)
    assert ids(writer) == [1]


@pytest.mark.needs("Delta's own statements")
def test_a_table_that_forgets_numbers_is_refused(writer: Writer) -> None:
    writer.write([row(1)], 1)
    writer.place.execute(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 hours')"
    )
    with pytest.raises(StoppedByPolicy, match="forget"):
        writer.write([row(2)], 2)


def test_a_folder_of_something_else_is_an_error(writer: Writer) -> None:
    folder(writer.place).mkdir(parents=True)
    (folder(writer.place) / "data.csv").write_text("1")
    with pytest.raises(TableError, match="not a Delta table"):
        writer.committed()


@pytest.mark.needs("Delta's own statements")
@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{b", "a(b", "a\tb", "a=b"])
def test_names_that_need_column_mapping_are_refused(writer: Writer, name: str) -> None:
    refuses = writer.place.capabilities.target.refuses_names
    assert "columns.rename" in refuses(name)
    with pytest.raises(Exception, match="INVALID_CHARACTER"):
        writer.spark.sql(create(writer, (Column(name, types.INT32),))[0]).collect()


@pytest.mark.long_on_spark
def test_names_that_are_taken_can_be_written(writer: Writer) -> None:
    names = ("naïve", "a.b", "a-b", "select", "\U0001f600", 'a"b', "a'b", "a\\b")
    assert [writer.place.capabilities.target.refuses_names(name) for name in names] == [None] * len(names)
    columns = (*COLUMNS, *(Column(name, types.INT32) for name in names))
    first, second = dict(zip(names, range(8), strict=True)), dict(zip(names, range(10, 18), strict=True))
    writer.write(upserts({**row(1), **first}), 1, "merge", columns=columns, create=create(writer, columns))
    writer.write(upserts({**row(1), **second}), 2, "merge", columns=columns)
    (found,) = writer.place.target.scan(writer.spark, writer.place.object, columns).collect()
    assert tuple(found)[3:] == tuple(second.values())


@pytest.mark.needs("credentials per table")
def test_a_table_on_s3(spark: SparkSession, s3_server: S3Server, s3_bucket: str, scratch: Buffer) -> None:
    """Schema and commits are read, voids are written, without Spark: with the credentials of the spec."""
    root, object = f"s3://{s3_bucket}/lake", ObjectName(("sales/orders",))
    keys = s3_server.storage()
    for name, value in hadoop_conf(root, {root: keys}).items():
        spark.conf.set(name.removeprefix("spark.hadoop."), value)
    connection = Connection("lake", "delta", {"path": root}, Mark("spec.yaml", 1))
    with open_connection(connection, OpenContext(storage={root: keys}, buffer=scratch)) as connector:
        assert connector.target is not None
        place = Place("delta", {"path": root}, connector.target, object, read=lambda _: [], execute=lambda _: None)
        writer = Writer(spark, place)
        assert (info_or_none(writer), writer.committed()) == (None, None)
        writer.write(upserts(row(1), row(2)), 1, "merge")
        assert writer.void(2).void
        with pytest.raises(StateConflict):
            writer.write(upserts(row(3)), 2, "merge", intent="stale writer")
        writer.write(upserts(row(2, "b"), row(4)), 3, "merge")
        found = place.target.scan(spark, object, COLUMNS[:2]).orderBy("id").collect()
        assert [tuple(line) for line in found] == [(1, "a"), (2, "b"), (4, "a")]
        assert writer.committed().seq == 3
        s3_server.client().put_object(Bucket=s3_bucket, Key="lake/stuff/data.csv", Body=b"1")
        with pytest.raises(TableError, match="not a Delta table"):
            place.target.describe([ObjectName(("stuff",))])


def info_or_none(writer: Writer) -> TableInfo | None:
    return writer.place.target.describe([writer.place.object])[writer.place.object]
