"""scd2 on Delta: the definition for many histories at once (each a key of its own), and tries that died half-way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowctl.connectors import delta
from flowctl.connectors.base import OpenContext
from flowctl.connectors.delta import log
from flowctl.connectors.delta.actions import may_match
from flowctl.connectors.delta.location import location_of
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.lake.history import lost_observations_of
from flowctl.connectors.lake.record import DataCommit
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, Target, WriteJob
from flowctl.diagnostics import Mark
from flowctl.engine.base import Engine
from flowctl.engine.batch import InMemory, OnEngine
from flowctl.engine.session import has_jvm
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.position import NoPosition
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Connection, Layout
from flowctl.storage.buffer import Buffer
from tests.sql.history import Batch, Observation, Version, moment_of, plain, random_histories, versions
from tests.sql.test_scd2 import CASES, missing, row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    Column("id", types.INT64),
    Column("part", types.STRING),
    Column("state", types.STRING),
    Column("note", types.STRING),
    Column("valid_from", types.TIMESTAMP),
    Column("valid_to", types.TIMESTAMP),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)
BATCH = f"id BIGINT, part STRING, state STRING, note STRING, second INT, {OP_COLUMN} STRING, {DETECTED_COLUMN} BOOLEAN"


@dataclass
class History:
    """A history table on Delta; event times are seconds of 1970."""

    spark: SparkSession
    target: Target
    object: ObjectName
    lineage: str = "first"
    seq: int = field(default=0)
    in_memory: bool = False
    root: str = ""

    def write(
        self,
        rows: Sequence[tuple[int, Observation]],
        before_commit: Callable[[], None] = lambda: None,
        intent: str = "",
        moment: int = 1001,
    ) -> Commit:
        job = replace(self.job(before_commit, intent), at=f"1970-01-01T00:{moment // 60:02}:{moment % 60:02}.000000Z")
        counted = replace(job, rows=len(rows)) if self.in_memory else job
        frame = self.frame(rows)
        batch = InMemory(frame.toArrow()) if self.in_memory else OnEngine(frame)
        return self.target.write(self.spark, batch, counted)

    def frame(self, rows: Sequence[tuple[int, Observation]]):
        values = [
            (key, "x", seen.state, seen.note, seen.at, "U" if seen.state else "D", seen.detected) for key, seen in rows
        ]
        return self.spark.createDataFrame(values, BATCH).selectExpr(
            "id", "part", "state", "note", "timestamp_seconds(second) AS valid_from",
            "sha2(state, 256) AS row_hash", OP_COLUMN, DETECTED_COLUMN,
        )  # fmt: skip

    def job(self, before_commit: Callable[[], None] = lambda: None, intent: str = "") -> WriteJob:
        info = self.target.describe([self.object])[self.object]
        self.seq += 1
        return WriteJob(
            record=Commit(
                self.lineage, "people", self.seq, intent or f"intent {self.seq}", info.identity if info else "",
                NoPosition(),
            ),
            object=self.object,
            mode="scd2",
            columns=COLUMNS,
            key=("id", "part"),
            compared=("state",),
            create=() if info else tuple(self.target.create_statements(self.object, COLUMNS, Layout())),
            at="2027-01-01T00:00:00.000000Z",
            before_commit=before_commit,
        )  # fmt: skip

    def versions(self) -> dict[int, list[Version]]:
        found: dict[int, list[Version]] = {}
        table = self.target.scan(self.spark, self.object, COLUMNS)
        for line in table.selectExpr(
            "id", "unix_seconds(valid_from) AS valid_from", "unix_seconds(valid_to) AS valid_to", "state", "note",
            "is_current", "row_hash = sha2(state, 256) AS own",
        ).orderBy("id", "valid_from").collect():  # fmt: skip
            assert line["is_current"] == (line["valid_to"] is None) and line["own"]
            found.setdefault(line["id"], []).append(
                Version(line["valid_from"], line["valid_to"], line["state"], line["note"])
            )
        return found


IN_MEMORY = pytest.param("in memory", marks=pytest.mark.long_on_spark)


@pytest.fixture(params=[IN_MEMORY, pytest.param("engine", marks=pytest.mark.full)])
def history(spark: SparkSession, scratch: Buffer, tmp_path: Path, request: pytest.FixtureRequest):
    """As small batches are written, which this process holds, and as all others are."""
    in_memory = request.param == "in memory"
    connection = Connection("lake", "delta", {"path": "lake"}, Mark("spec.yaml", 1))
    with delta.connect(connection, OpenContext(base_dir=str(tmp_path), buffer=scratch)) as connector:
        assert connector.target is not None
        space = " " if has_jvm(spark) else "_"  # Sail reaches no path with one
        yield History(
            spark,
            connector.target,
            ObjectName((f"people{space}history",)),
            in_memory=in_memory,
            root=str(tmp_path / "lake"),
        )


def write_in_step(history: History, histories: dict[int, list[Batch]]) -> None:
    """The first batches of all keys as one batch, then the second ones, …"""
    for number in range(max(map(len, histories.values()))):
        step = {key: batches[number] for key, batches in histories.items() if number < len(batches)}
        rows = [(key, seen) for key, batch in step.items() for seen in batch.rows]
        history.write(rows, moment=moment_of(number))


def expected(histories: dict[int, list[Batch]]) -> dict[int, list[Version]]:
    made = {key: versions(batches) for key, batches in histories.items()}
    return {key: found for key, found in made.items() if found}


@pytest.mark.parametrize("length", [2, pytest.param(3, marks=pytest.mark.full)])
def test_random_histories_and_every_named_case(history: History, length: int) -> None:
    made = random_histories(300, seed=4, length=length)
    histories = dict(enumerate([*(plain(rows) for rows, _ in CASES.values()), *made]))
    write_in_step(history, histories)
    assert history.versions() == expected(histories)


@pytest.mark.full
def test_a_batch_written_again_touches_nothing(history: History) -> None:
    batch = [(key, row(1, "A")) for key in range(20)]
    assert history.write(batch).counts.inserted == 20
    again = history.write(batch).counts
    assert (again.inserted, again.updated, again.deleted) == (0, 0, 0)


@pytest.mark.parametrize("history", [IN_MEMORY], indirect=True)
def test_small_batches_are_committed_by_flowctl(history: History) -> None:
    """Delta's own statements take some forty queries for two tables."""
    history.write([(1, row(1, "A"))])
    history.write([(1, row(5, "B")), (2, row(5, "B"))])
    counts = history.write([(1, row(3, "C"))]).counts
    assert (counts.inserted, counts.updated) == (1, 1)
    place = location_of(history.root, history.object, {})
    for table in (place, place.sidecar(OBSERVED)):
        version = open_existing(table).version
        info = log.commit_info(log.read_entry(table, version))
        assert info["engineInfo"].partition("/")[0] == "flowctl"
    assert open_existing(place.sidecar(OBSERVED)).version == 3


@pytest.mark.parametrize("history", [IN_MEMORY], indirect=True)
def test_all_files_of_small_batches_are_written_by_flowctl(history: History) -> None:
    """An engine's files lie in a folder of their own."""
    for at, state in enumerate(["A", "B"]):
        history.write([(1, row(at + 1, state))])
    place = location_of(history.root, history.object, {})
    for table in (place, place.sidecar(OBSERVED)):
        paths = [file["path"] for file in open_existing(table).files]
        assert paths and not any("/" in path for path in paths)


def stats(**values: object) -> dict[str, str]:
    return {"stats": json.dumps({"minValues": values, "maxValues": values})}


def test_statistics_tell_which_observations_never_land() -> None:
    lost = lost_observations_of("first", DataCommit(7, "try 1"))
    ours = {"_lineage": "first", "_seq": 7, "_try": "try 1"}
    for known, may in [
        (ours, False),
        ({**ours, "_seq": 6, "_try": "try 0"}, False),
        ({**ours, "_try": "try 0"}, True),
        ({**ours, "_seq": 8}, True),
        ({**ours, "_seq": 8, "_lineage": "second"}, False),
        ({"_seq": 7}, True),
    ]:
        assert may_match(lost, stats(**known)) == may, known
    mixed = json.dumps({"minValues": ours, "maxValues": {**ours, "_seq": 8}})
    assert may_match(lost, {"stats": mixed}) and may_match(lost, {})
    unnamed = lost_observations_of("first", DataCommit(7, ""))
    assert not may_match(unnamed, stats(**{**ours, "_try": "any"}))


class Died(Exception):
    pass


def test_observations_of_a_try_that_died_do_not_count(history: History) -> None:
    """The second try reads other rows than the first one, whose contents were never written."""
    history.write([(1, row(1, "A"))])
    calls = []

    def dies_before_the_merge() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Died

    with pytest.raises(Died):
        history.write([(1, row(3, "lost")), (2, row(3, "lost"))], dies_before_the_merge)
    history.seq -= 1
    history.write([(1, row(5, "B"))])
    assert history.versions() == {1: [Version(1, 5, "A"), Version(5, None, "B")]}


def test_a_merge_that_outlives_its_client_counts_with_its_own_observations(history: History, engine: Engine) -> None:
    """As on a Spark Connect server: the first try lands while the second, which has read newer rows, is at work."""
    history.write([(1, row(1, "A"))])

    def before_the_merge(act: Callable[[], None]) -> Callable[[], None]:
        calls = iter((lambda: None, act))
        return lambda: next(calls)()

    def dies() -> None:
        raise Died

    def second_try() -> None:
        second = History(
            engine.session_for("second"),
            history.target,
            history.object,
            seq=history.seq - 1,
            in_memory=history.in_memory,
        )
        with pytest.raises(Died):
            second.write([(1, row(4, "D")), (2, row(4, "E"))], before_the_merge(dies), intent="same")

    history.write([(1, row(3, "C"))], before_the_merge(second_try), intent="same")
    assert history.versions() == {1: [Version(1, 3, "A"), Version(3, None, "C")]}
    history.write([(1, row(4, "D")), (2, row(4, "E"))])
    assert history.versions() == {
        1: [Version(1, 3, "A"), Version(3, 4, "C"), Version(4, None, "D")],
        2: [Version(4, None, "E")],
    }


@pytest.mark.full
def test_observations_of_a_voided_number_do_not_count(history: History) -> None:
    history.write([(1, row(1, "A"))])
    calls = []

    def dies_before_the_merge() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Died

    with pytest.raises(Died):
        history.write([(1, missing(4))], dies_before_the_merge)
    history.seq -= 1
    history.target.void(history.job(intent="given up"))
    history.write([(1, row(1, "A"))])
    assert history.versions() == {1: [Version(1, None, "A")]}


@pytest.mark.full
def test_a_new_lineage_keeps_the_observations_of_the_old_one(history: History) -> None:
    history.write([(1, row(1, "A"))])
    history.write([(1, row(5, "A"))])
    history.lineage, history.seq = "second", 0
    history.write([(1, row(3, "B"))])
    assert history.versions() == {1: [Version(1, 3, "A"), Version(3, 5, "B"), Version(5, None, "A")]}
