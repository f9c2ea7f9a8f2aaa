"""Staging on real Spark: what becomes of source rows before a target sees them. The source is a frame."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.target import WriteJob
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.expect.between import Between
from flowctl.expect.freshness import Freshness
from flowctl.expect.matches import Matches
from flowctl.expect.not_null import NotNull
from flowctl.expect.one_of import OneOf
from flowctl.expect.sql import Sql
from flowctl.expect.unique import Unique
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, VersionPosition
from flowctl.model.value import TypedValue
from flowctl.run.quarantine import QUARANTINE
from flowctl.spec.spec import (
    ColumnRules,
    Cursor,
    DetectFlag,
    DetectMissingKeys,
    Guard,
)
from flowctl.storage.buffer import Buffer
from tests.run.staging import MARK, SOFT_OR_CURRENT, TABLE, Bench, day, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long_on_spark)], ids=["on engine", "in memory"])
def bench(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(spark, Buffer(str(tmp_path), "run", {}), in_memory=request.param)


def test_the_latest_row_of_a_key_stays(bench: Bench) -> None:
    rows = [(1, "old", False, day(1)), (1, "new", False, day(2)), (2, "one", False, day(1)), (3, None, None, None)]
    staged = bench.stage(TABLE, rows)
    assert rows_of(staged, "id", "_flowctl_op") == [(1, "U"), (2, "U"), (3, "U")]
    assert {row["note"] for row in staged.batch.frame.where("id = 1").collect()} == {"new"}
    assert staged.counts.rows == 3


def test_ties_are_broken_the_same_way_in_every_order(bench: Bench) -> None:
    rows = [(1, note, False, day(1)) for note in ("a", "b", "c", "d")]
    first = rows_of(bench.stage(TABLE, rows), "id", "note")
    assert rows_of(bench.stage(TABLE, rows[::-1]), "id", "note") == first


def test_dedupe_fail_names_the_keys(bench: Bench) -> None:
    rows = [(7, "a", False, day(1)), (7, "b", False, day(2)), (8, "c", False, day(1))]
    with pytest.raises(TableError, match=r"1 key with more than one row.*id=7"):
        bench.stage(replace(TABLE, dedupe="fail"), rows)


def test_the_freshness_of_a_local_time_is_that_of_its_zone(bench: Bench) -> None:
    check = Freshness(column="local", within=3600.0, on_fail="warn", mark=MARK)
    table = replace(TABLE, columns=ColumnRules(add={"local": "to_timestamp_ntz('2026-01-02 03:00:00')"},
                                               types={"local": "timestamp_ntz"}), expect=(check,))  # fmt: skip
    rows = [(1, "a", False, day(1))]
    with pytest.raises(TableError, match="has no time zone") as stopped:
        bench.stage(table, rows)
    assert "zone: Europe/Amsterdam" in stopped.value.hint
    zoned = replace(check, zone="America/New_York")
    counts = bench.stage(replace(table, expect=(zoned,)), rows).counts
    assert zoned.newest(counts.found[zoned], counts.columns) == dt.datetime(2026, 1, 2, 8, tzinfo=dt.UTC)
    of_cursor = replace(table, cursor=Cursor("at", zone="Asia/Tokyo"))
    counts = bench.stage(of_cursor, rows).counts
    assert check.newest(counts.found[check], counts.columns) == dt.datetime(2026, 1, 1, 18, tzinfo=dt.UTC)


def test_keys_of_a_history_without_an_event_time_are_unique_or_the_table_stops(bench: Bench) -> None:
    rows = [(7, "a", False, day(1)), (7, "b", False, day(2)), (8, "c", False, day(1))]
    table = replace(TABLE, mode="scd2", valid_from="now", dedupe="fail")
    with pytest.raises(TableError, match=r"1 key with more than one row, and no column has.*id=7") as stopped:
        bench.stage(table, rows)
    assert "dedupe: latest" in stopped.value.hint
    assert rows_of(bench.stage(replace(table, dedupe="latest"), rows), "note") == [("b",), ("c",)]
    assert len(rows_of(bench.stage(replace(table, valid_from="at"), rows), "note")) == 3  # of different times


def test_versions_of_a_row_are_no_duplicates_of_its_key(bench: Bench) -> None:
    """Of a source that is read by versions, the last one counts; within one version the key must be unique."""
    table = replace(TABLE, mode="scd2", valid_from="now", dedupe="fail", cursor=None)
    versions = [(7, "a", False, day(1)), (7, "b", False, day(2)), (8, "c", False, day(1))]
    interval = Interval(VersionPosition(1, "t"), VersionPosition(3, "t"))
    assert rows_of(bench.stage(table, versions, interval=interval), "id", "note") == [(7, "b"), (8, "c")]
    with pytest.raises(TableError, match=r"1 key with more than one row.*id=7"):
        bench.stage(table, [*versions, (7, "d", False, day(2))], interval=interval)


def test_a_null_key_stops_the_table(bench: Bench) -> None:
    with pytest.raises(TableError, match="1 row with a null in id"):
        bench.stage(TABLE, [(None, "a", False, day(1)), (1, "b", False, day(1))])


def test_the_bounds_of_its_keys_are_those_of_the_batch(bench: Bench) -> None:
    check = OneOf(column="note", values=("good",), on_fail="quarantine", mark=MARK)
    rows = [(5, "good", False, day(1)), (-7, "good", True, day(1)), (99, "bad", False, day(1))]
    table = replace(TABLE, expect=(check,), deletes=DetectFlag("gone"), guard=Guard(max_deleted=1.0))
    assert bench.stage(table, rows).counts.key_bounds == {"id": ("-7", "5")}
    assert bench.stage(TABLE, []).counts.key_bounds == {}
    assert bench.stage(replace(TABLE, mode="scd2"), rows[:1]).counts.key_bounds == {"id": ("5", "5")}


def test_a_null_key_may_go_to_quarantine(bench: Bench) -> None:
    check = NotNull(column="id", on_fail="quarantine", mark=MARK)
    staged = bench.stage(replace(TABLE, expect=(check,)), [(None, "a", False, day(1)), (1, "b", False, day(1))])
    assert rows_of(staged, "id") == [(1,)]
    assert staged.rejected is not None
    assert [row["_flowctl_reason"] for row in staged.rejected.collect()] == ["id: not_null"]
    assert staged.counts.quarantined == 1


def test_a_rejected_row_does_not_win_over_a_good_one(bench: Bench) -> None:
    check = OneOf(column="note", values=("good",), on_fail="quarantine", mark=MARK)
    rows = [(1, "good", False, day(1)), (1, "bad", False, day(2))]
    assert rows_of(bench.stage(replace(TABLE, expect=(check,)), rows), "id", "note") == [(1, "good")]


def test_a_flag_makes_a_delete(bench: Bench) -> None:
    table = replace(TABLE, deletes=DetectFlag("gone"), guard=Guard(max_deleted=1.0))
    rows = [(1, "a", True, day(2)), (1, "a", False, day(1)), (2, "b", None, day(1))]
    staged = bench.stage(table, rows, bench.spark.createDataFrame([(1, None)], "id int, _deleted_at timestamp"))
    assert rows_of(staged, "id", "_flowctl_op") == [(1, "D"), (2, "U")]
    assert staged.counts.deletes == 1


@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_a_flagged_row_without_values_is_deleted_and_not_quarantined(bench: Bench, mode: Any) -> None:
    """It was anonymized as it was deleted. Without its key, it names no row of the target."""
    table = replace(TABLE, mode=mode, deletes=DetectFlag("gone"), guard=Guard(max_deleted=1.0))
    names = ("id", "note")
    table = replace(table, expect=tuple(NotNull(column=name, on_fail="quarantine", mark=MARK) for name in names))
    rows = [(1, None, True, day(2)), (2, None, False, day(2)), (None, "c", True, day(2)), (1, "a", False, day(1))]
    staged = bench.stage(table, rows, bench.spark.createDataFrame([(1, None, True)], SOFT_OR_CURRENT))
    assert (1, "D") in rows_of(staged, "id", "_flowctl_op")
    assert staged.rejected is not None
    found = {(row["id"], row["_flowctl_reason"]) for row in staged.rejected.collect()}
    assert found == {(2, "note: not_null"), (None, "id: not_null")}


@pytest.mark.parametrize("mode", [pytest.param("merge", marks=pytest.mark.full), "scd2"])
@pytest.mark.parametrize("action", [pytest.param("hard", marks=pytest.mark.full), "soft"])
@pytest.mark.parametrize(
    "expect",
    [
        pytest.param((), id="bare", marks=pytest.mark.full),
        pytest.param((Unique(column="note", on_fail="warn", mark=MARK),), id="expect"),
    ],
)
def test_flagged_rows_that_are_deleted_already_do_not_count_for_the_guard(
    bench: Bench, mode: Any, action: Any, expect: Any
) -> None:
    """1, 2 and 3 were deleted before and are read again; 4 is new among them."""
    table = replace(TABLE, mode=mode, deletes=DetectFlag("gone", action=action), expect=expect)
    table = replace(table, guard=Guard(max_deleted=0.25))
    gone = [(1, "a", True, day(1)), (2, "b", True, day(1)), (3, "c", True, day(1))]
    deleted = [(number, day(1), False) for number in (1, 2, 3)] if mode == "scd2" or action == "soft" else []
    live = [(number, None, True) for number in (4, 5, 6, 7)]
    target = bench.spark.createDataFrame([*deleted, *live], SOFT_OR_CURRENT)
    assert bench.stage(table, gone, target).counts.deletes == 3
    staged = bench.stage(table, [*gone, (4, "d", True, day(2))], target)
    assert (staged.counts.deletes, staged.counts.deleted) == (4, 1)
    refreshed = bench.stage(table, [*gone, (4, "d", True, day(2))], target, write_full=mode == "merge")
    assert refreshed.counts.deleted == 1
    with pytest.raises(StoppedByPolicy, match=r"max_deleted 25%: 2 of 4 rows would be deleted"):
        bench.stage(table, [*gone, (4, "d", True, day(2)), (5, "e", True, day(2))], target)


def test_missing_keys_are_found_both_ways(bench: Bench) -> None:
    """2 is gone from the source; 3 was lost behind the position and is read again; 4 is new and in the batch."""
    table = replace(TABLE, deletes=DetectMissingKeys(action="hard"), guard=Guard(max_deleted=0.5))
    rows = [(1, "a", False, day(1)), (3, "lost", False, day(1)), (4, "new", False, day(9))]
    bound = TypedValue(types.TIMESTAMP, day(5))
    interval = Interval(CursorPosition(bound), CursorPosition(bound), "at", read_from=bound)
    staged = bench.stage(table, rows, bench.target(1, 2), check_deletes=True, interval=interval)
    assert rows_of(staged, "id", "_flowctl_op") == [(2, "D"), (3, "U"), (4, "U")]


def test_a_row_that_is_in_quarantine_already_does_not_count_for_its_guard(bench: Bench) -> None:
    """2 is read again because the target lacks it, 5 because it is at the position; 6 is new."""
    check = OneOf(column="note", values=("good",), on_fail="quarantine", mark=MARK)
    table = replace(TABLE, expect=(check,), guard=Guard(max_quarantined=0.25), deletes=DetectMissingKeys())
    rows = [
        (1, "good", False, day(1)),
        (2, "bad", False, day(1)),
        (5, "bad", False, day(5)),
        (6, "good", False, day(6)),
    ]
    bound = TypedValue(types.TIMESTAMP, day(5))
    interval = Interval(CursorPosition(bound), CursorPosition(bound), "at", read_from=bound)
    read: dict[str, Any] = {"check_deletes": True, "interval": interval}
    target = bench.target(1)
    before = bench.stage(replace(table, guard=Guard()), rows, target, **read).rejected
    assert before is not None
    with pytest.raises(StoppedByPolicy, match="max_quarantined 25%: 2 of 3 rows"):
        bench.stage(table, rows, target, **read)
    earlier = WriteJob(Commit("lineage", table.id, 0, "", "t", None), table.target.object, "merge", ())
    kept, _ = QUARANTINE.stored(before, earlier)
    assert bench.stage(table, rows, target, quarantined=kept, **read).counts.quarantined == 2
    with pytest.raises(StoppedByPolicy, match="1 of 2 rows would be quarantined, not counting 1 that is"):
        bench.stage(table, rows, target, quarantined=kept.where("id = 2"), **read)
    with pytest.raises(StoppedByPolicy, match="2 of 4 rows"):  # the target would lose them
        bench.stage(table, rows, target, quarantined=kept, write_full=True)


def test_missing_keys_are_those_of_the_rows_that_the_table_takes(bench: Bench) -> None:
    """1 and 2 lie before `cursor.start`, 3 has no cursor, 5 was lost behind the position: the target becomes what a
    full refresh would make of it."""
    start = Cursor("at", start=day(3).isoformat(), nulls="skip")
    table = replace(TABLE, cursor=start, deletes=DetectMissingKeys(action="hard"), guard=Guard(max_deleted=0.5))
    rows = [(1, "", False, day(1)), (2, "", False, day(2)), (3, "", False, None), (4, "", False, day(4))]
    rows += [(5, "lost", False, day(4)), (6, "new", False, day(9))]
    bound = TypedValue(types.TIMESTAMP, day(5))
    interval = Interval(CursorPosition(bound), CursorPosition(bound), "at", read_from=bound)
    staged = bench.stage(table, rows, bench.target(2, 4), check_deletes=True, interval=interval)
    assert rows_of(staged, "id", "_flowctl_op") == [(2, "D"), (5, "U"), (6, "U")]
    taken = replace(table, cursor=Cursor("at", nulls="always"))
    staged = bench.stage(taken, rows, bench.target(2, 4), check_deletes=True, interval=interval)
    assert rows_of(staged, "id", "_flowctl_op") == [(1, "U"), (3, "U"), (5, "U"), (6, "U")]


def test_an_emptied_source_deletes_nothing(bench: Bench) -> None:
    table = replace(TABLE, deletes=DetectMissingKeys(action="hard"), guard=Guard(max_deleted=1.0))
    with pytest.raises(StoppedByPolicy, match="max_deleted"):
        bench.stage(table, [], bench.target(1, 2), check_deletes=True)


def test_scd2_keeps_every_event_of_a_key(bench: Bench) -> None:
    table = replace(TABLE, mode="scd2")
    rows = [(1, "a", False, day(1)), (1, "b", False, day(2)), (1, "c", False, day(2))]
    staged = bench.stage(table, rows)
    assert len(rows_of(staged, "id", "valid_from")) == 2
    assert {"row_hash", "_flowctl_detected", "valid_from"} <= set(staged.batch.frame.columns)


def test_scd2_without_event_time_takes_the_moment_of_the_intent(bench: Bench) -> None:
    staged = bench.stage(replace(TABLE, mode="scd2", valid_from="now"), [(1, "a", False, None)])
    assert [str(row["t"]) for row in staged.batch.frame.selectExpr("cast(valid_from as string) t").collect()] == [
        "2026-02-01 00:00:00"
    ]


@pytest.mark.parametrize("event", [None, "now", "at"])
def test_a_quarantined_row_has_no_time_that_is_another_in_each_run(bench: Bench, event: str | None) -> None:
    check = NotNull(column="note", on_fail="quarantine", mark=MARK)
    staged = bench.stage(replace(TABLE, mode="scd2", valid_from=event, expect=(check,)), [(1, None, False, day(1))])
    assert staged.rejected is not None
    assert ("valid_from" in staged.rejected.columns) == (event == "at")


def test_violations_are_counted_for_warnings(bench: Bench) -> None:
    checks = (
        Between(column="id", low=1, high=5, on_fail="warn", mark=MARK),
        Matches(column="note", pattern="^a+$", on_fail="warn", mark=MARK),
        Sql(condition="id % 2 = 1", on_fail="warn", mark=MARK),
        Unique(column="note", on_fail="warn", mark=MARK),
    )
    rows = [(1, "aa", False, day(1)), (9, "aa", False, day(1)), (4, None, False, day(1))]
    staged = bench.stage(replace(TABLE, expect=checks), rows)
    counted = {check.name: found for check, found in staged.counts.found.items()}
    assert counted == {"id: between": 1, "note: matches": 0, "sql": 1, "note: unique": 2}
    assert len(staged.warnings) == 3


def test_a_regular_expression_matches_whole_values(bench: Bench) -> None:
    checks = (
        Matches(column="note", pattern="a|b", on_fail="warn", mark=MARK),
        Matches(column="note", pattern=".*b", on_fail="warn", mark=replace(MARK, line=99)),
    )
    notes = ["a", "b", "ab", "ba", "b\n", "\nb", "", None]
    rows = [(at, note, False, day(1)) for at, note in enumerate(notes)]
    staged = bench.stage(replace(TABLE, expect=checks), rows)
    assert [found for check, found in staged.counts.found.items()] == [5, 5]


def test_each_of_two_checks_of_one_name_is_counted(bench: Bench) -> None:
    checks = (
        Sql(condition="id < 5 -- small", on_fail="warn", mark=MARK),
        Sql(condition="id > 0", on_fail="warn", mark=replace(MARK, line=99)),
    )
    staged = bench.stage(replace(TABLE, expect=checks), [(9, "a", False, day(1)), (1, "b", False, day(1))])
    assert staged.warnings == ("expectation sql: 1 row",)
