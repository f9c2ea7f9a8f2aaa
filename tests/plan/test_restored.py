"""A restoration that was interrupted: the plan names the command that finishes it, and nothing else does."""

from __future__ import annotations

import pytest

from flowctl.model.step import Step, Stopped
from flowctl.plan.document import action_of
from flowctl.resolve.names import own_columns
from flowctl.resolve.resolve import PlanOptions
from tests.plan.worlds import (
    EVERYTHING,
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    committed,
    high,
    observed,
    recorded,
    step,
    table,
    target,
)

HISTORY = table(mode="scd2", key=("id",), valid_from="updated_at")


def restored(seq: int, request: PlanOptions = EVERYTHING, mode: str = "merge") -> Step:
    """With a target whose newest commit restores sequence number 1; the state has 3."""
    spec = HISTORY if mode == "scd2" else table()
    columns = (*ORDERS, *own_columns(spec).values())
    seen = observed(high(NEW), target=target(columns), commit=committed(seq, f"i{seq}", OLD, restored=1))
    return step(spec, seen, recorded(spec, OLD, target_columns=columns), request)


def test_it_is_finished_by_the_same_command() -> None:
    made = restored(4)
    assert isinstance(made, Stopped)
    assert made.reason == "lake:orders was restored to sequence number 1, and the restoration was interrupted"
    assert made.hint == "Finish it with `flowctl restore spec.yaml orders --to 1`, or restore another number"


@pytest.mark.parametrize(("mode", "action"), [("merge", "change"), ("scd2", "stop")])
def test_a_full_refresh_finishes_it_only_if_it_replaces_the_content(mode: str, action: str) -> None:
    """A history is kept, and derived from observations that may be missing."""
    assert action_of(restored(4, REFRESH, mode)) == action


def test_one_that_the_state_has_is_none_and_that_of_another_program_is_adopted() -> None:
    assert action_of(restored(3)) == "change"
    other = observed(high(NEW), target=target(), commit=committed(3, "i1", OLD, restored=1))
    made = step(table(), other, recorded(table(), OLD))
    assert isinstance(made, Stopped) and "state adopt" in made.hint
