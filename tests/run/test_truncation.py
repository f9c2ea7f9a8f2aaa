"""Truncates among messages: however they are cut into batches, and whatever comes late or again, the table ends as its
source is. The engine makes the batches; SQLite applies them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.errors import StoppedByPolicy
from flowctl.expect.one_of import OneOf
from flowctl.spec.spec import Guard, TableSpec
from flowctl.sql.difference import SOURCE_ORDER
from flowctl.storage.buffer import Buffer
from tests.run.truncated_tables import (
    HARD,
    HISTORY,
    MARK,
    ORDERED,
    ORDERED_HISTORY,
    TABLE,
    Change,
    Sent,
    Table,
    changes,
    cut,
    messages,
    source_rows,
    source_versions,
    truncate,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    buffer, opened = Buffer(str(tmp_path), "run", {}), []

    def made(table: TableSpec, **more: Any) -> Table:
        opened.append(sqlite3.connect(":memory:", isolation_level=None))
        return Table(spark, buffer, table, opened[-1], **more)

    yield made
    for one in opened:
        one.close()


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 25))]


@pytest.mark.long_on_spark
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table", [TABLE, HARD, ORDERED], ids=["soft", "hard", "ordered"])
def test_messages_of_one_partition_in_any_batches(table: TableSpec, seed: int, make: Any) -> None:
    chance = random.Random(seed)
    log = changes(chance, 25)
    there = make(table, in_memory=seed % 2 == 0)
    seen: list[Change] = []
    for batch in cut(chance, messages(*log)):
        there.take(batch)
        seen += [one.change for one in batch]
        assert there.live == source_rows(seen), seen


@pytest.mark.long_on_spark
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table", [HISTORY, ORDERED_HISTORY], ids=["plain", "ordered"])
def test_a_history_in_any_batches(table: TableSpec, seed: int, make: Any) -> None:
    chance = random.Random(seed)
    sent = messages(*changes(chance, 25))
    there, taken = make(table), []
    for batch in cut(chance, sent):
        there.take(batch)
        taken += batch
        assert there.rows("id", "name", "valid_from", "valid_to") == source_versions(taken), taken


@pytest.mark.long_on_spark
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table", [ORDERED, ORDERED_HISTORY], ids=["merge", "scd2"])
def test_partitions_that_come_late_and_again(table: TableSpec, seed: int, make: Any) -> None:
    """Each row's messages are in one of two partitions, truncates are in any. A batch has more of one partition than of
    the other, and a connector that restarts sends a part again. Times are those of sending, give or take."""
    chance = random.Random(seed)
    log = changes(chance, 25)
    partitions: list[list[Sent]] = [[], []]

    def send(some: Sequence[Change], time: int) -> None:
        for at, change in enumerate(some):
            number = chance.randrange(2) if change.id is None else change.id % 2
            late = 0 if number == 0 else 3 * (seed % 2)  # the clock of another broker
            partitions[number].append(Sent(change, len(partitions[number]), 2 * (time + at) + late))

    send(log[:15], 0)
    start = chance.randrange(15)
    send(log[start:15], 15)
    send(log[15:], 40)
    there, ends = make(table), [0, 0]
    while ends != [len(one) for one in partitions]:
        before, ends = ends, [chance.randint(end, len(one)) for end, one in zip(ends, partitions, strict=True)]
        parts = zip(before, ends, partitions, strict=True)
        there.take([one for first, end, sent in parts for one in sent[first:end]])
    assert there.live == source_rows(log), (log, partitions)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(HARD, id="hard"),
        pytest.param(TABLE, id="soft", marks=pytest.mark.long_on_spark),
        pytest.param(ORDERED, id="ordered", marks=pytest.mark.long_on_spark),
        pytest.param(HISTORY, id="scd2", marks=pytest.mark.long_on_spark),
        pytest.param(ORDERED_HISTORY, id="ordered-scd2"),
    ],
)
def test_around_one_truncate(table: TableSpec, make: Any) -> None:
    """What was there, what is before it in the batch, and what comes back after it; two in a row; an empty target."""
    there = make(replace(table, id="t"))
    there.take(messages(truncate(1)))
    assert there.live == {}
    there.take(messages(Change(2, 1, "a"), Change(3, 2, "a"), start=1))
    again = [Change(4, 3, "b"), Change(5, 1, "b"), truncate(6), truncate(7), Change(8, 1, "c")]
    there.take(messages(*again, start=3))
    assert there.live == {1: "c"}
    if there.table.mode == "scd2":
        versions = [(1, "a", 1, 4), (1, "b", 4, 5), (1, "c", 7, None), (2, "a", 2, 5), (3, "b", 3, 5)]
        assert there.rows("id", "name", "valid_from", "valid_to") == versions


@pytest.mark.long_on_spark
@pytest.mark.parametrize("table", [ORDERED, ORDERED_HISTORY], ids=["merge", "scd2"])
def test_an_older_change_that_comes_after_its_truncate_is_ignored(table: TableSpec, make: Any) -> None:
    """Also of a row that the target never had, and in a later batch, whose position has the place."""
    there = make(table)
    there.take(messages(Change(1, 1, "a"), truncate(5)))
    assert there.position.truncated == f"{5:020}"
    there.take(messages(Change(2, 1, "b"), Change(3, 2, "b"), Change(6, 3, "c"), start=2))
    there.take(messages(Change(4, 4, "d"), truncate(5), start=5))
    assert there.live == {3: "c"}
    assert there.position.truncated == f"{5:020}"
    if table.mode == "merge":
        deleted = there.rows("id", SOURCE_ORDER, where="_deleted_at IS NOT NULL")
        assert deleted == [(id, f"{5:020}") for id in (1, 2, 4)]


def test_an_older_truncate_leaves_newer_rows(make: Any) -> None:
    there = make(ORDERED)
    there.take(messages(Change(1, 1, "a"), Change(9, 2, "b")))
    there.take(messages(truncate(5), start=2))
    assert there.live == {2: "b"}


@pytest.mark.long_on_spark
def test_the_guard_counts_what_a_truncate_deletes(make: Any) -> None:
    for table in (TABLE, HARD, ORDERED):
        there = make(replace(table, guard=Guard(max_deleted=0.5)))
        there.take(messages(*(Change(id, id, "a") for id in range(1, 5))))
        with pytest.raises(StoppedByPolicy, match="4 of 4 rows would be deleted"):
            there.stage(messages(truncate(9), start=4))


@pytest.mark.long_on_spark
def test_the_guard_does_not_count_what_is_older_than_the_row(make: Any) -> None:
    there = make(replace(ORDERED, guard=Guard(max_deleted=0.5)))
    there.take(messages(truncate(1), *(Change(5, id, "a") for id in range(4))))
    there.take(messages(*(Change(0, id, "b") for id in range(4)), start=5))
    assert there.live == dict.fromkeys(range(4), "a")


@pytest.mark.long_on_spark
def test_a_rejected_row_is_kept_apart_and_does_not_save_the_stored_one(make: Any) -> None:
    check = OneOf(column="name", values=("a",), on_fail="quarantine", mark=MARK)
    for table in (TABLE, HARD, ORDERED):
        there = make(replace(table, expect=(check,)))
        there.take(messages(Change(1, 1, "a")))
        staged = there.stage(messages(Change(2, 2, "bad"), truncate(3), Change(4, 1, "bad"), start=1))
        assert staged.counts.quarantined == 2
        assert staged.counts.deletes == 1
