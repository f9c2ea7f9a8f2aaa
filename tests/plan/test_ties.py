"""More rows at one cursor value than append can tell apart: whether more of them may come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.value import from_text
from flowctl.plan.finding import Stop, Work
from flowctl.plan.intervals import find
from flowctl.plan.ties import is_complete, too_many
from flowctl.spec.spec import Cursor
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, TableState
from tests.plan.worlds import LINEAGE, at, cursor, high, source, table

OLD, NEW = "2026-11-19T22:10:04Z", "2026-11-20T06:15:33Z"
HOUR = 3600.0


@pytest.mark.parametrize(
    ("kind", "value", "delay", "expected"),
    [
        (types.TIMESTAMP, "2026-01-01T10:00:00.123Z", None, False),
        (types.TIMESTAMP, "2026-01-01T10:00:00.123Z", 0.5, True),
        (types.TIMESTAMP, "2026-01-01T10:00:07Z", 1.0, False),
        (types.TIMESTAMP, "2026-01-01T10:00:07Z", 1.5, True),
        (types.TIMESTAMP, "2026-01-01T10:07:00Z", 60.0, False),
        (types.TIMESTAMP, "2026-01-01T10:07:00Z", 61.0, True),
        (types.TIMESTAMP, "2026-01-01T10:30:00Z", HOUR, False),
        (types.TIMESTAMP, "2026-01-01T10:30:00Z", HOUR + 1, True),
        (types.TIMESTAMP, "2026-01-01T00:00:00Z", 23 * HOUR, False),
        (types.DATE, "2026-01-01", 24 * HOUR, False),
        (types.DATE, "2026-01-01", 48 * HOUR, True),
    ],
)
def test_a_value_is_complete_if_delay_is_longer_than_it_may_stand_for(kind, value, delay, expected):
    """Rows with the time 10:00:00 may come for an hour where times are truncated to hours."""
    at_value = from_text(kind, value)
    spec = table(mode="append", cursor=Cursor("updated_at", delay=delay))
    assert is_complete(spec, at_value, at_value) == expected
    assert not is_complete(spec, at_value, None)
    assert not is_complete(replace(spec, mode="merge"), at_value, at_value)
    hint = too_many(spec, at_value).hint
    assert hint.startswith("Run again once" if expected else "Set cursor.delay to ")


def test_a_value_that_delay_does_not_admit_is_not_complete():
    """A position from before the delay was set."""
    spec = table(mode="append", cursor=Cursor("updated_at", delay=HOUR))
    assert is_complete(spec, at(OLD), at(NEW)) and not is_complete(spec, at(NEW), at(OLD))
    made = find(spec, source(), high(cursor(NEW)), cursor(OLD), "cursor")
    assert isinstance(made, Work) and made.interval.is_complete


@pytest.mark.parametrize(("there", "stops"), [(12_000, False), (11_000, False), (None, False), (12_001, True)])
def test_rows_that_come_at_such_a_value_stop_the_table_unless_another_definition_was_accepted(there, stops):
    spec, since = table(mode="append", cursor=Cursor("updated_at", delay=HOUR)), replace(cursor(OLD), rows=12_000)
    seen = high(cursor(NEW), rows_at_position=there)
    assert isinstance(find(spec, source(), seen, since, "cursor"), Stop) == stops
    document = StateDocument(LINEAGE, 1, "w", {"orders": TableState(seq=1, position=since, highest=1)})
    accepted = documents.with_definition_accepted(document, "orders").table("orders").position
    assert isinstance(find(spec, source(), seen, accepted, "cursor"), Work)
