"""Source tables that are truncated, as Debezium tells of it: the target has the source's rows, whatever is killed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from flowctl.crashpoints import POINTS, Point
from tests.e2e.flows import Flow
from tests.e2e.kafka.test_topics import write_tables
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, in_turn, kinds_with, place
from tests.services import kafka

Mode = Literal["hard", "soft", "scd2", "ordered", "ordered-scd2"]
MODES: dict[Mode, str] = {
    "hard": "mode: merge",
    "soft": "mode: merge, deletes: {action: soft}",
    "scd2": "mode: scd2, scd2: {valid_from: commit}",
    "ordered": "mode: merge, deletes: {action: soft}",
    "ordered-scd2": "mode: scd2, scd2: {valid_from: commit}",
}
FORMAT = "type: json, schema: {id: bigint, name: string}, envelope: debezium"


@dataclass(frozen=True)
class Change:
    """At ``lsn``. ``id`` None: the table was truncated; ``name`` None: the row was deleted."""

    lsn: int
    id: int | None
    name: str | None = None

    @property
    def message(self) -> bytes:
        row = {"id": self.id, "name": self.name}
        op, before, after = ("d", row, None) if self.name is None else ("u", None, row)
        change: dict[str, Any] = {"op": op, "before": before, "after": after}
        if self.id is None:
            change = {"op": "t"}  # Debezium's has neither state
        change["source"] = {"connector": "postgresql", "lsn": self.lsn}
        return json.dumps({"schema": {}, "payload": change} if self.lsn % 2 else change).encode()


class Source:
    """A table, and what a connector sends of its changes: truncates without a key, to any partition."""

    def __init__(self, address: str, topic: str, partitions: int = 1) -> None:
        self.address, self.topic, self.partitions = address, topic, partitions
        self.chance = random.Random(topic.partition("-")[0])
        self.log: list[Change] = []
        kafka.create_topic(address, topic, partitions)

    def change(self, times: int) -> None:
        start = len(self.log)
        for lsn in range(start + 1, start + times + 1):
            kind = self.chance.choices(["change", "delete", "truncate"], [12, 3, 1])[0]
            id = None if kind == "truncate" else self.chance.randrange(12)
            self.log.append(Change(lsn, id, f"n{lsn}" if kind == "change" else None))
        self.send(*self.log[start:])

    def send_again(self) -> None:
        start = self.chance.randrange(len(self.log))
        self.send(*self.log[start : start + 20])

    def send(self, *changes: Change) -> None:
        with kafka.producer(self.address) as made:
            for change in changes:
                key = None if change.id is None else str(change.id).encode()
                number = self.chance.randrange(self.partitions) if change.id is None else change.id % self.partitions
                made.produce(self.topic, change.message, key, number)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        rows: dict[int, str] = {}
        for change in self.log:
            if change.id is None:
                rows.clear()
            elif change.name is None:
                rows.pop(change.id, None)
            else:
                rows[change.id] = change.name
        return sorted(rows.items(), key=repr)


def write_flow(flow: Flow, source: Source, target: TargetPlace, mode: Mode, more: str = "", format: str = "") -> None:
    format = f"{{{FORMAT}{format}{', source_order: true' if mode.startswith('ordered') else ''}}}"
    table = f"{{from: bus:{source.topic}, format: {format}, to: out:{target.object}, key: [id], {MODES[mode]}{more}}}"
    write_tables(flow, source.address, target.connection, f"  customers: {table}")


def live(target: TargetPlace, mode: Mode) -> list[tuple[Any, ...]]:
    if mode == "hard":
        return target.rows(("id", "name"))
    is_history = mode.endswith("scd2")
    found = target.rows(("id", "name", "is_current" if is_history else "_deleted_at"))
    return [row[:2] for row in found if row[2] == (1 if is_history else None)]


def test_a_truncate_deletes_what_is_before_it(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """In the target and in the batch, also if the commit is not recorded; what comes after it counts."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    source = Source(kafka_broker, topic)
    write_flow(flow, source, target, "hard")
    source.send(Change(1, None), Change(2, 1, "a"), Change(3, 2, "a"), Change(4, 3, "a"))
    flow.apply()
    assert live(target, "hard") == [(1, "a"), (2, "a"), (3, "a")]
    source.send(Change(5, 4, "b"), Change(6, 1, "b"), Change(7, None), Change(8, 1, "c"), Change(9, 5, "c"))
    assert "a truncate deletes what is before it" in flow.run("plan", "flow.yaml", "--verbose").words
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=-9)
    assert "2 deleted" in flow.apply().words
    assert live(target, "hard") == [(1, "c"), (5, "c")]


@pytest.mark.full
def test_a_dry_run_counts_what_a_truncate_deletes(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("delta", tmp_path)
    source = Source(kafka_broker, topic)
    write_flow(flow, source, target, "hard")
    source.send(Change(1, 1, "a"), Change(2, 2, "a"), Change(3, 3, "a"))
    flow.apply()
    source.send(Change(4, 4, "b"), Change(5, None), Change(6, 1, "c"), Change(7, 5, "c"))
    [step] = flow.plan("--effects")["steps"]
    effects = step["effects"]
    assert (effects["inserted"], effects["updated"], effects["deleted"]) == (1, 1, 2)
    assert "2 deleted" in flow.apply().words


@pytest.mark.full
@pytest.mark.parametrize(("kind", "mode"), in_turn(MODES, kinds_with("merge", "scd2")))
def test_whatever_is_killed(
    kind: Kind, mode: Mode, tmp_path: Path, databases: Databases, kafka_broker: str, topic: str
) -> None:
    """Backlogs of several commits, killed at each point; those with an order, from two partitions and sent again."""
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    is_ordered = mode.startswith("ordered")
    source = Source(kafka_broker, topic, partitions=2 if is_ordered else 1)
    write_flow(flow, source, target, mode, ", batch: {rows: 25}")
    points: Sequence[Point] = POINTS
    for point in points:
        source.change(40)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        source.change(5)
        if is_ordered:
            source.send_again()
        flow.apply()
        assert live(target, mode) == source.rows, point
    assert flow.actions() == {"customers": "none"}


@pytest.mark.full
def test_a_history_ends_its_versions_at_the_time_of_the_truncate(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("delta", tmp_path)
    source = Source(kafka_broker, topic)
    write_flow(flow, source, target, "scd2")

    begin = (int(time.time()) // 60 - 60) * 60_000  # an hour ago, to the minute: old messages expire

    def send(*messages: tuple[Change, int]) -> None:
        with kafka.producer(kafka_broker) as made:
            for change, seconds in messages:
                made.produce(topic, change.message, b"k", 0, timestamp=begin + 1000 * seconds)

    send((Change(1, 1, "a"), 0), (Change(2, 2, "a"), 1))
    flow.apply()
    send((Change(3, 3, "b"), 5), (Change(4, None), 10), (Change(5, 1, "a"), 20), (Change(6, None), 30))
    flow.apply()
    send((Change(7, 2, "c"), 40))
    flow.apply()
    versions = target.rows(("id", "name", "valid_from", "valid_to", "is_current"))
    assert [(id, name, str(start)[17:19], end and str(end)[17:19], now) for id, name, start, end, now in versions] == [
        (1, "a", "00", "10", 0),
        (1, "a", "20", "30", 0),
        (2, "a", "01", "10", 0),
        (2, "c", "40", None, 1),
        (3, "b", "05", "10", 0),
    ]


@pytest.mark.full
@pytest.mark.parametrize("mode", ["ordered", "ordered-scd2"])
def test_what_is_older_than_a_truncate_and_comes_later(
    mode: Mode, tmp_path: Path, kafka_broker: str, topic: str
) -> None:
    """From another partition, sent again, or from a dead letter; also of a row that the target never had. The place of
    the truncate is in the state, and in the target for a state that was lost."""
    flow, target = Flow(tmp_path), place("delta", tmp_path)
    source = Source(kafka_broker, topic, partitions=2)
    checked = ", dead_letters: {}, expect: [{column: name, in: [%s], on_fail: quarantine}]"
    write_flow(flow, source, target, mode, checked % "a, b")
    source.send(Change(1, 1, "a"), Change(2, 9, "bad"), Change(10, None))
    flow.apply()
    source.send(Change(3, 1, "b"), Change(4, 2, "b"), Change(11, 3, "b"), Change(10, None), Change(5, 5, "b"))
    flow.apply()
    assert live(target, mode) == [(3, "b")]
    write_flow(flow, source, target, mode, checked % "a, b, bad")
    flow.run("dlq", "replay", "flow.yaml", "customers", "--yes", expect=0)
    flow.run("state", "adopt", "flow.yaml", "customers", "--yes", expect=0)
    source.send(Change(6, 6, "b"), Change(7, None), Change(12, 7, "a"))
    flow.apply()
    assert live(target, mode) == [(3, "b"), (7, "a")]
    write_flow(flow, source, target, mode, checked % "a, b, bad" + ", guard: {max_deleted: 50%}")
    source.send(Change(20, None))
    assert "2 of 2 rows would be deleted" in flow.apply(expect=6).words


@pytest.mark.full
def test_what_a_truncate_may_do_instead(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """Several partitions do not tell what is before it: that stops the table, and is never a dead letter. So does
    `fail`; `ignore` leaves the rows; append has it as a row."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    source = Source(kafka_broker, topic, partitions=2)
    letters = ", dead_letters: {}"
    write_flow(flow, source, target, "hard", letters)
    source.send(Change(1, 1, "a"), Change(2, 2, "a"))
    flow.apply()
    source.send(Change(3, None), Change(4, 2, "b"))
    assert "a truncate stops it" in flow.run("plan", "flow.yaml", "--verbose").words
    refused = flow.apply(expect=6)
    assert "its source table was truncated, and which messages of the other partitions" in refused.words
    assert "Set `format.source_order: true`" in refused.words
    write_flow(flow, source, target, "hard", letters, ", on_truncate: fail")
    assert "(on_truncate: fail)" in flow.apply(expect=6).words
    write_flow(flow, source, target, "hard", letters, ", on_truncate: ignore")
    flow.apply()
    assert live(target, "hard") == [(1, "a"), (2, "b")]
    table = f"{{from: bus:{topic}, format: {{{FORMAT}}}, to: out:log, mode: append}}"
    copied = f"{{from: bus:{topic}, format: {{{FORMAT}}}, to: {{connection: bus, topic: {topic}-log, create: {{}}}}"
    write_tables(flow, kafka_broker, target.connection, f"  log: {table}\n  topic: {copied}, mode: append}}")
    flow.apply()
    log = target.named("log")
    assert log.rows(("_op", "id")) == [("T", None), ("U", 1), ("U", 2), ("U", 2)]
    sent = [json.loads(one.value or b"{}") for one in kafka.received(kafka_broker, f"{topic}-log")]
    assert sorted((one["_op"], one["id"] or 0) for one in sent) == [("T", 0), ("U", 1), ("U", 2), ("U", 2)]
