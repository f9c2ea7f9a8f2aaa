"""What accepting a changed definition may continue, and what of the state no longer says anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition, NoPosition, OffsetsPosition
from flowctl.model.step import Stopped
from flowctl.model.table_info import Column
from flowctl.plan.acceptance import continued, refusal, with_columns_accepted
from flowctl.plan.definition import definition
from flowctl.spec.spec import ColumnRules
from tests.plan.stream_worlds import joined, running, step_of, stream_plan, stream_table
from tests.plan.worlds import (
    OLD,
    ORDERS,
    committed,
    high,
    intent,
    observed,
    recorded,
    source,
    step,
    table,
    target,
)

BASE = {"mode": "merge", "key": ["id"], "cursor": "updated_at", "to": "lake:orders"}


@pytest.mark.parametrize(
    ("before", "after", "position", "why"),
    [
        ({"mode": "truncate"}, {"mode": "scd2"}, OLD, "no history"),
        ({"mode": "scd2"}, {"mode": "scd2", "key": ["code"]}, OLD, "has another key"),
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
    said = refusal(recorded(table(), position), {**BASE, **before}, {**BASE, **after}, target())
    assert said is None if why is None else why in said


def test_a_definition_of_an_older_flowctl_that_lacks_mode_key_and_columns_can_be_continued():
    assert refusal(recorded(table(), OLD), {"to": "lake:orders"}, BASE, target()) is None


def test_a_target_whose_name_alone_has_changed_still_has_the_rows_of_the_former_key():
    moved = {**BASE, "to": "lake:other", "key": ["amount"]}
    state = recorded(table(), OLD)
    assert refusal(state, BASE, moved, None) is refusal(state, BASE, moved, target(identity="theirs")) is None
    assert refusal(state, BASE, moved, target(identity="delta-1")) is not None


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
    state = recorded(table(), OffsetsPosition(((0, 7),)))
    assert refusal(state, base, renamed, target()) is None
    for before, now in ((base, elsewhere), ({**base, "source_identity": ""}, renamed)):
        assert refusal(state, before, now, target()) is not None
    assert continued(state, base, renamed) == state


def test_another_topic_is_read_from_its_beginning():
    state = recorded(table(), OffsetsPosition(((0, 7),)))
    merged = {**TOPIC, "mode": "merge"}
    for changes in ({"from": {"topic": "u", "connection": "bus"}}, {"source_identity": "kafka:c/2"}):
        assert refusal(state, merged, {**merged, **changes}, target()) is None
        assert continued(state, merged, {**merged, **changes}).position is None


def test_a_position_belongs_to_its_cursor_and_a_target_id_to_its_target():
    state = recorded(table(), OLD)
    assert continued(state, BASE, {**BASE, "mode": "append"}) == state
    assert continued(state, BASE, {**BASE, "cursor": "id"}).position is None
    moved = continued(state, BASE, {**BASE, "to": "lake:other"})
    assert (moved.position, moved.target_id, moved.target_columns, moved.next_seq) == (None, "", (), state.next_seq)


def test_only_what_the_plan_stops_for_is_taken_as_no_new_name():
    spec = table(columns=ColumnRules(mask={"email": "sha256", "phone": "sha256"}))
    new = tuple(Column(name, types.STRING) for name in ("email", "phone", "note", "tel"))
    files = replace(source((*ORDERS, *new)), only_without={"email": ("note",), "phone": ("tel",)})
    state = recorded(spec, OLD, schema=(*ORDERS, *new[:2]))

    def stopped(state):
        made = step(spec, observed(high(FilesPosition(())), files, target(), committed(), positions="files"), state)
        return made.hint if isinstance(made, Stopped) and "some files" in made.reason else None

    def accepted(state, spec=spec):
        return with_columns_accepted(state, definition(spec, files), spec, files)

    first = accepted(state)
    assert [column.name for column in first.schema[-2:]] == ["phone", "note"]
    assert "else take it as it is with `flowctl state set " in stopped(state)
    assert '"note"' in stopped(state) and '"tel"' in stopped(first) and stopped(accepted(first)) is None
    other = table(columns=spec.columns, where="id > 1")
    assert accepted(state, other) == state
    begun = replace(state, intent=intent(spec, Interval(None, OLD)))
    assert accepted(begun) == begun and accepted(replace(state, schema=())).schema == ()


def test_a_definition_of_an_older_flowctl_that_lacks_a_part_has_not_changed_it():
    state = recorded(table(), OLD)
    assert continued(state, {"mode": "merge"}, BASE) == state
