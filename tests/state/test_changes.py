"""Changes as people see them, positions as people write them."""

from __future__ import annotations

import pytest

from flowctl.errors import UsageError
from flowctl.model import types
from flowctl.model.position import CursorPosition, NoPosition, OffsetsPosition, Position, VersionPosition
from flowctl.model.value import TypedValue, from_text
from flowctl.state import document as documents
from flowctl.state.changes import differences, position_from_text, render
from flowctl.state.document import TableState, new_document
from tests.state.examples import DEFINITION, ID, UPDATED_AT, at, committed, intent

SEVEN = CursorPosition(TypedValue(types.INT64, 7))
LOCAL = CursorPosition(from_text(types.TIMESTAMP_NTZ, "2026-01-01"))
RECORDED = TableState(definition=DEFINITION, schema=(ID, UPDATED_AT))


@pytest.mark.parametrize(
    ("text", "table", "position"),
    [
        ("beginning", TableState(position=at(20)), None),
        ("full", TableState(), NoPosition()),
        ("2026-11-05T00:00:00Z", TableState(position=at(20)), at(5)),
        ("2026-11-05", TableState(position=at(20)), at(5)),
        ("7", TableState(position=CursorPosition(TypedValue(types.INT64, 1))), SEVEN),
        ("12", TableState(position=VersionPosition(3)), VersionPosition(12)),
        ("2026-11-05T01:00:00+01:00", RECORDED, at(5)),
        ('{"kind": "cursor", "type": "int64", "value": "7"}', TableState(), SEVEN),
    ],
)
def test_a_position_is_read_with_the_type_that_is_known(
    text: str, table: TableState, position: Position | None
) -> None:
    assert position_from_text(text, table) == position


def test_a_truncate_that_was_applied_stays_so_wherever_the_messages_are_read_from() -> None:
    table = TableState(position=OffsetsPosition(((0, 9),), "007"))
    assert position_from_text('{"kind": "offsets", "offsets": {"0": 1}}', table) == OffsetsPosition(((0, 1),), "007")
    forgotten = '{"kind": "offsets", "offsets": {"0": 1}, "truncated": ""}'
    assert position_from_text(forgotten, table) == OffsetsPosition(((0, 1),))


def test_a_table_that_never_ran_takes_the_cursors_type() -> None:
    assert position_from_text("7", TableState(), types.INT64) == SEVEN


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("yesterday", TableState(position=at(20))),
        ("7", TableState()),
        ('{"kind": "tea"}', TableState()),
        ("{", TableState()),
        *(
            (f'{{"kind": "version", "version": {number}}}', TableState())
            for number in ('"3"', "-1", "1.5", "true", 2**63)
        ),
        ("-3", TableState(position=VersionPosition(3))),
        ('{"kind": "version", "version": 3, "table": 7}', TableState()),
        ('{"kind": "cursor", "type": "int64", "value": 1.5}', TableState()),
        ('{"kind": "cursor", "type": "string", "value": 7}', TableState()),
        (str(2**63), TableState(position=SEVEN)),
        ("2026-01-01T02:00:00+05:00", TableState(position=LOCAL)),
        ("2026-01-01T02:00:00.1234567", TableState(position=LOCAL)),
        ("2026-01-01T02:00:00.0000001Z", TableState(position=at(20))),
        ('{"kind": "cursor", "type": "timestamp[us]", "value": "2026-01-01T02:00:00Z"}', TableState()),
        ('{"kind": "cursor", "type": 7, "value": "7"}', TableState()),
        ('{"kind": "cursor", "type": "int64", "value": "7", "ties": {"columns": [], "rows": []}}', TableState()),
        ('{"kind": "cursor", "type": "int64", "value": "7", "tie_hashes": [1]}', TableState()),
        ('{"kind": "offsets", "offsets": {"0": -1}}', TableState()),
        ('{"kind": "offsets", "offsets": {"-1": 0}}', TableState()),
        ('{"kind": "offsets", "offsets": [1]}', TableState()),
        ('{"kind": "files", "files": [["a.csv", "12", "t"]]}', TableState()),
        ('{"kind": "files", "log": 3, "count": 1}', TableState()),
        ('{"kind": "upstream", "sequences": {"orders": null}}', TableState()),
        ('{"kind": "landed", "batch": -1, "at": "", "since": ""}', TableState()),
        ('{"kind": "lsn", "lsn": "-1/0"}', TableState()),
        ('{"kind": "binlog", "at": 7}', TableState()),
    ],
)
def test_a_text_that_is_no_position_says_how_to_write_one(text: str, table: TableState) -> None:
    with pytest.raises(UsageError) as refusal:
        position_from_text(text, table)
    assert '"kind": "cursor"' in refusal.value.hint


def test_differences_are_shown_by_table_and_field() -> None:
    before = documents.with_intents(committed(new_document(), "orders", 19), {"orders": intent(2, 20)})
    after = documents.with_position(documents.reset(before, "orders"), "orders", at(1))
    assert render(differences(before, after)) == [
        "~ orders",
        "    position            2026-11-19 00:00 UTC → 2026-11-01 00:00 UTC",
        "    definition          recorded → as the next plan finds it",
        "    schema              2 columns → 0 columns",
        "    target columns      2 columns → 0 columns",
        "    target version      1 → none",
        "    given up            to be finished → to be given up",
    ]
    assert differences(before, before) == []
