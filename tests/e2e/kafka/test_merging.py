"""Topics of changes, merged: the target is what the last message of each key says, whatever is killed."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from flowctl.crashpoints import POINTS, Point
from tests.e2e.flows import Flow
from tests.e2e.kafka.test_topics import write_tables
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, in_turn, kinds_with, place
from tests.services import kafka

Form = Literal["keys", "debezium", "maxwell"]
FORMATS: dict[Form, str] = {
    "keys": "{type: json, schema: {name: string}, key: {schema: {id: bigint}}}",
    "debezium": "{type: json, schema: {id: bigint, name: string}, envelope: debezium}",
    "maxwell": "{type: json, schema: {id: bigint, name: string}, envelope: maxwell}",
}
COLUMNS = ("id", "name")


class Customers:
    """Rows that change at random, and the messages that tell of it."""

    def __init__(self, address: str, topic: str, form: Form, partitions: int = 2) -> None:
        self.address, self.topic, self.form, self.partitions = address, topic, form, partitions
        self.rows: dict[int, str] = {}
        self.chance = random.Random(form)
        self.count = 0
        kafka.create_topic(address, topic, partitions)

    def change(self, times: int) -> None:
        with kafka.producer(self.address) as made:
            for _ in range(times):
                self.count += 1
                id = self.chance.randrange(20)
                partition = id % self.partitions
                for value in self._changed(id, f"n{self.count}"):
                    made.produce(self.topic, value, json.dumps({"id": id}).encode(), partition)
                made.poll(0)

    def _changed(self, id: int, name: str) -> list[bytes | None]:
        before = self.rows.get(id)
        if before is not None and self.chance.random() < 0.3:
            del self.rows[id]
            return self._messages("d", {"id": id, "name": before}, None)
        self.rows[id] = name
        old = {"id": id, "name": before} if before is not None else None
        return self._messages("u" if old else "c", old, {"id": id, "name": name})

    def _messages(self, op: str, before: Any, after: Any) -> list[bytes | None]:
        match self.form:
            case "keys":
                return [json.dumps({"name": after["name"]}).encode() if after else None]
            case "debezium":
                change = {"before": before, "after": after, "op": op, "ts_ms": self.count}
                whole = {"schema": {}, "payload": change} if self.count % 2 else change
                return [json.dumps(whole).encode(), *([None] if op == "d" else [])]
            case "maxwell":
                kind = {"c": "insert", "u": "update", "d": "delete"}[op]
                old = {"old": {"name": before["name"]}} if op == "u" else {}
                return [json.dumps({"type": kind, "data": after or before, **old}).encode()]

    def must_be_in(self, target: TargetPlace) -> None:
        assert target.rows(COLUMNS) == sorted(self.rows.items(), key=repr)


def write_flow(flow: Flow, address: str, topic: str, target: TargetPlace, form: Form, more: str = "") -> None:
    table = f"{{from: bus:{topic}, format: {FORMATS[form]}, to: out:{target.object}, mode: merge, key: [id]{more}}}"
    write_tables(flow, address, target.connection, f"  customers: {table}")


@pytest.mark.full
@pytest.mark.parametrize(("kind", "form"), in_turn(FORMATS, kinds_with("merge")))
def test_a_killed_merge_ends_at_the_last_message_of_each_key(
    kind: Kind,
    form: Form,
    tmp_path: Path,
    databases: Databases,
    kafka_broker: str,
    topic: str,
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    customers = Customers(kafka_broker, topic, form)
    write_flow(flow, kafka_broker, topic, target, form)
    for point in POINTS:
        customers.change(60)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        customers.change(10)
        flow.apply()
        customers.must_be_in(target)
    assert flow.actions() == {"customers": "none"}


@pytest.mark.full
@pytest.mark.parametrize("point", [None, "after_stage", "after_commit"])
def test_a_key_that_moved_to_an_added_partition(
    point: Point | None, tmp_path: Path, kafka_broker: str, topic: str
) -> None:
    """The offsets of its newer messages are lower."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    customers = Customers(kafka_broker, topic, "keys", 1)
    write_flow(flow, kafka_broker, topic, target, "keys")
    customers.change(60)
    flow.apply()
    customers.change(60)
    kafka.add_partitions(kafka_broker, topic, 2)
    customers.partitions = 2
    customers.change(40)
    if point:
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        customers.change(20)
    flow.apply()
    customers.must_be_in(target)
    customers.change(20)
    flow.apply()
    customers.must_be_in(target)


@pytest.mark.full
def test_tombstones_delete_softly_and_a_rewind_ends_where_it_was(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    customers = Customers(kafka_broker, topic, "keys")
    check = "expect: [{column: name, not_null: true, on_fail: quarantine}]"  # a deletion has no name
    write_flow(flow, kafka_broker, topic, target, "keys", f", deletes: {{action: soft}}, dead_letters: {{}}, {check}")
    customers.change(100)
    kafka.send(kafka_broker, topic, [b'{"name": "nobody"}'])  # without a key
    flow.apply()
    customers.change(50)
    flow.apply()
    found = target.rows((*COLUMNS, "_deleted_at"))
    assert [row[:2] for row in found if row[2] is None] == sorted(customers.rows.items(), key=repr)
    assert any(row[2] is not None for row in found)
    [letter] = flow.run("dlq", "show", "flow.yaml", "customers", "--format", "json", expect=0).json()["letters"]
    assert (letter["error"], letter["reason"]) == ("no_key", "it has no key")
    refused = flow.run("dlq", "replay", "flow.yaml", "customers", "--yes", expect=64)
    assert "an old message would overwrite what came after it" in refused.words

    back = '{"kind": "offsets", "offsets": {"0": 0, "1": 0}}'
    flow.run("state", "set", "flow.yaml", "customers", "--position", back, "--yes", expect=0)
    flow.apply()
    assert [row[:2] for row in target.rows((*COLUMNS, "_deleted_at")) if row[2] is None] == sorted(
        customers.rows.items(), key=repr
    )


def test_a_history_of_messages(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """A version for each message, by its time; a tombstone ends the last one."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    kafka.create_topic(kafka_broker, topic)
    at = (int(time.time()) // 60 - 60) * 60_000  # an hour ago, to the minute: old messages expire

    def send(*messages: tuple[int, str | None, int]) -> None:
        with kafka.producer(kafka_broker) as made:
            for id, name, seconds in messages:
                value = json.dumps({"name": name}).encode() if name else None
                made.produce(topic, value, json.dumps({"id": id}).encode(), 0, timestamp=at + 1000 * seconds)

    table = f"{{from: bus:{topic}, format: {FORMATS['keys']}, to: out:{target.object}, mode: scd2, key: [id]"
    write_tables(flow, kafka_broker, target.connection, f"  customers: {table}, scd2: {{valid_from: commit}}}}")
    send((1, "a", 0), (1, "b", 10), (2, "x", 10), (1, "b", 15), (1, "c", 20), (1, "c2", 20))
    flow.apply()
    send((2, None, 30), (1, "d", 40), (2, "y", 50))
    flow.apply()
    found = target.rows(("id", "name", "valid_from", "valid_to", "is_current"))
    assert [
        (id, name, str(begun)[17:19], ended and str(ended)[17:19], now) for id, name, begun, ended, now in found
    ] == [
        (1, "a", "00", "10", 0),
        (1, "b", "10", "20", 0),
        (1, "c2", "20", "40", 0),
        (1, "d", "40", None, 1),
        (2, "x", "10", "30", 0),
        (2, "y", "50", None, 1),
    ]


@pytest.mark.full
def test_changes_appended_with_what_they_do(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    kafka.create_topic(kafka_broker, topic)
    rows = [("c", None, {"id": 1}), ("u", {"id": 1}, {"id": 2}), ("d", {"id": 2}, None)]
    changes = [json.dumps({"op": op, "before": before, "after": after}).encode() for op, before, after in rows]
    kafka.send(kafka_broker, topic, [*changes, None])
    format = "format: {type: json, schema: {id: bigint}, envelope: debezium}"
    table = f"{{from: bus:{topic}, {format}, to: out:{target.object}, mode: append}}"
    write_tables(flow, kafka_broker, target.connection, f"  log: {table}")
    flow.apply()
    assert target.rows(("_offset", "_op", "id")) == [(0, "I", 1), (1, "U", 2), (2, "D", 2)]
