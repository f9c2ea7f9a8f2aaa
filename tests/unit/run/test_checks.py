"""Expectations and guards decided on the counts of a staged batch."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.run.checks import Observed, decide
from flowctl.spec.spec import (
    DetectFlag,
    DetectMissingKeys,
    Expectation,
    Guard,
    ObjectSource,
    OnFail,
    TableSpec,
    TargetRef,
)

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
MARK = Mark("flow.yaml", 20, 5)
SEEN = Observed(rows=100, quarantined=0, deletes=0, violations={}, newest={}, target_rows=100)
TABLE = TableSpec(
    id="orders",
    source=ObjectSource("pg", ("public", "orders")),
    target=TargetRef("lake", ("orders",)),
    mode="merge",
    mark=MARK,
    key=("id",),
)


def expecting(kind: Any, argument: Any, on_fail: OnFail = "fail", column: str | None = None) -> TableSpec:
    return replace(TABLE, expect=(Expectation(kind, column, argument, on_fail, MARK),))


@pytest.mark.parametrize(
    ("bounds", "problem"), [({"min": 101}, "at least 101"), ({"max": 99}, "at most 99"), ({"min": 1, "max": 100}, None)]
)
def test_the_number_of_rows(bounds: dict[str, int], problem: str | None) -> None:
    table = expecting("rows", bounds)
    if problem is None:
        assert decide(table, SEEN, NOW, replaces=False) == ()
        return
    with pytest.raises(TableError, match=problem):
        decide(table, SEEN, NOW, replaces=False)


def test_warn_reports_and_lets_pass() -> None:
    table = expecting("between", (0, 9), "warn", "amount")
    warnings = decide(table, replace(SEEN, violations={"amount: between": 3}), NOW, replaces=False)
    assert warnings == ("expectation amount: between: 3 rows",)


def test_freshness_by_the_newest_value() -> None:
    table = expecting("freshness", {"column": "at", "within": 3600.0})
    fresh = replace(SEEN, newest={"at": NOW - dt.timedelta(minutes=59)})
    assert decide(table, fresh, NOW, replaces=False) == ()
    with pytest.raises(TableError, match="3,660 s old"):
        decide(table, replace(SEEN, newest={"at": NOW - dt.timedelta(minutes=61)}), NOW, replaces=False)


def test_an_empty_source_does_not_wipe_a_guarded_target() -> None:
    table = replace(TABLE, mode="truncate", guard=Guard(allow_empty=False))
    with pytest.raises(StoppedByPolicy, match="allow_empty"):
        decide(table, replace(SEEN, rows=0), NOW, replaces=True)


def test_a_shrinking_table() -> None:
    table = replace(TABLE, mode="truncate", guard=Guard(max_shrink=0.5))
    assert decide(table, replace(SEEN, rows=50), NOW, replaces=True) == ()
    with pytest.raises(StoppedByPolicy, match="100 rows would become 49"):
        decide(table, replace(SEEN, rows=49), NOW, replaces=True)


def test_deletes_are_guarded_without_being_asked() -> None:
    table = replace(TABLE, deletes=DetectMissingKeys())
    assert decide(table, replace(SEEN, deletes=10), NOW, replaces=False) == ()
    with pytest.raises(StoppedByPolicy, match="11 of 100"):
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
    with pytest.raises(StoppedByPolicy, match="2 of 100"):
        decide(table, replace(SEEN, rows=98, quarantined=2), NOW, replaces=False)
