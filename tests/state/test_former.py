"""Under which definition an earlier number was committed, as far as the log of the state still shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowctl.model.commit import Commit
from flowctl.state import document as documents
from flowctl.state.document import StateDocument
from flowctl.state.former import former_state
from flowctl.state.rollback import roll_back
from flowctl.state.store import StateStore
from tests.state.examples import DEFINITION, RECORDED, commit_of, committed, intent
from tests.storage.stores import StoreAddress

BY_ID = {**DEFINITION, "cursor": "id"}


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(StoreAddress(str(tmp_path)).client())


def with_run(store: StateStore, definition: dict[str, object]) -> Commit:
    """One more number, and nothing that was accepted before it: begun, committed, recorded."""
    begun = store.read()
    number = replace(intent(begun.table("orders").next_seq, 20), definition=definition)
    begun = store.write(documents.with_intents(begun, {"orders": number}))
    commit = commit_of(begun, "orders")
    store.write(documents.with_commit(begun, commit, replace(RECORDED, definition=definition)))
    return commit


def cursors(store: StateStore, *origins: Commit) -> tuple[list[object], bool]:
    found = former_state(store, store.read().lineage, origins)
    return [one.definition["cursor"] for one in found.states], found.is_known


def forget(store: StateStore, *numbers: int) -> None:
    """The documents in which one of ``numbers`` is the newest, or begun."""
    for version in store.history():
        state = store.read_serial(version.serial).table("orders")
        if {state.seq, state.intent.seq if state.intent else 0} & {*numbers}:
            store.blobs.delete(f"state/{version.serial}.json")


def accept(store: StateStore) -> StateDocument:
    return store.write(documents.with_definition_accepted(store.read(), "orders"))


def test_it_is_that_of_the_number_whatever_was_accepted_since(store: StateStore) -> None:
    first = with_run(store, DEFINITION)
    accept(store)
    second = with_run(store, BY_ID)
    store.write(roll_back(store.read(), store.read_serial(2)))  # has the definition of the first again
    assert cursors(store, first) == (["updated_at"], True)
    assert cursors(store, second) == (["id"], True)


def test_a_commit_that_was_never_recorded_had_that_of_its_intent(store: StateStore) -> None:
    first = with_run(store, DEFINITION)
    accept(store)
    with_run(store, BY_ID)
    store.blobs.delete("state/2.json")
    store.blobs.delete("state/3.json")
    assert cursors(store, first) == (["updated_at"], True)


def test_a_restoration_that_was_never_recorded_has_that_of_what_it_restored(store: StateStore) -> None:
    first = with_run(store, DEFINITION)
    with_run(store, BY_ID)
    assert cursors(store, replace(first, seq=3, intent_id="killed"), first) == (["updated_at"], True)


def test_one_that_is_no_longer_kept_lies_between_its_neighbours(store: StateStore) -> None:
    with_run(store, DEFINITION)
    second = with_run(store, DEFINITION)
    accept(store)
    with_run(store, BY_ID)
    with_run(store, DEFINITION)
    forget(store, 2)
    assert cursors(store, second) == (["id", "updated_at"], False)
    forget(store, 1)
    assert cursors(store, second) == (["id"], False)
    forget(store, 3, 4)
    store.write(committed(store.read(), "items", 21))
    assert cursors(store, second) == ([], False)


def test_another_lineage_tells_nothing(store: StateStore) -> None:
    first = with_run(store, DEFINITION)
    assert former_state(store, "another", [first]).states == ()


def test_a_document_that_cannot_be_read_ends_the_search(store: StateStore) -> None:
    first = with_run(store, DEFINITION)
    with_run(store, BY_ID)
    store.blobs.delete("state/3.json")
    store.blobs.create("state/3.json", b"{")
    assert cursors(store, first) == (["id"], False)
