"""Expectations and guards decided on the counts of a staged batch."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.expect.between import Between
from flowctl.expect.expectation import Expectation
from flowctl.expect.freshness import Freshness
from flowctl.expect.rows import Rows
from flowctl.run.checks import BatchCounts, decide
from flowctl.spec.spec import (
    DetectFlag,
    DetectMissingKeys,
    Guard,
    ObjectSource,
    TableSpec,
    TargetRef,
)

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
MARK = Mark("flow.yaml", 20, 5)
SEEN = BatchCounts(rows=100, quarantined=0, deletes=0, target_rows=100)
TABLE = TableSpec(
    id="orders",
    source=ObjectSource("pg", ("public", "orders")),
    target=TargetRef("lake", ("orders",)),
    mode="merge",
    mark=MARK,
    key=("id",),
)


def expecting(check: Expectation, found: Any) -> tuple[TableSpec, BatchCounts]:
    return replace(TABLE, expect=(check,)), replace(SEEN, found={check: found})


@pytest.mark.parametrize(
    ("bounds", "problem"), [({"min": 101}, "at least 101"), ({"max": 99}, "at most 99"), ({"min": 1, "max": 100}, None)]
)
def test_the_number_of_rows(bounds: dict[str, int], problem: str | None) -> None:
    table, counts = expecting(Rows.read({"rows": bounds}, MARK), "100")
    if problem is None:
        assert decide(table, counts, NOW, replaces=False) == ()
        return
    with pytest.raises(TableError, match=problem):
        decide(table, counts, NOW, replaces=False)


def test_warn_reports_and_lets_pass() -> None:
    table, counts = expecting(Between(column="amount", low=0, high=9, on_fail="warn", mark=MARK), 3)
    assert decide(table, counts, NOW, replaces=False) == ("expectation amount: between: 3 rows",)


def test_freshness_by_the_newest_value() -> None:
    check = Freshness(column="at", within=3600.0, mark=MARK)
    assert decide(*expecting(check, "2026-11-20 11:01:00"), NOW, replaces=False) == ()
    with pytest.raises(TableError, match="3,660 s old"):
        decide(*expecting(check, "2026-11-20 10:59:00"), NOW, replaces=False)


def test_only_the_last_of_several_commits_must_be_fresh() -> None:
    check = Freshness(column="at", within=3600.0, mark=MARK)
    assert decide(*expecting(check, "2026-11-13 12:00:00"), NOW, replaces=False, continues=True) == ()
    table, counts = expecting(Rows.read({"rows": {"min": 101}}, MARK), "100")
    with pytest.raises(TableError, match="at least 101"):
        decide(table, counts, NOW, replaces=False, continues=True)


def test_an_empty_source_does_not_wipe_a_guarded_target() -> None:
    table = replace(TABLE, mode="truncate", guard=Guard(allow_empty=False))
    with pytest.raises(StoppedByPolicy, match=r"^guard\.allow_empty: the source has no rows"):
        decide(table, replace(SEEN, rows=0), NOW, replaces=True)


def test_a_source_whose_rows_all_go_to_quarantine_is_not_called_empty() -> None:
    table = replace(TABLE, mode="truncate", guard=Guard(allow_empty=False))
    with pytest.raises(
        StoppedByPolicy, match=r"^guard\.allow_empty: all of its rows \(2\) would be quarantined"
    ) as stopped:
        decide(table, replace(SEEN, rows=0, quarantined=2), NOW, replaces=True)
    assert "the checks with on_fail: quarantine" in stopped.value.hint


def test_a_refusal_shows_the_limit_as_it_is_written() -> None:
    table = replace(TABLE, guard=Guard(max_quarantined=0.005))
    with pytest.raises(StoppedByPolicy, match=r"^guard\.max_quarantined 0\.5%: 1 of 100"):
        decide(table, replace(SEEN, rows=99, quarantined=1), NOW, replaces=False)


def test_a_shrinking_table() -> None:
    table = replace(TABLE, mode="truncate", guard=Guard(max_shrink=0.5))
    assert decide(table, replace(SEEN, rows=50), NOW, replaces=True) == ()
    with pytest.raises(StoppedByPolicy, match=r"^guard\.max_shrink 50%: 100 rows would become 49"):
        decide(table, replace(SEEN, rows=49), NOW, replaces=True)


def test_deletes_are_guarded_without_being_asked() -> None:
    table = replace(TABLE, deletes=DetectMissingKeys())
    assert decide(table, replace(SEEN, deletes=10), NOW, replaces=False) == ()
    with pytest.raises(StoppedByPolicy, match=r"^guard\.max_deleted 10%: 11 of 100"):
        decide(table, replace(SEEN, deletes=11), NOW, replaces=False)


def test_an_empty_source_always_trips_the_guard_of_missing_keys() -> None:
    table = replace(TABLE, deletes=DetectMissingKeys(), guard=Guard(max_deleted=1.0))
    emptied = replace(SEEN, rows=0, deletes=100)
    with pytest.raises(StoppedByPolicy, match="max_deleted") as stopped:
        decide(table, emptied, NOW, replaces=False)
    assert "guard: {max_deleted: 100%, allow_empty: true}" in stopped.value.hint
    as_hinted = replace(table, guard=Guard(max_deleted=1.0, allow_empty=True))
    assert decide(as_hinted, emptied, NOW, replaces=False) == ()


def test_flagged_rows_may_be_all_when_the_guard_says_so() -> None:
    table = replace(TABLE, deletes=DetectFlag("gone"), guard=Guard(max_deleted=1.0))
    assert decide(table, replace(SEEN, rows=0, deletes=100), NOW, replaces=False) == ()


def test_quarantine_has_a_limit() -> None:
    table = replace(TABLE, guard=Guard(max_quarantined=0.01))
    assert decide(table, replace(SEEN, rows=99, quarantined=1), NOW, replaces=False) == ()
    with pytest.raises(StoppedByPolicy, match=r"^guard\.max_quarantined 1%: 2 of 100"):
        decide(table, replace(SEEN, rows=98, quarantined=2), NOW, replaces=False)
