"""Append from a source that deletes its old rows: what guard.allow_purged lets pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model.position import CursorPosition
from flowctl.plan.finding import Idle, Stop, Work
from flowctl.plan.intervals import find
from flowctl.spec.spec import Guard
from tests.plan.test_intervals import APPEND, NEW, OLD, TWO_WRITTEN
from tests.plan.worlds import at, cursor, high, source

PURGED = replace(APPEND, guard=Guard(allow_purged=True))


@pytest.mark.parametrize(
    ("spec", "newest", "has_older", "kind"),
    [
        (PURGED, NEW, False, Work),
        (PURGED, None, False, Idle),
        (PURGED, NEW, True, Stop),  # older rows are left, so these were not deleted for their age
        (PURGED, "2026-11-19T20:00:00Z", True, Stop),
        (APPEND, NEW, False, Stop),
    ],
)
def test_append_goes_on_above_its_position_in_a_source_that_deletes_old_rows(spec, newest, has_older, kind):
    seen = high(cursor(newest) if newest else None, rows_at_position=0, has_older=has_older)
    made = find(spec, source(), seen, CursorPosition(at(OLD), TWO_WRITTEN), "cursor", "flow.yaml")
    assert isinstance(made, kind)
    if isinstance(made, Stop):
        assert ("allow_purged" in made.hint) == (spec is APPEND)
    if isinstance(made, Work):
        assert made.interval.read_from == at(OLD) and "has deleted all rows up to" in made.notes[0]
