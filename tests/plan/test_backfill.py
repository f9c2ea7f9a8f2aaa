"""`--from` and `--to`: the interval of a range, whose position is the recorded one; and where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowctl.model.backfill import Backfill
from flowctl.model.interval import Interval
from flowctl.model.step import Load, Recover, Step, Stopped, UpToDate
from flowctl.plan.document import from_json, to_json
from flowctl.plan.render import View, render
from flowctl.resolve.names import own_columns
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.spec import Cursor, DetectMissingKeys, TableSpec
from flowctl.text import plain
from tests.plan import worlds
from tests.plan.worlds import (
    NEW,
    OLD,
    at,
    high,
    intent,
    observed,
    recorded,
    source,
    table,
    target,
    unchanged_target,
    world,
)

ROOT = Path(__file__).parents[2]
NOVEMBER = Backfill("2026-11-01", "2026-11-15")


def planned(
    spec: TableSpec, backfill: Backfill = NOVEMBER, seen: dict[str, Any] | None = None, **state: Any
) -> tuple[Step, ...]:
    given = observed(high(NEW), **{**unchanged_target(), **(seen or {})})
    request = PlanOptions(select=(spec.id,), backfill=backfill)
    states = {spec.id: recorded(spec, state.pop("position", OLD), **state)}
    return worlds.plan(world({spec.id: given}, states), spec, request=request).steps


def test_the_range_is_read_and_the_position_stays() -> None:
    """Whatever `lag` and `nulls` are."""
    (step,) = planned(table(cursor=Cursor("updated_at", lag=900, nulls="always")))
    assert isinstance(step, Load)
    assert step.interval == Interval(
        OLD,
        OLD,
        "updated_at",
        at("2026-11-01T00:00:00Z"),
        at("2026-11-14T23:59:59.999999Z"),
        is_backfill=True,
    )
    assert "the position stays at 2026-11-19 22:10:04 UTC" in step.notes
    assert step.seq == 4


def test_deletions_are_not_derived_from_a_range() -> None:
    (step,) = planned(table(deletes=DetectMissingKeys(every=None)))
    assert isinstance(step, Load)
    assert step.check_deletes is False


def test_rows_that_the_comparison_of_keys_would_delete_again() -> None:
    """Rows before `cursor.start` count as missing in the source."""
    cursor, deletes = Cursor("updated_at", start="2026-11-10"), DetectMissingKeys(every=None)
    (step,) = planned(table(cursor=cursor, deletes=deletes))
    assert isinstance(step, Stopped)
    assert step.reason == (
        "the range begins at 2026-11-01 00:00 UTC, below cursor.start 2026-11-10 00:00 UTC: the next comparison of "
        "keys (deletes: missing_keys) would delete its rows below cursor.start again"
    )
    for allowed in (table(cursor=cursor), table(cursor=replace(cursor, start="2026-11-01"), deletes=deletes)):
        assert isinstance(planned(allowed)[0], Load)
    assert isinstance(planned(table(cursor=cursor, deletes=deletes), Backfill(None, "2026-11-15"))[0], Load)


def test_a_range_that_goes_on_above_the_position() -> None:
    (step,) = planned(table(), Backfill("2026-11-01", "2026-12-01"))
    assert isinstance(step, Load)
    assert step.interval.read_to == OLD.at
    assert "rows above it are left to the next run" in step.notes
    (step,) = planned(table(), Backfill("2026-11-20"))
    assert isinstance(step, UpToDate)
    assert step.reason == "the range begins above 2026-11-19 22:10:04 UTC, where the next run continues"


def test_a_key_that_may_not_be_unique_in_the_source() -> None:
    note = "if the source has several rows of one key, those of the range replace newer ones"
    (step,) = planned(table())
    assert isinstance(step, Load)
    assert note in step.notes
    (step,) = planned(table(), seen={"source": replace(source(), primary_key=("id",))})
    assert isinstance(step, Load)
    assert note not in step.notes


@pytest.mark.parametrize("valid_from", ["now", "updated_at"])
def test_a_history_without_event_times_takes_the_rows_of_the_range_for_current_ones(valid_from: str) -> None:
    spec = table(mode="scd2", key=("id",), cursor=Cursor("updated_at"), valid_from=valid_from)
    columns = (*target().columns, *own_columns(spec).values())
    (step,) = planned(spec, seen={"target": replace(target(), columns=columns)}, target_columns=columns)
    assert isinstance(step, Load)
    note = "if the source has several rows of one key, those of the range become current in place of newer ones"
    assert (note in step.notes) == (valid_from == "now")


@pytest.mark.parametrize(
    ("keys", "backfill", "said"),
    [
        ({"mode": "append", "cursor": Cursor("updated_at")}, NOVEMBER, "append would write the rows of a range"),
        ({"mode": "truncate"}, NOVEMBER, "truncate replaces all rows, and a range has only some of them"),
        ({"cursor": None}, NOVEMBER, "orders has no cursor, so it has no ranges"),
        ({}, Backfill("10"), '--from 10 is no range of "updated_at", which is timestamp'),
        ({}, Backfill("2026-11-02", "2026-11-02"), "--from 2026-11-02 --to 2026-11-02 is empty"),
    ],
)
def test_what_has_no_range(keys: dict[str, Any], backfill: Backfill, said: str) -> None:
    (step,) = planned(table(**keys), backfill)
    assert isinstance(step, Stopped)
    assert said in step.reason


def test_a_table_that_never_ran() -> None:
    request = PlanOptions(select=("orders",), backfill=NOVEMBER)
    step = worlds.step(table(), observed(high(NEW)), request=request)
    assert isinstance(step, Stopped)
    assert step.reason == "orders has no position yet, so there is nothing to read again"


def test_a_saved_plan_has_the_range() -> None:
    spec = table()
    seen = world({"orders": observed(high(NEW), **unchanged_target())}, {"orders": recorded(spec, OLD)})
    plan = worlds.plan(seen, spec, request=PlanOptions(select=("orders",), backfill=NOVEMBER))
    document = to_json(plan)
    assert from_json(document) == plan
    jsonschema.validate(document, json.loads((ROOT / "schemas" / "plan.schema.json").read_text()))
    shown = " ".join(plain(render(plan, View(width=200))).split())
    assert "orders merge, reads a range again 15,204 rows" in shown
    assert "updated_at 2026-11-01 00:00 … 2026-11-14 23:59:59.999999" in shown
    assert "1 to read a range again" in shown


# What an interrupted run has begun


def begun(spec: TableSpec, **keys: Any) -> dict[str, Any]:
    whole = Interval(
        OLD, OLD, "updated_at", at("2026-11-01T00:00:00Z"), at("2026-11-14T23:59:59.999999Z"), is_backfill=True
    )
    return {"intent": intent(spec, replace(whole, **keys))}


def test_a_begun_range_is_finished_by_any_run() -> None:
    spec = table(deletes=DetectMissingKeys(every=None))
    given = observed(high(NEW), **unchanged_target())
    first, second = worlds.steps(spec, given, recorded(spec, OLD, **begun(spec)))
    assert isinstance(first, Recover)
    assert (first.interval, first.check_deletes) == (begun(spec)["intent"].interval, False)
    assert isinstance(second, Load)
    assert (second.interval.lower, second.interval.upper, second.interval.is_backfill) == (OLD, NEW, False)


def test_the_same_range_asked_for_again_is_only_finished() -> None:
    spec = table()
    (step,) = planned(spec, **begun(spec))
    assert isinstance(step, Recover)


def test_another_range_follows_what_was_begun() -> None:
    spec = table()
    first, second = planned(spec, Backfill("2026-10-01", "2026-10-02"), **begun(spec))
    assert isinstance(first, Recover)
    assert isinstance(second, Load)
    assert (second.follows, second.interval.read_from) == (4, at("2026-10-01T00:00:00Z"))


def test_a_range_follows_new_rows_that_were_begun() -> None:
    """It is read up to the position that these leave."""
    spec = table()
    new = Interval(OLD, NEW, "updated_at", OLD.at)
    first, second = planned(spec, Backfill("2026-11-01"), intent=intent(spec, new))
    assert isinstance(first, Recover)
    assert isinstance(second, Load)
    assert (second.interval.upper, second.interval.read_to, second.interval.is_backfill) == (NEW, NEW.at, True)
