"""Append never writes again what it has written, unless somebody says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.position import CursorPosition, FilesPosition, NoPosition
from flowctl.plan.document import action_of
from flowctl.spec.spec import Cursor
from tests.plan.worlds import (
    NEW,
    at,
    committed,
    cursor,
    high,
    observed,
    recorded,
    step,
    table,
    target,
    unchanged_target,
)


@pytest.mark.parametrize(
    "position",
    [
        cursor("2026-11-01T00:00:00Z"),
        None,
        NoPosition(),
        FilesPosition(()),
        CursorPosition(at("100", types.INT64)),
    ],
)
def test_append_never_goes_back_behind_what_the_target_has(position):
    spec = table(mode="append", cursor=Cursor("updated_at"))
    made = step(spec, observed(high(NEW), **unchanged_target()), recorded(spec, position))
    assert action_of(made) == "stop" and made.reason.endswith("appending again would double them")


def test_append_goes_back_where_somebody_has_said_so():
    spec = table(mode="append", cursor=Cursor("updated_at"))
    state = recorded(spec, cursor("2026-11-01T00:00:00Z"), append_again=True)
    made = step(spec, observed(high(NEW), **unchanged_target()), state)
    assert action_of(made) == "change" and "including what lake:orders already has" in made.notes[0]
    assert made.interval.read_from == at("2026-11-01T00:00:00Z")


def test_append_compares_positions_of_a_cursor_that_was_widened():
    spec = table(mode="append", cursor=Cursor("id"))
    seen = observed(high(CursorPosition(at("9", types.INT64)), rows_at_position=1), target=target())
    for recorded_at, action in (("7", "change"), ("6", "stop")):
        seen = replace(seen, commit=committed(position=CursorPosition(at("7", types.INT32))))
        made = step(spec, seen, recorded(spec, CursorPosition(at(recorded_at, types.INT64))))
        assert action_of(made) == action


def test_append_does_not_go_on_from_a_position_that_says_nothing_of_its_rows():
    """Taken over from somebody else: the target has no record that it could be compared with."""
    spec = table(mode="append", cursor=Cursor("updated_at"))
    made = step(spec, observed(high(NEW), target=target()), recorded(spec, NoPosition(), seq=0, intent_id=""))
    assert action_of(made) == "stop" and "which does not show what lake:orders already has" in made.reason
    assert "`flowctl state set spec.yaml orders --position … --append-again`" in made.hint


def test_a_table_without_a_cursor_appends_all_in_every_run():
    spec = table(mode="append")
    for position in (None, NoPosition()):
        seen = observed(target=target(), commit=committed(position=NoPosition()), positions="cursor")
        assert action_of(step(spec, seen, recorded(spec, position))) == "change"
