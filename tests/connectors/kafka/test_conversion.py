"""Messages as rows: those that fit, and as letters those that do not, whatever lies beside them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.kafka.conversion import Conversion, Payload
from flowctl.connectors.kafka.messages import Letter, Message, headers_from_text, headers_text, letters
from flowctl.connectors.kafka.schema_ids import Headers
from flowctl.connectors.letters import LETTER_COLUMNS
from flowctl.connectors.source import DELETED_COLUMN, TIME_COLUMN, TRUNCATED_COLUMN
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import reserved, types
from flowctl.model.table_info import Column
from tests.connectors.sinks import Rows

AT, EPOCH = dt.datetime(2026, 11, 25, 10, 0, 0, 123000, dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ID = Column("id", types.INT64)
OFFSET, KEY = Column("_offset", types.INT64), Column("_key", types.STRING)
#: Messages, and whether they are as declared.
KNOWN = {
    b'{"id": 1}': True,
    b"{}": True,
    b'{"id": null, "x": [1, {"y": 2}]}': True,
    b'{"id": 1.5}': False,
    b'{"id": "1"}': False,
    b"": False,
    b"nonsense": False,
    b'{"id": 1': False,
    b'} {"id": 2}': False,
    b'{"id": 1} {"id": 2}': False,
    b"\xff": False,
}


def message(offset: int, value: bytes | None, key: bytes | None = None, headers: Headers | None = None) -> Message:
    whole = {"_topic": "t", "_partition": 0, "_offset": offset, "_timestamp": AT, "_key": key, "_value": value}
    return Letter({**whole, "_headers": headers_text(headers), "_schema_id": None})


def delivered(messages: list[Message], *columns: Column) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows, and the letters by the names that they have when stored."""
    rows, rejected = Rows(), Rows()
    count = Conversion("t", Payload((ID,)), columns).deliver(messages, rows, rejected)
    assert count == len(rows.rows())
    prefix = len(reserved.PREFIX)
    return rows.rows(), [{name[prefix:]: value for name, value in row.items()} for row in rejected.rows()]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*KNOWN]), max_size=40))
def test_each_message_is_a_row_or_a_letter_in_order(values: list[bytes]) -> None:
    rows, rejected = delivered([message(at, value) for at, value in enumerate(values)], ID, OFFSET)
    assert [row["_offset"] for row in rows] == [at for at, value in enumerate(values) if KNOWN[value]]
    assert [(one["_offset"], one["_value"]) for one in rejected] == [
        (at, value) for at, value in enumerate(values) if not KNOWN[value]
    ]


def test_a_letter_is_the_whole_message() -> None:
    headers: Headers = [("a", b"x"), ("a", b"\xff"), ("b", None), ("", b"")]
    _, [found] = delivered([message(7, b"\xfe", b"\x00k", headers)], ID, OFFSET)
    assert list(found) == [column.name for column in LETTER_COLUMNS]
    assert (found["_topic"], found["_partition"], found["_offset"], found["_timestamp"]) == ("t", 0, 7, AT)
    assert (found["_key"], found["_value"], headers_from_text(found["_headers"])) == (b"\x00k", b"\xfe", headers)
    assert (found["_error"], found["_reason"]) == ("not_json", "not one JSON object")


@pytest.mark.parametrize(
    ("value", "key", "error", "reason"),
    [
        (b'{"id": "secret"}', None, "wrong_type", "id is not exactly bigint"),
        (b"secret", None, "not_json", "not one JSON object"),
        (b"{}", b"\xffsecret", "not_utf8", "the key is not UTF-8"),
    ],
)
def test_a_reason_shows_no_value(value: bytes, key: bytes | None, error: str, reason: str) -> None:
    _, [found] = delivered([message(0, b"{}"), message(1, value, key)], ID, KEY)
    assert (found["_error"], found["_reason"]) == (error, reason)
    with pytest.raises(TableError, match=f"message 1 of partition 0 of topic t: {reason}") as refused:
        Conversion("t", Payload((ID,)), (ID, KEY)).deliver([message(0, b"{}"), message(1, value, key)], Rows(), None)
    assert "secret" not in refused.value.sentences


def test_a_field_that_is_not_read_may_be_anything_whatever_lies_beside_it() -> None:
    payload = Payload((ID, Column("x", types.INT64)))
    for beside in ([], [message(1, b"nonsense")]):
        rows, rejected = Rows(), Rows()
        messages = [message(0, b'{"id": 1, "x": "text"}'), *beside]
        assert Conversion("t", payload, (ID,)).deliver(messages, rows, rejected) == 1
        assert len(rejected.rows()) == len(beside)


@pytest.mark.parametrize("name", ["value", "_value", "_topic"])
@pytest.mark.parametrize("kind", [types.STRING, types.TIMESTAMP])
def test_a_field_with_the_name_of_a_part_of_messages(name: str, kind: types.DataType) -> None:
    """The message itself is no text, and no field of it."""
    column, time = Column(name, kind), '"2026-11-25T10:00:00Z"'
    good, bad = (message(0, f'{{"{name}": {time}}}'.encode()), message(1, f'{{"{name}": {time}, "id": "x"}}'.encode()))
    latin = message(2, b'{"id": "\xff"}')
    rows, rejected = Rows(), Rows()
    assert Conversion("t", Payload((column, ID)), (column, ID)).deliver([good, bad, latin], rows, rejected) == 1
    assert [one["_flowctl_error"] for one in rejected.rows()] == ["wrong_type", "not_json"]
    keyed, rejected = Payload((ID,), of_key=(column,)), Rows()
    messages = [message(0, b'{"id": 1}', good.value()), message(1, b'{"id": "x"}', good.value())]
    assert Conversion("t", keyed, (column, ID)).deliver(messages, rows, rejected) == 1
    assert [one["_flowctl_reason"] for one in rejected.rows()] == ["id is not exactly bigint"]


@pytest.mark.parametrize("value", [b'{"op": "c", "after": {"x": 1}}', b'{"op": "d", "before": {"id": null}}'])
def test_a_change_of_a_row_without_its_key(value: bytes) -> None:
    rows, rejected = Rows(), Rows()
    payload = Payload((ID,), envelope="debezium", key=("id",))
    messages = [message(0, b'{"op": "c", "after": {"id": 1}}'), message(1, value)]
    assert Conversion("t", payload, (ID,)).deliver(messages, rows, rejected) == 1
    assert [one["_flowctl_error"] for one in rejected.rows()] == ["no_key"]


@pytest.mark.parametrize(
    ("envelope", "value"),
    [
        ("debezium", b'{"op": "c", "after": {"id": "7"}}'),
        ("debezium", b'{"payload": {"op": "d", "before": {"id": 1.5}}}'),
        ("maxwell", b'{"type": "insert", "data": {"id": "7"}}'),
    ],
)
def test_a_field_of_another_type_in_an_envelope(envelope: str, value: bytes) -> None:
    rejected = Rows()
    assert Conversion("t", Payload((ID,), envelope=envelope), (ID,)).deliver([message(0, value)], Rows(), rejected) == 0
    [found] = rejected.rows()
    assert (found["_flowctl_error"], found["_flowctl_reason"]) == ("wrong_type", "id is not exactly bigint")


def test_a_key_of_a_message_that_has_null() -> None:
    rows, rejected = Rows(), Rows()
    payload = Payload((Column("name", types.STRING),), of_key=(ID,), key=("id",))
    messages = [message(0, b"{}", b'{"id": 1}'), message(1, b"{}", b'{"id": null}'), message(2, None, None)]
    assert Conversion("t", payload, (ID,)).deliver(messages, rows, rejected) == 1
    assert [one["_flowctl_error"] for one in rejected.rows()] == ["no_key", "no_key"]


@dataclass(frozen=True)
class At(Letter):
    """A message with this time."""

    milliseconds: int = 0

    def timestamp(self) -> tuple[int, int]:
        return 1, self.milliseconds


def at(milliseconds: int) -> At:
    return At(message(1, b"{}").row, milliseconds)  # type: ignore[attr-defined]


@pytest.mark.parametrize("time", [1_764_000_000_000_000, -62_135_596_800_001])
def test_a_time_that_no_calendar_has(time: int) -> None:
    rows, rejected = delivered([message(0, b"{}"), at(time)], ID, Column("_timestamp", types.TIMESTAMP))
    assert len(rows) == 1
    assert [(one["_error"], one["_timestamp"]) for one in rejected] == [("no_time", None)]
    rows, rejected = delivered([at(time)], ID)
    assert (len(rows), rejected) == (1, [])


def test_a_message_without_a_time() -> None:
    """Other times before 1970 are times. Only a history needs one."""
    times = [at(-1), at(-2), at(0)]
    rows, rejected = delivered(times, Column("_timestamp", types.TIMESTAMP))
    assert [row["_timestamp"] for row in rows] == [None, EPOCH - dt.timedelta(milliseconds=2), EPOCH]
    assert rejected == []
    for needs_times in (False, True):
        payload = Payload((ID,), of_key=(Column("k", types.INT64),), key=("k",), needs_times=needs_times)
        messages = [At({**one.row, "_key": b'{"k": 1}'}, one.milliseconds) for one in times]
        made, letters = Rows(), Rows()
        Conversion("t", payload, (ID, Column(TIME_COLUMN, types.TIMESTAMP))).deliver(messages, made, letters)
        assert [one["_flowctl_error"] for one in letters.rows()] == ["no_time"] * needs_times
        assert len(made.rows()) == 3 - needs_times


def test_a_changed_key_in_a_topic_of_several_partitions() -> None:
    """Whether the old row's messages come before or after it cannot be known."""
    value = b'{"type": "update", "data": {"id": 2}, "old": {"id": 1}}'
    payload = Payload((ID,), envelope="maxwell", key=("id",))
    rows = Rows()
    assert Conversion("t", payload, (ID,)).deliver([message(0, value)], rows, None) == 2
    with pytest.raises(TableError, match="several partitions") as refused:
        Conversion("t", replace(payload, is_ordered=False), (ID,)).deliver([message(0, value)], rows, None)
    assert "producer_partition_by" in (refused.value.hint or "")


TRUNCATED = b'{"op": "t", "source": {"connector": "postgresql", "lsn": 7}}'
INSERTED = b'{"op": "c", "after": {"id": 1}, "source": {"connector": "postgresql", "lsn": 8}}'
CHANGE = (ID, Column(DELETED_COLUMN, types.BOOL), Column(TRUNCATED_COLUMN, types.BOOL))


@pytest.mark.parametrize("beside", [[], [b"nonsense", b'{"op": "c", "after": {"id": null}}']])
def test_a_truncate_is_a_row_without_a_key(beside: list[bytes]) -> None:
    payload = Payload((ID,), envelope="debezium", key=("id",), on_truncate="apply")
    rows, rejected = Rows(), Rows()
    messages = [message(at, value) for at, value in enumerate([INSERTED, TRUNCATED, *beside])]
    assert Conversion("t", payload, CHANGE).deliver(messages, rows, rejected) == 2
    assert [tuple(row.values()) for row in rows.rows()] == [(1, False, False), (None, False, True)]
    assert len(rejected.rows()) == len(beside)


@pytest.mark.parametrize("rejected", [None, Rows()])
def test_a_truncate_that_must_stop_the_table_is_no_dead_letter(rejected: Rows | None) -> None:
    ordered = Payload((ID,), envelope="debezium", key=("id",), on_truncate="apply", has_source_order=True)
    unordered = replace(ordered, has_source_order=False, is_ordered=False)
    failing = replace(ordered, on_truncate="fail")
    messages = [message(0, INSERTED), message(1, TRUNCATED)]
    assert Conversion("t", replace(ordered, is_ordered=False), (ID,)).deliver(messages, Rows(), rejected) == 2
    for payload, why, way in [
        (unordered, "which messages of the other partitions come before that is not known", "source_order: true"),
        (failing, r"\(on_truncate: fail\)", "on_truncate: apply"),
        (replace(failing, key=()), r"\(on_truncate: fail\)", "ignore"),
    ]:
        with pytest.raises(StoppedByPolicy, match=f"message 1 of partition 0 of topic t.*{why}") as refused:
            Conversion("t", payload, (ID,)).deliver(messages, Rows(), rejected)
        assert way in (refused.value.hint or "")


@pytest.mark.parametrize("choice", ["apply", "ignore"])
def test_a_truncate_is_ignored_or_appended(choice: str) -> None:
    columns = (ID, Column("_op", types.STRING))
    payload = Payload((ID,), envelope="debezium", on_truncate=choice, is_ordered=False)
    messages = [message(0, INSERTED), message(1, TRUNCATED), message(2, None)]
    rows = Rows()
    Conversion("t", payload, columns).deliver(messages, rows, None)
    assert [tuple(row.values()) for row in rows.rows()] == [(1, "I"), (None, "T")]
    if choice == "ignore":
        rows = Rows()
        Conversion("t", replace(payload, key=("id",)), columns).deliver(messages, rows, None)
        assert [tuple(row.values()) for row in rows.rows()] == [(1, "I")]


def test_a_stored_letter_is_the_message_that_it_was() -> None:
    sent = message(5, b"\xff", b"k", [("h", b"\x00"), ("h", None)])
    _, [stored] = delivered([sent], ID)
    [again] = letters(pa.RecordBatch.from_pylist([stored], arrow_schema(LETTER_COLUMNS)))
    for part in ("topic", "partition", "offset", "timestamp", "key", "value", "headers"):
        assert getattr(again, part)() == getattr(sent, part)()


def test_a_message_without_headers_has_none() -> None:
    assert headers_text([]) is None
    assert headers_from_text(None) is None
