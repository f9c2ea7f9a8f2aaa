"""A full refresh that was begun and not finished: what was asked for still holds, and what it was the remedy for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model.interval import Interval
from flowctl.model.step import RecordOnly
from flowctl.plan.document import action_of
from flowctl.spec.spec import Cursor, Guard, TargetRef
from tests.plan.worlds import (
    NEW,
    OLD,
    REFRESH,
    committed,
    high,
    intent,
    observed,
    recorded,
    statements,
    step,
    table,
    target,
    unchanged_target,
)


def test_a_begun_full_refresh_replaces_when_it_is_finished():
    begun = intent(table(), Interval(None, NEW, "updated_at"), replaces=True, refresh=True)
    made = step(table(), observed(high(NEW), **unchanged_target()), recorded(table(), OLD, intent=begun, highest=4))
    assert (action_of(made), made.write_full, made.refresh) == ("recover", True, True)
    assert made.reason == "finishes sequence number 4 of the interrupted run 20261119T221004-1, a full refresh"
    assert made.destructive == "everything in lake:orders (1,000 rows)"
    assert "flowctl state set spec.yaml orders --position" in made.notes[0]


def test_a_begun_full_refresh_keeps_its_guards():
    spec = table(guard=Guard(allow_empty=False, max_shrink=0.5))
    begun = intent(spec, Interval(None, NEW, "updated_at"), replaces=True, refresh=True)
    made = step(spec, observed(high(NEW), **unchanged_target()), recorded(spec, OLD, intent=begun, highest=4))
    assert [check.name for check in made.checks] == ["allow_empty", "max_shrink 50%"]


ELSEWHERE = table(target=TargetRef("lake", ("elsewhere",)))
MERGED = table(mode="append", cursor=Cursor("updated_at"))
#: What a full refresh is the next step for: the target as it was when the refresh began, and what state says.
REMEDIES = {
    "foreign": ({"target": target(identity="other")}, {"seq": 0, "intent_id": "", "target_id": "", "definition": {}}),
    "gone": ({}, {}),
    "another table": ({"target": target(identity="other")}, {}),
    "behind": ({"target": target(), "commit": committed(2, "i2")}, {}),
    "ahead": ({"target": target(), "commit": committed(3, "other")}, {}),
    "definition": (unchanged_target(), {"definition": recorded(MERGED, OLD).definition}),
    "moved": ({"target": target(identity="other")}, {"definition": recorded(ELSEWHERE, OLD).definition}),
    "moved, none there": ({}, {"definition": recorded(ELSEWHERE, OLD).definition}),
}


@pytest.mark.parametrize("remedy", REMEDIES)
def test_what_a_full_refresh_was_the_next_step_for_does_not_stop_its_recovery(remedy: str) -> None:
    there, keys = REMEDIES[remedy]
    state = recorded(table(), OLD, **keys)
    stopped = step(table(), observed(high(NEW), **there), state)
    assert action_of(stopped) == "stop", stopped
    asked = step(table(), observed(high(NEW), **there), state, REFRESH)
    begun = intent(table(), asked.interval, seq=asked.seq, target_id=asked.table.seen.id, replaces=True, refresh=True)
    pending = replace(state, intent=begun, highest=asked.seq)
    made = step(table(), observed(high(NEW), **there), pending)
    assert (action_of(made), made.seq, made.write_full, made.refresh) == ("recover", asked.seq, True, True)
    assert (made.columns.target, statements(made)) == (asked.columns.target, statements(asked))
    landed = observed(high(NEW), target=target(identity="new"), commit=committed(asked.seq, "i4", NEW, target_id="new"))
    assert isinstance(step(table(), landed, pending), RecordOnly)


@pytest.mark.parametrize("begun_on", ["", "delta-1"])
def test_a_begun_full_refresh_never_replaces_another_table_than_it_was_asked_for(begun_on: str) -> None:
    begun = intent(table(), Interval(None, NEW, "updated_at"), target_id=begun_on, replaces=True, refresh=True)
    state = recorded(table(), OLD, intent=begun, highest=4)
    foreign = observed(high(NEW), target=target(identity="other"))
    assert "another table" in step(table(), foreign, state).reason
    ahead = observed(high(NEW), target=target(identity=begun_on or "other"), commit=committed(6, "other"))
    assert action_of(step(table(), ahead, state)) == "stop"
    gone = step(table(), observed(high(NEW)), state)
    assert action_of(gone) == ("stop" if begun_on else "recover")
