"""Changes to a flow's state: what moves, what stays, and that numbers only rise."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flowctl.errors import StateConflict
from flowctl.model.commit import Commit
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, new_document
from flowctl.state.letters import PassedLetters, Replay, passed_at
from flowctl.state.rollback import roll_back
from flowctl.state.streams import resnapshot
from tests.state.examples import DEFINITION, ID, RECORDED, UPDATED_AT, at, commit_of, committed, intent

INFO = TableInfo(ObjectName(("orders",)), (ID, UPDATED_AT), identity="table-2", version=9)
REPLAY = Replay(3, "lake:orders__dead_letters")


def begun(day: int = 20) -> StateDocument:
    return documents.with_intents(committed(new_document(), "orders", 19), {"orders": intent(2, day)})


def test_a_flow_that_never_ran_has_a_lineage_of_its_own() -> None:
    assert new_document().lineage != new_document().lineage
    assert new_document().table("orders").next_seq == 1


def test_a_commit_records_the_targets_position_and_ends_the_intent() -> None:
    document = documents.with_commit(begun(), commit_of(begun(), "orders"), RECORDED)
    table = document.table("orders")
    assert (table.seq, table.position, table.intent) == (2, at(20), None)
    assert (table.definition, table.schema, table.target_version) == (DEFINITION, (ID, UPDATED_AT), 2)


def test_the_position_comes_from_the_targets_record_not_from_the_intent() -> None:
    document = begun(day=20)
    landed = dataclasses.replace(commit_of(document, "orders"), position=at(18))
    assert documents.with_commit(document, landed, RECORDED).table("orders").position == at(18)


def test_a_void_uses_up_the_number_and_moves_nothing_else() -> None:
    document = documents.with_commit(begun(), commit_of(begun(), "orders", void=True), RECORDED)
    table = document.table("orders")
    assert (table.seq, table.position, table.intent, table.next_seq) == (2, at(19), None, 3)


def test_letters_are_read_again_until_a_commit_has_read_them() -> None:
    asked = documents.with_replay(begun(), "orders", REPLAY)
    kept = documents.with_commit(asked, commit_of(asked, "orders"), RECORDED)
    assert (kept.table("orders").replay, kept.table("orders").passed) == (REPLAY, ())
    reading = intent(3, 21)
    reading = dataclasses.replace(reading, interval=dataclasses.replace(reading.interval, letters=2))
    document = documents.with_intents(kept, {"orders": reading})
    void = documents.with_commit(document, commit_of(document, "orders", void=True), RECORDED)
    assert (void.table("orders").replay, void.table("orders").passed) == (REPLAY, ())
    done, settled = documents.with_commit(document, commit_of(document, "orders"), RECORDED), (PassedLetters(1, 2),)
    assert (done.table("orders").replay, done.table("orders").passed) == (None, settled)
    assert roll_back(done, kept).table("orders").passed == settled
    assert documents.reset(done, "orders").table("orders").passed == settled
    given_up = documents.with_definition_accepted(document, "orders")  # and then it turns out to be committed
    late = documents.with_commit(given_up, commit_of(document, "orders"), RECORDED)
    assert (late.table("orders").replay, late.table("orders").passed) == (None, settled)
    adopted = documents.adopt(document, "orders", INFO, commit_of(document, "orders"), ())
    assert (adopted.table("orders").replay, adopted.table("orders").passed) == (None, settled)


def test_content_begun_anew_settles_all_letters() -> None:
    for change in ({"replaces": True}, {"target_id": ""}):
        begun_anew = dataclasses.replace(intent(2, 20), **change)
        document = documents.with_replay(committed(new_document(), "orders", 19), "orders", REPLAY)
        document = documents.with_intents(document, {"orders": begun_anew})
        done = documents.with_commit(document, commit_of(document, "orders"), RECORDED).table("orders")
        assert (done.replay, done.passed) == (None, (PassedLetters(1, 1),))


def test_letters_of_another_place_count_until_they_were_read_there() -> None:
    reading = dataclasses.replace(intent(2, 20), letters_at="b")
    reading = dataclasses.replace(reading, interval=dataclasses.replace(reading.interval, letters=1))
    document = documents.with_intents(committed(new_document(), "orders", 19), {"orders": reading})
    passed = documents.with_commit(document, commit_of(document, "orders"), RECORDED).table("orders").passed
    assert (passed_at(passed, "b"), passed_at(passed, "a")) == ([(1, 1)], [])


def test_letters_of_a_try_in_another_place_do_not_count() -> None:
    """The place where the number's last try keeps them does, whatever was there before."""
    document = committed(new_document(), "orders", 19)
    places, tried = ("a", "b", "a", "c"), intent(2, 20)
    for place in places:
        document = documents.with_intents(document, {"orders": dataclasses.replace(tried, letters_at=place)})
    done = documents.with_commit(document, commit_of(document, "orders"), RECORDED).table("orders").passed
    assert {place: passed_at(done, place) for place in places} == {"a": [(2, 2)], "b": [(2, 2)], "c": []}
    void = documents.with_commit(document, commit_of(document, "orders", void=True), RECORDED).table("orders").passed
    assert passed_at(void, "c") == [(2, 2)]


def test_letters_of_commits_that_the_target_has_no_longer_do_not_count() -> None:
    document = committed(committed(committed(new_document(), "orders", 18), "orders", 19), "orders", 20)
    restored = Commit(document.lineage, "orders", 1, "first", "table-2", at(18))
    document = documents.adopt(document, "orders", INFO, restored, INFO.columns)
    assert passed_at(document.table("orders").passed, "a") == [(2, 3)]
    newest = dataclasses.replace(restored, seq=3, restored=1)  # as Delta has it
    assert documents.adopt(document, "orders", INFO, newest, INFO.columns).table("orders").passed == (
        PassedLetters(2, 3),
    )
    late = Commit(document.lineage, "orders", 3, "third", "table-2", at(20))  # it was not gone
    document = documents.adopt(document, "orders", INFO, late, INFO.columns)
    assert passed_at(document.table("orders").passed, "a") == [(2, 2)]


def test_a_replay_that_is_withdrawn_is_not_finished_either() -> None:
    reading = dataclasses.replace(intent(2, 20), interval=dataclasses.replace(intent(2, 20).interval, letters=1))
    for pending, given_up in ((reading, True), (intent(2, 20), False)):
        document = documents.with_intents(committed(new_document(), "orders", 19), {"orders": pending})
        document = documents.with_replay(document, "orders", REPLAY)
        assert documents.with_replay(document, "orders", None).table("orders").given_up == given_up


def test_a_number_is_begun_by_one_intent_only() -> None:
    document = begun()
    with pytest.raises(StateConflict, match=r"sequence number 2 of run .* was begun but not finished"):
        documents.with_intents(document, {"orders": intent(3, 21)})
    pending = document.table("orders").intent
    assert pending is not None
    assert documents.with_intents(document, {"orders": pending}) == document


def test_a_used_number_is_never_begun_again() -> None:
    document = committed(new_document(), "orders", 19)
    with pytest.raises(StateConflict, match="sequence number 1 was used before"):
        documents.with_intents(document, {"orders": intent(1, 20)})


def test_a_withdrawn_number_is_not_used_again() -> None:
    document = documents.without_intents(begun(), ["orders"])
    assert (document.table("orders").seq, document.table("orders").next_seq) == (1, 3)


def test_a_number_that_was_given_up_and_withdrawn_gives_up_no_other() -> None:
    given_up = documents.with_position(begun(), "orders", None)
    document = documents.with_intents(documents.without_intents(given_up, ["orders"]), {"orders": intent(3, 20)})
    pending = document.table("orders").pending
    assert pending is not None and pending.seq == 3


def test_a_target_below_the_recorded_number_is_a_conflict() -> None:
    document = committed(committed(new_document(), "orders", 19), "orders", 20)
    older = Commit(document.lineage, "orders", 1, "older", "table-1", at(19))
    with pytest.raises(StateConflict, match="below the recorded 2"):
        documents.with_commit(document, older, RECORDED)


def test_set_moves_the_position_and_keeps_the_number() -> None:
    table = documents.with_position(committed(new_document(), "orders", 19), "orders", at(1)).table("orders")
    assert (table.seq, table.position, table.definition, table.given_up) == (1, at(1), DEFINITION, False)


@pytest.mark.parametrize("landed", [False, True], ids=["voided", "landed after all"])
def test_a_pending_intent_does_not_undo_set(landed: bool) -> None:
    document = documents.with_position(begun(), "orders", at(1))
    assert document.table("orders").given_up
    done = documents.with_commit(document, commit_of(document, "orders", void=not landed), RECORDED).table("orders")
    assert (done.seq, done.position, done.intent, done.given_up) == (2, at(1), None, False)


def test_reset_forgets_all_but_the_number_and_whose_it_is() -> None:
    before = committed(new_document(), "orders", 19)
    table = documents.reset(before, "orders").table("orders")
    kept = before.table("orders")
    assert table == documents.TableState(
        seq=1, intent_id=kept.intent_id, target_id=kept.target_id, highest=kept.highest, last_run=kept.last_run
    )
    assert table.forgotten
    assert table.next_seq == 2


def test_an_accepted_definition_is_what_the_next_plan_finds() -> None:
    table = documents.with_definition_accepted(committed(new_document(), "orders", 19), "orders").table("orders")
    assert (table.definition, table.position, table.forgotten) == ({}, at(19), False)


def test_an_accepted_definition_is_kept_until_a_commit_records_it() -> None:
    two = ({"mode": "append"}, {"mode": "merge"})
    document = documents.with_definition_accepted(committed(new_document(), "orders", 19), "orders", two)
    document = documents.with_intents(document, {"orders": intent(2, 20)})
    voided = documents.with_commit(document, commit_of(document, "orders", void=True), RECORDED)
    done = documents.with_commit(document, commit_of(document, "orders"), RECORDED)
    assert (voided.table("orders").accepted, done.table("orders").accepted) == (two, ())
    assert done.table("orders").definition == RECORDED.definition
    again = resnapshot(voided, ["orders"], append_again=False).table("orders")
    assert (again.accepted, again.position) == (two, None)


def test_rollback_takes_the_old_position_and_the_new_number() -> None:
    old = committed(new_document(), "orders", 18)
    now = committed(committed(old, "orders", 19), "orders", 20)
    table = roll_back(now, old).table("orders")
    assert (table.seq, table.position, table.intent_id) == (3, at(18), now.table("orders").intent_id)


def test_rollback_keeps_the_numbers_of_tables_the_old_version_does_not_know() -> None:
    old = committed(new_document(), "orders", 18)
    now = committed(old, "customers", 19)
    table = roll_back(now, old).table("customers")
    assert (table.seq, table.forgotten) == (1, True)


def test_rollback_keeps_a_pending_intent_to_be_given_up() -> None:
    old = committed(new_document(), "orders", 18)
    now = documents.with_intents(old, {"orders": intent(2, 20)})
    table = roll_back(now, old).table("orders")
    assert table.intent == now.table("orders").intent
    assert (table.given_up, table.next_seq) == (True, 3)


def test_adopt_takes_number_and_position_of_a_target_that_is_ahead() -> None:
    document = committed(new_document(), "orders", 18)
    ahead = Commit(document.lineage, "orders", 5, "other", "table-2", at(20))
    table = documents.adopt(document, "orders", INFO, ahead, INFO.columns).table("orders")
    assert (table.seq, table.intent_id, table.position, table.next_seq) == (5, "other", at(20), 6)
    assert (table.target_id, table.target_version, table.target_columns) == ("table-2", 9, (ID, UPDATED_AT))


def test_adopt_of_a_target_that_was_set_back_does_not_use_numbers_again() -> None:
    document = committed(committed(committed(new_document(), "orders", 18), "orders", 19), "orders", 20)
    restored = Commit(document.lineage, "orders", 1, "first", "table-2", at(18))
    table = documents.adopt(document, "orders", INFO, restored, INFO.columns).table("orders")
    assert (table.seq, table.position, table.next_seq) == (1, at(18), 4)


def test_adopt_of_a_target_without_a_record_starts_at_the_given_position() -> None:
    document = documents.adopt(new_document(), "orders", INFO, None, INFO.columns)
    table = documents.with_position(document, "orders", at(5)).table("orders")
    assert (table.seq, table.position, table.target_id, table.next_seq) == (0, at(5), "table-2", 1)


def test_adopt_ends_the_intent_that_the_target_has_and_gives_up_another() -> None:
    document = begun()
    landed = commit_of(document, "orders")
    assert documents.adopt(document, "orders", INFO, landed, INFO.columns).table("orders").intent is None
    older = Commit(document.lineage, "orders", 1, "first", "table-1", at(19))
    assert documents.adopt(document, "orders", INFO, older, INFO.columns).table("orders").given_up


class Numbers(RuleBasedStateMachine):
    """Random sequences of everything that changes one table, with a target that records what was committed."""

    @initialize()
    def start(self) -> None:
        self.document = committed(new_document(), "orders", 1)
        self.versions = [self.document]
        self.used: dict[int, str] = {1: self.document.table("orders").intent_id}
        self.highest_next = self.document.table("orders").next_seq

    @property
    def table(self) -> documents.TableState:
        return self.document.table("orders")

    def become(self, document: StateDocument) -> None:
        self.document = document
        self.versions.append(document)

    @precondition(lambda self: self.table.intent is None)
    @rule(day=st.integers(1, 28))
    def begin(self, day: int) -> None:
        new = intent(self.table.next_seq, day)
        assert new.seq not in self.used, "a number belongs to one intent for ever"
        self.used[new.seq] = new.id
        self.become(documents.with_intents(self.document, {"orders": new}))

    @precondition(lambda self: self.table.intent is not None)
    @rule(void=st.booleans())
    def finish(self, void: bool) -> None:
        self.become(documents.with_commit(self.document, commit_of(self.document, "orders", void=void), RECORDED))

    @precondition(lambda self: self.table.intent is not None and not self.table.given_up)
    @rule()
    def withdraw(self) -> None:
        self.become(documents.without_intents(self.document, ["orders"]))

    @rule(day=st.integers(1, 28))
    def set_position(self, day: int) -> None:
        self.become(documents.with_position(self.document, "orders", at(day)))

    @rule()
    def accept_definition(self) -> None:
        self.become(documents.with_definition_accepted(self.document, "orders"))

    @rule()
    def reset(self) -> None:
        self.become(documents.reset(self.document, "orders"))

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        self.become(roll_back(self.document, data.draw(st.sampled_from(self.versions))))

    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        """The target may have been restored to any number that was ever used, or replaced by a foreign table."""
        seq = data.draw(st.sampled_from([None, *self.used]))
        found = Commit(self.document.lineage, "orders", seq, self.used[seq], "table-2", at(2)) if seq else None
        self.become(documents.adopt(self.document, "orders", INFO, found, INFO.columns))

    @invariant()
    def numbers_only_rise(self) -> None:
        assert self.table.next_seq >= self.highest_next
        assert self.table.next_seq > max(self.used)
        self.highest_next = self.table.next_seq


Numbers.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestNumbersOnlyRise = Numbers.TestCase
