"""A full refresh of a table with a cursor whose source has no rows to read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model.interval import Interval
from flowctl.model.step import Load, Recover, Stopped
from flowctl.plan.document import action_of, from_json, to_json
from flowctl.spec.spec import Cursor, DetectMissingKeys, Guard
from tests.plan.worlds import (
    OLD,
    REFRESH,
    cursor,
    high,
    intent,
    observed,
    plan,
    recorded,
    step,
    table,
    unchanged_target,
    world,
)

APPEND = {"mode": "append", "cursor": Cursor("updated_at")}
NOTHING = Interval(None, None, "updated_at")


def refreshed(spec, watermark, state=None):
    return step(spec, observed(watermark, **unchanged_target()), state or recorded(spec, OLD), REFRESH)


@pytest.mark.parametrize("keys", [{}, APPEND])
@pytest.mark.parametrize(
    ("watermark", "reason"),
    [
        (high(None, rows=0), "the source has no rows"),
        (high(None, rows=3, has_younger=True), "all rows are younger than cursor.delay"),
    ],
)
def test_what_is_there_is_replaced_by_nothing(keys, watermark, reason):
    made = refreshed(table(**keys), watermark)
    assert isinstance(made, Load)
    assert (made.interval, made.write_full, made.rows.value) == (NOTHING, True, 0)
    assert made.destructive == "everything in lake:orders (1,000 rows)"
    assert f"{reason}: none is left in lake:orders" in made.notes


def test_rows_below_the_start_are_none():
    spec = table(cursor=Cursor("updated_at", start="2027-01-01T00:00:00Z"))
    made = refreshed(spec, high(OLD))
    assert (made.interval.upper, made.interval.read_from.text()) == (None, "2027-01-01T00:00:00.000000Z")


def test_the_guard_of_an_empty_source_decides():
    spec = table(guard=Guard(allow_empty=False))
    made = refreshed(spec, high(None, rows=0))
    assert isinstance(made, Stopped) and made.reason == "guard allow_empty: the source has no rows"
    made = refreshed(spec, high(None, rows=3, has_younger=True))
    assert made.reason == "guard allow_empty: no row of the source is read"
    made = refreshed(table(deletes=DetectMissingKeys(action="hard")), high(None, rows=0))
    assert isinstance(made, Stopped) and "guard max_deleted 10%" in made.reason


def test_a_table_that_does_not_exist_is_not_created():
    made = step(table(), observed(high(None, rows=0)), None, REFRESH)
    assert (action_of(made), made.reason) == ("none", "the source has no rows")


def test_the_next_run_reads_from_the_beginning():
    spec = table(**APPEND)
    there = unchanged_target(None)
    made = step(spec, observed(high(None, rows=0), **there), recorded(spec, None))
    assert action_of(made) == "none"
    made = step(spec, observed(high(cursor("2020-01-01T00:00:00Z")), **there), recorded(spec, None))
    assert isinstance(made, Load) and (made.interval.lower, made.write_full) == (None, False)


def test_one_that_was_interrupted_is_finished_and_what_came_since_follows():
    spec = table(**APPEND)
    begun = intent(spec, NOTHING, replaces=True, refresh=True)
    state = replace(recorded(spec, OLD), intent=begun)
    first, since = plan(world({"orders": observed(high(OLD), **unchanged_target())}, {"orders": state}), spec).steps
    assert isinstance(first, Recover) and (first.interval, first.write_full) == (NOTHING, True)
    assert isinstance(since, Load) and (since.interval.lower, since.interval.upper) == (None, OLD)


def test_a_saved_plan_has_it():
    seen = world({"orders": observed(high(None, rows=0), **unchanged_target())}, {"orders": recorded(table(), OLD)})
    made = plan(seen, table(), request=REFRESH)
    assert from_json(to_json(made)).steps[0].interval == NOTHING
