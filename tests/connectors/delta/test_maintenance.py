"""A Delta table of many small files is told of in the plan; looking costs no more than the plan reads anyway."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from flowctl.connectors.delta import CAPABILITIES, compaction, log, maintenance, vacuum
from flowctl.connectors.delta.compaction import TARGET
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.maintenance import LONG_LOG, MANY, MANY_HIDDEN, SMALL, Choice, Condition, Way, choose
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.delta.target import DeltaTarget
from flowctl.connectors.delta.types import schema_json
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, TableInfo
from tests.plan.worlds import (
    NEW,
    OLD,
    REFRESH,
    LakeDdl,
    high,
    observed,
    plan,
    recorded,
    table,
    unchanged_target,
    world,
)

COLUMNS = (Column("id", types.INT64), Column("day", types.STRING))


def described(root: Path, sizes: list[int], days: list[str] | None = None) -> TableInfo:
    """A table of files of these sizes, one of each of ``days``; its log is all that is asked."""
    metadata = {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema_json(COLUMNS),
        "partitionColumns": ["day"] if days else [], "configuration": {}, "createdTime": 0,
    }  # fmt: skip
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for at, size in enumerate(sizes):
        values = {"day": days[at]} if days else {}
        file = {"path": f"{at}.parquet", "partitionValues": values, "size": size, "modificationTime": 0}
        actions.append({"add": {**file, "dataChange": True, "stats": '{"numRecords": 1}'}})
    log = root / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return describe(root)


def describe(root: Path) -> TableInfo:
    found = DeltaTarget(str(root), {}, None, CAPABILITIES).describe([ObjectName(("t",))])[ObjectName(("t",))]
    assert found is not None
    return found


@pytest.mark.parametrize(
    "sizes, days, is_due",
    [
        ([1000] * (MANY + 2), None, True),
        ([1000] * MANY, None, False),
        ([1000] * MANY + [SMALL] * 100, None, False),
        ([1000] * (MANY + 100), [str(at) for at in range(MANY + 100)], False),
        ([1000] * (MANY + 100), [str(at % 10) for at in range(MANY + 100)], True),
    ],
    ids=["many small", "some small", "many large", "one in each partition", "many in each partition"],
)
def test_maintenance_is_due_where_files_could_be_fewer(
    tmp_path: Path, sizes: list[int], days: list[str] | None, is_due: bool
) -> None:
    told = maintenance.due(described(tmp_path, sizes, days))
    assert told in ({f"{MANY + 1:,} small files", f"{MANY + 90:,} small files"} if is_due else {""})


def test_maintenance_is_due_for_a_long_log_until_a_checkpoint_is_written(tmp_path: Path) -> None:
    assert maintenance.due(described(tmp_path, [1000])) == ""
    for version in range(1, LONG_LOG + 2):
        entry = tmp_path / f"t/_delta_log/{version:020}.json"
        entry.write_text('{"commitInfo": {}}\n')
    assert maintenance.due(describe(tmp_path)) == f"{LONG_LOG + 2} commits since the last checkpoint"
    DeltaTable(tmp_path / "t").create_checkpoint()
    assert maintenance.due(describe(tmp_path)) == ""


class Untidy(LakeDdl):
    def maintenance_due(self, info: TableInfo) -> str:
        return "600 small files"


@pytest.mark.parametrize(
    "condition, reasons",
    [
        (Condition(), []),
        (Condition(small=MANY, hidden=MANY_HIDDEN, commits=LONG_LOG), []),
        (Condition(hidden=MANY_HIDDEN + 1, rows=10 * MANY_HIDDEN + 10), []),
        (Condition(hidden=200_000, rows=1_000_000), ["200,000 of 1,000,000 rows hidden"]),
        (Condition(small=600, commits=200), ["600 small files", "200 commits since the last checkpoint"]),
    ],
)
def test_what_is_due_has_its_reasons(condition: Condition, reasons: list[str]) -> None:
    assert list(condition.reasons()) == reasons
    assert (condition.needs_compaction or condition.needs_checkpoint) == bool(reasons)


@pytest.mark.parametrize(
    "features, column, way, reason",
    [
        ([], COLUMNS[0], Way.FLOWCTL, ""),
        (["deletionVectors", "typeWidening", "timestampNtz", "checkConstraints"], COLUMNS[0], Way.FLOWCTL, ""),
        (["columnMapping", "deletionVectors"], COLUMNS[0], Way.SPARK, "the Delta feature columnMapping"),
        (["clustering", "domainMetadata"], COLUMNS[0], Way.SPARK, "the Delta feature clustering"),
        (["clustering", "v2Checkpoint"], COLUMNS[0], Way.NOBODY, "the Delta feature v2Checkpoint"),
        ([], Column("m", types.STRING, native="map", as_text=True), Way.SPARK, "column m of type map"),
    ],
)
def test_who_writes_files_again(features: list[str], column: Column, way: Way, reason: str) -> None:
    assert choose(features, [column]) == Choice(way, reason)


def data_file(size: int, rows: int = 100, hidden: int = 0, **partition: str) -> dict[str, Any]:
    vector = {"deletionVector": {"cardinality": hidden}} if hidden else {}
    return {"path": "p", "size": size, "stats": f'{{"numRecords":{rows}}}', "partitionValues": partition, **vector}


@pytest.mark.parametrize(
    "files, groups",
    [
        ([], []),
        ([data_file(1)], []),
        ([data_file(1), data_file(SMALL), data_file(1)], [[0, 2]]),
        ([data_file(1, day="a"), data_file(1, day="b"), data_file(1, day="a")], [[0, 2]]),
        ([data_file(SMALL - 1)] * 6, [[0, 1, 2, 3], [4, 5]]),
        ([data_file(SMALL, hidden=5), data_file(SMALL, hidden=6)], [[1]]),
        ([data_file(1, hidden=6)], [[0]]),
        ([data_file(TARGET, hidden=6), data_file(1), data_file(1)], [[0], [1, 2]]),
        ([{**data_file(SMALL, hidden=1), "stats": None}], [[0]]),
    ],
    ids=[
        "none", "one", "small ones", "partitions", "as large as they should be", "many hidden rows", "one with many",
        "a large one by itself", "no statistics",
    ],
)  # fmt: skip
def test_small_files_of_a_partition_and_files_with_many_hidden_rows_are_written_again(
    files: list[dict[str, Any]], groups: list[list[int]]
) -> None:
    assert compaction.groups(files) == groups


@pytest.mark.parametrize(
    "written, days",
    [
        (None, 7),
        ("interval 30 days", 30),
        ("INTERVAL 2 WEEKS", 14),
        ("interval 240 hours", 10),
        ("interval 1 week 3 days", 10),
        ("interval 0 hours", 7),
        ("interval 1 hour", 7),
        ("interval 1 month", None),
        ("soon", None),
    ],
)
def test_files_stay_for_the_tables_retention_and_a_week_at_least(written: str | None, days: int | None) -> None:
    seconds = vacuum.retention_seconds({vacuum.RETENTION: written} if written is not None else {})
    assert seconds == (days * 86400 if days is not None else None)


def test_a_checkpoint_that_forgets_removed_files_earlier_takes_none_of_their_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {vacuum.RETENTION: "interval 0 hours"}
    for note, mode in (("a", "overwrite"), ("b", "overwrite"), ("c", "append"), ("d", "append")):
        write_deltalake(tmp_path, pa.table({"note": [note]}), mode=mode, configuration=properties)
    long_ago = time.time() - 30 * 86400
    for file in tmp_path.glob("*.parquet"):
        os.utime(file, (long_ago, long_ago))
    DeltaTable(tmp_path).create_checkpoint()
    table = open_existing(TableLocation(str(tmp_path), {}))
    assert list(log.read_removed_files(table.location, table.version)) == []
    assert vacuum.removable(table, 7 * 86400) == []
    monkeypatch.setattr(vacuum, "time", lambda: time.time() + 8 * 86400)
    assert len(vacuum.removable(table, 7 * 86400)) == 1


def test_the_plan_has_it_with_a_change_that_keeps_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = table()
    seen = world({"orders": observed(high(NEW), **unchanged_target())}, {"orders": recorded(spec, OLD)})
    told = "due for maintenance: 600 small files. Run `flowctl maintain spec.yaml --select orders`"
    assert told not in plan(seen, spec).steps[0].notes
    monkeypatch.setitem(seen.ddl, "lake", Untidy())
    assert told in plan(seen, spec).steps[0].notes
    assert told not in plan(seen, spec, request=REFRESH).steps[0].notes
