"""A changed `to` that was accepted makes no existing table ours; what the plan stops for says who made it."""

from __future__ import annotations

import pytest

from flowctl.model.step import Step, Stopped
from flowctl.plan import acceptance
from flowctl.plan.definition import definition
from flowctl.plan.document import action_of
from flowctl.spec.spec import TableSpec, TargetRef
from flowctl.state.document import StateDocument, TableState
from tests.plan.worlds import (
    LINEAGE,
    NEW,
    OLD,
    REFRESH,
    committed,
    high,
    observed,
    plan,
    recorded,
    source,
    step,
    table,
    target,
    world,
)

MOVED = table(target=TargetRef("lake", ("other",)))


def accepted(state: TableState, spec: TableSpec) -> TableState:
    """As `state set --accept-definition` leaves it."""
    document = StateDocument(LINEAGE, tables={spec.id: state})
    return acceptance.accepted(document, spec.id, definition(spec, source())).table(spec.id)


def of_moved(identity: str, state: TableState) -> Step:
    """In a database, the commit of the former target is found wherever `to` leads."""
    return step(MOVED, observed(high(NEW), target=target(identity=identity), commit=committed(position=OLD)), state)


@pytest.mark.parametrize("is_accepted", [False, True])
def test_a_foreign_table_stays_foreign_when_the_definition_is_accepted(is_accepted: bool) -> None:
    state = recorded(table(), OLD)
    made = of_moved("theirs", accepted(state, MOVED) if is_accepted else state)
    assert isinstance(made, Stopped)
    assert made.reason == "lake:other exists and was not made by this flow for orders"
    assert "state adopt" in made.hint and "--full-refresh orders" in made.hint


def test_a_renamed_table_is_ours() -> None:
    state = recorded(table(), OLD)
    assert "the definition changed" in of_moved("delta-1", state).reason
    assert action_of(of_moved("delta-1", accepted(state, MOVED))) == "change"


def test_a_full_refresh_takes_it() -> None:
    seen = observed(high(NEW), target=target(identity="theirs"), commit=committed(position=OLD))
    made = step(MOVED, seen, accepted(recorded(table(), OLD), MOVED), REFRESH)
    assert action_of(made) == "change"


@pytest.mark.parametrize("is_accepted", [False, True])
def test_two_tables_that_swap_their_targets_stop_and_name_each_other(is_accepted: bool) -> None:
    ids, states, seen = ("items", "orders"), {}, {}
    swapped = [table(id, target=TargetRef("lake", (other,))) for id, other in zip(ids, reversed(ids), strict=True)]
    for spec in swapped:
        state = recorded(table(spec.id), OLD, target_id=f"id of {spec.id}")
        states[spec.id] = accepted(state, spec) if is_accepted else state
        there = target(identity=f"id of {spec.target.object.parts[0]}")
        commit = committed(position=OLD, table=spec.id, target_id=f"id of {spec.id}")
        seen[spec.id] = observed(high(NEW), target=there, commit=commit)
    found = {step.id: step.reason for step in plan(world(seen, states), *swapped).steps}
    assert found == {
        "items": "lake:orders exists and was made by this flow for orders",
        "orders": "lake:items exists and was made by this flow for items",
    }
