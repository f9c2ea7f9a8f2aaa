"""What accepting a changed definition may continue, and what of the state no longer says anything."""

from __future__ import annotations

import pytest

from flowctl.model.position import NoPosition
from flowctl.plan.acceptance import continued, refusal
from tests.unit.plan.worlds import OLD, recorded, table

BASE = {"mode": "merge", "key": ["id"], "cursor": "updated_at", "to": "lake:orders"}


@pytest.mark.parametrize(
    ("before", "after", "position", "why"),
    [
        ({"mode": "truncate"}, {"mode": "scd2"}, OLD, "no history"),
        ({"mode": "scd2"}, {"mode": "scd2", "key": ["code"]}, OLD, "of other keys"),
        ({"mode": "scd2"}, {}, OLD, "several rows of one key"),
        ({"mode": "scd2"}, {"mode": "truncate"}, OLD, None),
        ({"mode": "append"}, {"mode": "append", "cursor": "id"}, OLD, "is not known"),
        ({"mode": "truncate"}, {"mode": "append"}, NoPosition(), "is not known"),
        ({"mode": "append"}, {"mode": "append", "to": "lake:other"}, OLD, None),
        ({}, {"mode": "append"}, OLD, None),
        ({}, {"key": ["code"]}, OLD, None),
        ({}, {"cursor": None}, OLD, None),
    ],
)
def test_what_cannot_be_continued_says_why(before, after, position, why):
    said = refusal({**BASE, **before}, {**BASE, **after}, position)
    assert said is None if why is None else why in said


def test_a_position_belongs_to_its_cursor_and_a_target_id_to_its_target():
    state = recorded(table(), OLD)
    assert continued(state, BASE, {**BASE, "mode": "append"}) == state
    assert continued(state, BASE, {**BASE, "cursor": "id"}).position is None
    moved = continued(state, BASE, {**BASE, "to": "lake:other"})
    assert (moved.position, moved.target_id, moved.target_columns, moved.next_seq) == (None, "", (), state.next_seq)


def test_a_definition_of_an_older_flowctl_that_lacks_a_part_has_not_changed_it():
    state = recorded(table(), OLD)
    assert continued(state, {"mode": "merge"}, BASE) == state
