"""What `state adopt` takes over: position and definition of the target itself, not of another one of the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowctl.model.commit import Commit
from flowctl.plan.case import Case
from flowctl.plan.definition import definition
from flowctl.run.adopt import Adoption, adopt
from flowctl.spec.spec import TableSpec, TargetRef
from flowctl.state.document import StateDocument, TableState
from flowctl.state.store import StateStore
from tests.plan.worlds import LAKE, LINEAGE, NEW, OLD, committed, observed, recorded, source, table, target
from tests.storage.stores import StoreAddress

ORDERS, MOVED = table(), table(target=TargetRef("lake", ("other",)))
APPENDED = replace(ORDERS, mode="append", key=())


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(StoreAddress(str(tmp_path)).client())


def written(store: StateStore, *states: TableState) -> StateDocument:
    """The log in which the table had these states, one after the other."""
    document = StateDocument(LINEAGE)
    for state in states:
        document = store.write(replace(document, tables={"orders": state}))
    return document


def adopted(store: StateStore, spec: TableSpec, commit: Commit | None, *states: TableState, **there: Any) -> Adoption:
    """After those states, where the target is ``there``."""
    document = written(store, *states)
    seen = observed(target=target(**there), commit=commit)
    return adopt(document, Case(spec, seen, document.table("orders"), LAKE), store)


def run_of(spec: TableSpec, seq: int, **keys: Any) -> TableState:
    return recorded(spec, OLD if seq == 3 else NEW, seq=seq, intent_id=f"i{seq}", highest=seq, **keys)


def test_the_record_of_another_target_tells_no_position(store: StateStore) -> None:
    """Back to the first `to`. In a database, the newest commit is that of the second one."""
    states = run_of(ORDERS, 3), run_of(MOVED, 4, target_id="delta-2")
    made = adopted(store, ORDERS, committed(4, "i4", NEW, target_id="delta-2"), *states)
    state = made.document.table("orders")
    assert (made.is_another, state.position, state.seq, state.target_id) == (True, None, 4, "delta-1")
    assert state.definition == definition(ORDERS, source())


@pytest.mark.parametrize("commit", [None, committed(3, "i3", OLD)])
def test_a_foreign_target_gets_neither_position_nor_definition_of_the_former_one(
    store: StateStore, commit: Commit | None
) -> None:
    made = adopted(store, MOVED, commit, run_of(ORDERS, 3), identity="theirs")
    state = made.document.table("orders")
    assert (made.is_another, state.position, state.definition) == (True, None, {})


def test_of_a_reset_table_nobody_knows_which_target_the_record_is_of(store: StateStore) -> None:
    state = TableState(seq=3, intent_id="i3", target_id="delta-2", highest=3)
    assert adopted(store, ORDERS, committed(3, "i3", OLD, target_id="delta-2"), state).is_another


@pytest.mark.parametrize(
    ("spec", "commit", "identity"),
    [
        (ORDERS, committed(3, "i3", OLD), "restored"),
        (ORDERS, None, "restored"),
        (MOVED, committed(3, "i3", OLD), "delta-1"),
    ],
)
def test_a_restored_or_renamed_target_keeps_its_position(
    store: StateStore, spec: TableSpec, commit: Commit | None, identity: str
) -> None:
    made = adopted(store, spec, commit, run_of(ORDERS, 3), identity=identity)
    state = made.document.table("orders")
    assert (made.is_another, state.position, state.definition["to"]) == (False, OLD, str(spec.target))


def test_rows_keep_the_definition_that_they_were_written_under(store: StateStore) -> None:
    """A backup from before a full refresh that made a merge of it."""
    made = adopted(store, ORDERS, committed(3, "i3", OLD), run_of(APPENDED, 3), run_of(ORDERS, 4))
    state = made.document.table("orders")
    assert (made.is_another, state.position, state.definition["mode"]) == (False, OLD, "append")


def test_a_number_that_state_does_not_have_was_written_under_what_it_has(store: StateStore) -> None:
    """The state was restored from a backup, and the mode of the spec is another one now."""
    made = adopted(store, ORDERS, committed(5, "i5", NEW), run_of(APPENDED, 3))
    assert (made.document.table("orders").seq, made.document.table("orders").definition["mode"]) == (5, "append")


def test_a_table_that_has_its_former_id_again_does_not_append_from_its_own_last_position(store: StateStore) -> None:
    own = run_of(APPENDED, 3, last_run="20261119T221004Z-aaaaaa")
    other = run_of(APPENDED, 4, last_run="20261120T061533Z-aaaaaa")
    document = store.write(StateDocument(LINEAGE, tables={"orders": own, "sales": other}))
    seen = observed(target=target(), commit=committed(3, "i3", OLD))
    made = adopt(document, Case(APPENDED, seen, own, LAKE, left={"sales": other}), store)
    state = made.document.table("orders")
    assert (made.is_another, made.other and made.other.id) == (False, "sales")
    assert (state.position, state.last_run, state.definition["mode"]) == (None, other.last_run, "append")
