"""What the plan says was chosen, and why: for tables that move rows, and only where there is something to say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowctl.expect.not_null import NotNull
from flowctl.expect.one_of import OneOf
from flowctl.expect.rows import Rows
from flowctl.expect.sql import Sql
from flowctl.model.interval import Interval
from flowctl.model.mode import Mode
from flowctl.model.position import NoPosition
from flowctl.model.step import RecordOnly, Step, UpToDate
from flowctl.model.table_info import RowEstimate, TableInfo
from flowctl.spec.spec import Guard, Layout
from tests.plan.worlds import (
    MARK,
    NEW,
    OLD,
    SOURCE,
    UPDATED_AT,
    LakeDdl,
    committed,
    high,
    intent,
    observed,
    recorded,
    step,
    table,
    target,
)

PARTS = "read in ≈ 4 parts of one snapshot (34 MB)"


def planned(reading: str = "", there: TableInfo | None = None, **keys: Any) -> Step:
    at = high(NoPosition()) if keys.get("mode") == "truncate" else high(NEW)
    commit = committed(position=OLD) if there else None
    seen = replace(observed(at, target=there, commit=commit), reading=reading)
    spec = table(**keys)
    return step(spec, seen, recorded(spec, OLD) if there else None)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, "staged, keys are checked first"),
        ({"mode": "scd2", "key": ("id",)}, "staged, keys are checked first"),
        (
            {
                "mode": "append",
                "expect": (
                    Rows(mark=MARK),
                    OneOf(values=(), on_fail="warn", mark=MARK),
                    Sql(condition="", on_fail="warn", mark=MARK),
                ),
            },
            "staged, counted before the commit: rows, warn",
        ),
        (
            {"mode": "truncate", "expect": (NotNull(column="id", mark=MARK),), "guard": Guard(max_shrink=0.5)},
            "staged, counted before the commit: max_shrink",
        ),
    ],
)
def test_why_a_table_is_staged(keys: dict[str, Any], why: str) -> None:
    made = planned(**keys)
    assert (made.table.via, made.how) == ("staged", (why,))


def test_a_table_that_goes_straight_says_so_beside_something_else_only() -> None:
    assert planned(mode="truncate").how == ()
    assert planned(PARTS, mode="truncate", expect=(NotNull(column="id", mark=MARK),)).how == (
        "direct, in one pass",
        PARTS,
    )


def test_what_the_target_chooses_is_said_of_new_tables() -> None:
    layout = Layout(statistics=("id",))
    assert planned(mode="append", layout=layout).how == ("direct, in one pass", "statistics for id")
    assert planned(PARTS, target(), layout=layout).how == ("staged, keys are checked first", PARTS)


@pytest.mark.parametrize(
    ("mode", "planned", "of_source", "rows"),
    [("append", 7, 9, 7), ("append", None, 9, 9), ("append", None, None, None), ("merge", None, 9, 0)],
)
def test_the_target_chooses_by_the_rows_that_a_run_would_estimate(
    mode: Mode, planned: int | None, of_source: int | None, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LakeDdl, "explain_write", lambda *given: f"written for {given[3].rows} rows")
    source = replace(SOURCE, rows=RowEstimate(of_source, "stats") if of_source else RowEstimate())
    spec = table(mode=mode)
    made = step(spec, observed(high(NEW, planned), source, target(), committed(position=OLD)), recorded(spec, OLD))
    assert made.how[-1] == f"written for {rows} rows"


def test_columns_of_the_target_that_may_round_are_named() -> None:
    """Unless the source's are of the same type."""
    rounding = replace(target(), columns=(*target().columns[:2], replace(UPDATED_AT, native="timestamptz(0)")))
    assert planned("", rounding).how == ("staged, keys are checked first", "values must fit updated_at timestamptz(0)")


def test_steps_that_move_no_rows_say_nothing() -> None:
    spec = table()
    idle = observed(high(OLD), target=target(), commit=committed(position=OLD))
    assert isinstance(step(spec, replace(idle, reading=PARTS), recorded(spec, OLD)), UpToDate)
    begun = recorded(spec, OLD, intent=intent(spec, Interval(OLD, NEW, "updated_at")), highest=4)
    landed = replace(observed(high(NEW), target=target(), commit=committed(4, "i4", NEW)), reading=PARTS)
    assert isinstance(step(spec, landed, begun), RecordOnly)
    pending = replace(landed, commit=committed(position=OLD))
    assert step(spec, pending, begun).how == ("staged, keys are checked first",)  # the source tells of newer rows only
