"""A number that fails in one run after another: how often, since when, and what to do, in the error and in the plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flowctl.errors import FlowctlError, LeaseLost, TableError
from flowctl.model.codec import from_json, to_json
from flowctl.model.commit import Intent
from flowctl.model.interval import Interval
from flowctl.plan.document import action_of
from flowctl.run import protocol, tries
from flowctl.run.attempt import Attempt
from flowctl.state.document import StateDocument
from tests.plan.worlds import (
    LINEAGE,
    NEW,
    OLD,
    high,
    intent,
    observed,
    recorded,
    step,
    table,
    unchanged_target,
)

WORK = Interval(OLD, NEW, "updated_at")
TOLD = (
    "sequence number 4 has been tried by 3 runs since 2026-11-19T22:10:04Z: fix the cause, or give it up with "
    "`flowctl state set spec.yaml orders --accept-definition`"
)


def test_each_run_that_tries_a_begun_number_is_counted() -> None:
    spec = table()
    begun = intent(spec, WORK)
    assert "runs" not in to_json(begun) and from_json(Intent, to_json(begun)).runs == 1
    planned = step(spec, observed(high(NEW), **unchanged_target()), recorded(spec, OLD, intent=begun, highest=4))
    assert (action_of(planned), planned.notes) == ("recover", ())
    run: Any = SimpleNamespace(run_id="r", fence=1, tables={"orders": spec})
    document = StateDocument(LINEAGE, 1, tables={"orders": recorded(spec, OLD, intent=begun, highest=4)})
    again = protocol.new_intent(planned, document, run)
    assert (again.runs, from_json(Intent, to_json(again)).runs) == (2, 2)


def test_the_plan_says_that_a_number_was_tried_before() -> None:
    spec = table()
    state = recorded(spec, OLD, intent=intent(spec, WORK, runs=3), highest=4)
    (note,) = step(spec, observed(high(NEW), **unchanged_target()), state).notes
    assert note.startswith(TOLD)


@pytest.mark.parametrize(
    ("error", "runs", "is_told"),
    [(TableError("lost", hint="Look"), 3, True), (TableError("lost"), 1, False), (LeaseLost("lost"), 3, False)],
)
def test_an_error_says_that_it_repeats(error: FlowctlError, runs: int, is_told: bool) -> None:
    spec = table()
    planned = step(spec, observed(high(NEW), **unchanged_target()), recorded(spec, OLD))
    hint = error.hint
    tries.add_repetition(error, Attempt(planned, intent(spec, WORK, runs=runs)), "spec.yaml")
    assert error.hint == hint if not is_told else TOLD in error.hint
