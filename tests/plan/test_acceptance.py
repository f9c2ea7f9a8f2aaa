"""What accepting a changed definition may continue, and what of the state no longer says anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition, NoPosition, OffsetsPosition
from flowctl.model.step import Stopped
from flowctl.model.table_info import Column
from flowctl.plan.acceptance import accepted, continued, refusal, with_columns_accepted
from flowctl.plan.definition import definition
from flowctl.plan.document import action_of
from flowctl.spec.spec import ColumnRules
from flowctl.state.document import StateDocument
from tests.plan.stream_worlds import joined, running, step_of, stream_plan, stream_table
from tests.plan.worlds import (
    LINEAGE,
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    committed,
    high,
    intent,
    observed,
    recorded,
    source,
    step,
    table,
    target,
    unchanged_target,
)

BASE = {"mode": "merge", "key": ["id"], "cursor": "updated_at", "to": "lake:orders"}


def under(definition, position=OLD):
    """A table whose rows were written under ``definition``."""
    return replace(recorded(table(), position), definition=definition)


def after_accepting(state, wanted):
    """As `state set --accept-definition` leaves it."""
    return accepted(StateDocument(LINEAGE, tables={"orders": state}), "orders", wanted).table("orders")


@pytest.mark.parametrize(
    ("before", "after", "position", "why"),
    [
        ({"mode": "truncate"}, {"mode": "scd2"}, OLD, "no history"),
        ({"mode": "scd2"}, {"mode": "scd2", "key": ["code"]}, OLD, "has another key"),
        ({"mode": "scd2", "key": ["id", "code"]}, {"mode": "scd2", "key": ["code", "id"]}, OLD, None),
        ({"mode": "scd2", "valid_from": "at"}, {"mode": "scd2", "valid_from": "since"}, OLD, "(valid_from: at)"),
        ({"mode": "scd2", "valid_from": "now"}, {"mode": "scd2", "valid_from": "at"}, OLD, "(valid_from: now)"),
        ({"mode": "scd2", "valid_from": "at"}, {"mode": "scd2", "valid_from": "now"}, OLD, None),
        ({"mode": "scd2"}, {"mode": "scd2", "valid_from": "at"}, OLD, None),
        (
            {"mode": "scd2", "valid_from": "at"},
            {"mode": "scd2", "valid_from": "since", "columns": {"rename": {"at": "since"}}},
            OLD,
            None,
        ),
        (
            {"mode": "scd2", "valid_from": "commit"},
            {"mode": "scd2", "valid_from": "at", "from": {"object": "orders"}},
            OLD,
            "(valid_from: commit)",
        ),
        ({"mode": "scd2"}, {}, OLD, "several rows of one key"),
        ({"mode": "scd2"}, {"mode": "truncate"}, OLD, None),
        ({"mode": "append"}, {"mode": "append", "cursor": "id"}, OLD, "is not known"),
        ({"mode": "truncate"}, {"mode": "append"}, NoPosition(), "is not known"),
        ({"mode": "append"}, {"mode": "append", "to": "lake:other"}, OLD, None),
        ({}, {"mode": "append"}, OLD, None),
        ({"mode": "append"}, {}, OLD, "may hold several rows of one key"),
        ({"mode": "truncate"}, {}, OLD, "may hold several rows of one key"),
        ({}, {"key": ["amount"]}, OLD, 'the new key lacks "id"'),
        ({}, {"key": ["ID"]}, OLD, 'the new key lacks "id"'),
        ({"key": ["id", "amount"]}, {}, OLD, 'the new key lacks "amount"'),
        ({"key": ["id", "amount"]}, {"key": ["amount", "id"]}, OLD, None),
        ({}, {"key": ["id", "amount"]}, OLD, None),
        ({}, {"key": ["id", "ident"]}, OLD, 'have no "ident"'),
        ({"columns": {}}, {"columns": {"rename": {"ident": "id"}}}, OLD, None),
        ({"columns": {}}, {"columns": {"mask": {"id": "sha256"}}}, OLD, 'other values of "id"'),
        (
            {"columns": {"mask": {"id": "sha256"}}},
            {"columns": {"mask": {"ident": "sha256"}, "rename": {"ident": "id"}}},
            OLD,
            None,
        ),
        ({"mode": "scd2"}, {"mode": "scd2", "columns": {"mask": {"id": "sha256"}}}, OLD, 'other values of "id"'),
        ({"mode": "scd2"}, {"mode": "scd2", "columns": {"mask": {"amount": "sha256"}}}, OLD, None),
        ({"columns": {"add": {"id": "a"}}}, {"columns": {"add": {"id": "b"}}}, OLD, 'other values of "id"'),
        ({}, {"cursor": None}, OLD, None),
    ],
)
def test_what_cannot_be_continued_says_why(before, after, position, why):
    said = refusal(under({**BASE, **before}, position), {**BASE, **after}, target())
    assert said is None if why is None else why in said


def test_a_definition_of_an_older_flowctl_that_lacks_mode_key_and_columns_can_be_continued():
    assert refusal(under({"to": "lake:orders"}), BASE, target()) is None


def test_a_target_whose_name_alone_has_changed_still_has_the_rows_of_the_former_key():
    moved = {**BASE, "to": "lake:other", "key": ["amount"]}
    state = under(BASE)
    assert refusal(state, moved, None) is refusal(state, moved, target(identity="theirs")) is None
    assert refusal(state, moved, target(identity="delta-1")) is not None


def test_a_stream_under_another_key_is_replaced_as_a_new_snapshot_would_keep_the_key_that_is_recorded():
    spec = stream_table("orders")
    seen, state = joined(spec, 4)
    state = replace(state, definition={**state.definition, "key": ["amount"]})
    made = step_of(stream_plan(running({"orders": state}), [(spec, seen)]), "orders")
    assert "--full-refresh orders" in made.hint and "resnapshot" not in made.hint


TOPIC = {
    **BASE,
    "mode": "append",
    "cursor": None,
    "from": {"topic": "t", "connection": "bus"},
    "source_identity": "kafka:c/1",
}
STREAM = {**TOPIC, "from": {"stream": "s", "connection": "pg", "object": ["t"]}, "source_identity": "postgres:7/1/2"}


@pytest.mark.parametrize("base", [TOPIC, STREAM])
def test_a_connection_may_have_another_name(base):
    renamed = {**base, "from": {**base["from"], "connection": "other"}}
    elsewhere = {**renamed, "source_identity": "unknown:1/1"}
    at = OffsetsPosition(((0, 7),))
    assert refusal(under(base, at), renamed, target()) is None
    for before, now in ((base, elsewhere), ({**base, "source_identity": ""}, renamed)):
        assert refusal(under(before, at), now, target()) is not None
    assert continued(under(base, at), renamed) == under(base, at)


def test_another_topic_is_read_from_its_beginning():
    merged = {**TOPIC, "mode": "merge"}
    state = under(merged, OffsetsPosition(((0, 7),)))
    for changes in ({"from": {"topic": "u", "connection": "bus"}}, {"source_identity": "kafka:c/2"}):
        assert refusal(state, {**merged, **changes}, target()) is None
        assert continued(state, {**merged, **changes}).position is None


def test_a_position_belongs_to_its_cursor_and_a_target_id_to_its_target():
    state = under(BASE)
    assert continued(state, {**BASE, "mode": "append"}) == state
    assert continued(state, {**BASE, "cursor": "id"}).position is None
    moved = continued(state, {**BASE, "to": "lake:other"})
    assert (moved.position, moved.target_id, moved.target_columns, moved.next_seq) == (None, "", (), state.next_seq)


def test_only_what_the_plan_stops_for_is_taken_as_no_new_name():
    spec = table(columns=ColumnRules(mask={"email": "sha256", "phone": "sha256"}))
    new = tuple(Column(name, types.STRING) for name in ("email", "phone", "note", "tel"))
    files = replace(source((*ORDERS, *new)), only_without={"email": ("note",), "phone": ("tel",)})
    state = recorded(spec, OLD, schema=(*ORDERS, *new[:2]))

    def stopped(state):
        made = step(spec, observed(high(FilesPosition(())), files, target(), committed(), positions="files"), state)
        return made.hint if isinstance(made, Stopped) and "some files" in made.reason else None

    def taken(state, spec=spec):
        return with_columns_accepted(state, definition(spec, files), spec, files)

    first = taken(state)
    assert [column.name for column in first.schema[-2:]] == ["phone", "note"]
    assert "else take it as it is with `flowctl state set " in stopped(state)
    assert '"note"' in stopped(state) and '"tel"' in stopped(first) and stopped(taken(first)) is None
    other = table(columns=spec.columns, where="id > 1")
    assert taken(state, other) == state
    begun = replace(state, intent=intent(spec, Interval(None, OLD)))
    assert taken(begun) == begun and taken(replace(state, schema=())).schema == ()


def test_a_definition_of_an_older_flowctl_that_lacks_a_part_has_not_changed_it():
    state = under({"mode": "merge"})
    assert continued(state, BASE) == state


def test_a_definition_is_compared_with_the_accepted_one_until_a_run_commits():
    """Someone edits the spec, accepts, and edits it again."""
    spec, again = table(where="amount > 0"), table(where="amount > 1")
    state = after_accepting(recorded(table(), OLD), definition(spec, source()))
    seen = observed(high(NEW), **unchanged_target())
    assert action_of(step(spec, seen, state)) == "change"
    stopped = step(again, seen, state)
    assert stopped.reason == "the definition changed: where: amount > 0 → amount > 1"
    assert "continue from here with" in stopped.hint
    assert action_of(step(again, seen, after_accepting(state, definition(again, source())))) == "change"
    assert action_of(step(again, seen, state, REFRESH)) == "change"


def test_rows_that_no_run_has_written_under_an_accepted_definition_need_no_refresh():
    """A wrong definition is accepted, and then the one that the rows were written under."""
    truncate = {**BASE, "mode": "truncate", "key": []}
    state = after_accepting(under(BASE), truncate)
    assert refusal(state, BASE, target()) is None
    assert 'lacks "id"' in refusal(state, {**BASE, "key": ["amount"]}, target())
    begun = replace(state, intent=replace(intent(table(), Interval(None, OLD)), definition=truncate), given_up=False)
    assert "filled with mode truncate" in refusal(begun, BASE, target())
    assert "filled with mode truncate" in refusal(after_accepting(begun, truncate), BASE, target())


def test_a_position_follows_the_definition_accepted_last():
    append = {**BASE, "mode": "append"}
    by_id, other_rows = {**append, "cursor": "id"}, {**append, "cursor": "id", "where": "id > 1"}
    state = replace(after_accepting(under(append), by_id), position=OLD)  # given with --position
    assert refusal(state, other_rows, target()) is None and continued(state, other_rows).position == OLD
    assert "is not known" in refusal(state, append, target())
    assert continued(after_accepting(under(BASE), {**BASE, "cursor": "id"}), BASE).position is None


def test_a_target_that_was_left_and_returned_to_still_has_its_rows():
    state = after_accepting(under(BASE), {**BASE, "to": "lake:other"})
    assert refusal(state, {**BASE, "to": "lake:other", "key": ["amount"]}, None) is None
    assert 'lacks "id"' in refusal(state, {**BASE, "key": ["amount"]}, target())
