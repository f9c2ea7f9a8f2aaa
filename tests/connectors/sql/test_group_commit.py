"""Several tables in one commit: all of them or none, for targets that are atomic as a database."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.registry import capabilities
from flowctl.connectors.target import CommitLookup, WriteJob
from flowctl.errors import AbortRun
from flowctl.model.commit import Commit
from flowctl.model.table_info import ObjectName
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import COLUMNS, LINEAGE, Writer, row, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATOMIC = [
    name for name in sorted(FACTORIES) if (can := capabilities(name).target) is not None and can.atomic == "database"
]
pytestmark = [pytest.mark.parametrize("place", ATOMIC, indirect=True), pytest.mark.long_on_spark]
TABLES = ("b orders", "a lines")

CHILD = """
import json, os, signal, sys
from flowctl.connectors.sql import target as sql_target
from flowctl.engine.start import open_engine
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import SparkSettings
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import Place, opened
from tests.connectors.sql.test_group_commit import Group
from tests.connectors.writing import row

apply, applied = sql_target.apply_change, []

def killed_at_the_second(*job):
    if applied:
        os.kill(os.getpid(), signal.SIGKILL)
    applied.append(job)
    return apply(*job)

sql_target.apply_change = killed_at_the_second
type, options, parts, folder = json.loads(sys.argv[1])
with (
    open_engine(SparkSettings("sail"), (), {}, "small") as engine,
    Buffer(folder, "run-child", {}) as buffer,
    opened(type, options, buffer) as target,
):
    place = Place(type, options, target, ObjectName(tuple(parts)), read=None, execute=None)
    Group(engine.spark, place).commit(2)
"""


class Group:
    """Two tables beside each other in one place; batch ``seq`` has one row for each, its id."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self.target = place.target
        self.writers = {
            table: Writer(spark, replace(place, object=ObjectName((*place.object.parts[:-1], f"{table} here"))))
            for table in TABLES
        }

    def commit(self, seq: int, **fields: dict[str, Any]) -> list[Commit]:
        """``fields`` of jobs, by the number of the table."""
        with ExitStack() as stack:
            staged = []
            for at, (table, writer) in enumerate(self.writers.items()):
                job = self.job(table, seq, **fields.get(f"of_{at}", {}))
                batch = writer.batch(upserts(row(seq)), job.columns)
                staged.append(stack.enter_context(self.target.stage(writer.spark, batch, job)))
            return list(self.target.commit(staged))

    def job(self, table: str, seq: int, **fields: Any) -> WriteJob:
        job = self.writers[table].job(seq, "merge", **fields)
        return replace(job, record=replace(job.record, table=table))

    def rows(self) -> list[list[int]]:
        """Ids by table."""
        return [
            sorted(found["id"] for found in self.target.scan(writer.spark, writer.place.object, COLUMNS).collect())
            for writer in self.writers.values()
        ]

    def numbers(self) -> list[int]:
        lookups = [CommitLookup(LINEAGE, table, writer.place.object) for table, writer in self.writers.items()]
        found = self.target.committed(lookups)
        return [commit.seq for table in TABLES if (commit := found[table])]


@pytest.fixture
def group(spark: SparkSession, place: Place) -> Group:
    return Group(spark, place)


@pytest.mark.smoke
def test_two_tables_are_made_and_changed_in_one_commit(group: Group) -> None:
    first = group.commit(1)
    assert [(commit.table, commit.seq, commit.counts.inserted) for commit in first] == [(t, 1, 1) for t in TABLES]
    assert [commit.target_id for commit in first] == [group.job(table, 2).record.target_id for table in TABLES]
    group.commit(2)
    assert (group.rows(), group.numbers()) == ([[1, 2], [1, 2]], [2, 2])
    assert [commit.seq for commit in group.commit(2)] == [2, 2]
    assert group.rows() == [[1, 2], [1, 2]]


@pytest.mark.parametrize("first", [True, False], ids=["new tables", "tables that are there"])
def test_what_stops_one_table_stops_both(group: Group, first: bool) -> None:
    if not first:
        group.commit(1)
    before = (group.numbers(), None if first else group.rows())

    def lost() -> None:
        raise AbortRun("the lease is lost", hint="")

    with pytest.raises(AbortRun):
        group.commit(2, of_1={"before_commit": lost})
    assert before == (group.numbers(), None if first else group.rows())
    group.commit(2)
    assert group.numbers() == [2, 2]


def test_killed_between_two_tables_a_group_leaves_nothing_and_is_done_again(
    group: Group, tmp_path_factory: pytest.TempPathFactory
) -> None:
    group.commit(1)
    place = group.writers[TABLES[0]].place
    task = [place.type, place.options, place.object.parts, str(tmp_path_factory.mktemp("child"))]
    died = subprocess.run([sys.executable, "-c", CHILD, json.dumps(task)], capture_output=True, timeout=300)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert (group.rows(), group.numbers()) == ([[1], [1]], [1, 1])
    group.commit(2)
    assert (group.rows(), group.numbers()) == ([[1, 2], [1, 2]], [2, 2])
