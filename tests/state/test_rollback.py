"""Which definition a rollback leaves, and which positions mean nothing under it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowctl.state.document import StateDocument, TableState, new_document, with_definition_accepted
from flowctl.state.rollback import roll_back
from tests.state.examples import DEFINITION, at

MERGE = {**DEFINITION, "from": {"connection": "src", "object": ["ev"]}, "to": "dst:ev"}


def after(definition: dict[str, Any], seq: int, **keys: Any) -> StateDocument:
    state = TableState(seq, f"i{seq}", at(seq), definition, target_id="table-1", **keys)
    return replace(new_document(), tables={"orders": state})


@pytest.mark.parametrize("change", [{"mode": "scd2"}, {"key": ["id", "region"]}, {"where": "id > 3"}])
def test_rows_written_since_keep_their_definition(change: dict[str, Any]) -> None:
    state = roll_back(after({**MERGE, **change}, 3), after(MERGE, 2)).table("orders")
    assert (state.definition, state.position, state.seq) == ({**MERGE, **change}, at(2), 3)


@pytest.mark.parametrize(
    "change", [{"cursor": "id"}, {"to": "dst:other"}, {"from": {"sql": "SELECT 1"}}, {"source_identity": "another"}]
)
def test_a_position_in_something_else_is_lost(change: dict[str, Any]) -> None:
    state = roll_back(after({**MERGE, **change}, 3), after(MERGE, 2)).table("orders")
    assert (state.definition, state.position, state.seq) == ({**MERGE, **change}, None, 3)


def test_a_position_stays_if_nothing_is_known_of_what_it_belongs_to() -> None:
    state = roll_back(after(MERGE, 3), after({}, 2)).table("orders")
    assert (state.definition, state.position) == (MERGE, at(2))


@pytest.mark.parametrize(
    "older",
    [
        {"source_system": "postgres:unknown@db:5432", "source_identity": "postgres:unknown@db:5432/5/1"},
        {"source_system": "postgres:7/5/1"},  # as SQLite's was that of the table
    ],
)
def test_a_source_that_was_named_otherwise_is_the_same(older: dict[str, Any]) -> None:
    now = {**MERGE, "cursor": "id", "source_system": "postgres:7", "source_identity": "postgres:7/5/1"}
    assert roll_back(after(now, 3), after({**now, **older}, 2)).table("orders").position == at(2)


def test_a_definition_under_which_nothing_was_written_is_rolled_back() -> None:
    before = after(MERGE, 2)
    now = with_definition_accepted(before, "orders", (MERGE, {**MERGE, "cursor": "id"}))
    assert roll_back(now, before).table("orders") == replace(before.table("orders"), highest=2)


def test_definitions_that_rows_may_have_been_written_under_stay() -> None:
    now, accepted = after(MERGE, 3), ({**MERGE, "mode": "append"}, MERGE)
    now = with_definition_accepted(now, "orders", accepted)
    state = roll_back(now, after(MERGE, 2)).table("orders")
    assert (state.definition, state.accepted, state.position) == ({}, accepted, at(2))


def test_a_reset_is_undone() -> None:
    now = replace(new_document(), tables={"orders": TableState(3, "i3", target_id="table-1")})
    assert roll_back(now, after(MERGE, 2)).table("orders").definition == MERGE
