"""Changes applied by their own order: a connector that sends changes again changes nothing, whatever is killed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from flowctl.crashpoints import POINTS
from tests.e2e.flows import Flow
from tests.e2e.kafka.test_topics import write_tables
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, in_turn, kinds_with, place
from tests.services import kafka

Mode = Literal["merge", "scd2"]
MODES: dict[Mode, str] = {
    "merge": "mode: merge, deletes: {action: soft}",
    "scd2": "mode: scd2, scd2: {valid_from: commit}",
}
FORMAT = "{type: json, schema: {id: bigint, name: string}, envelope: debezium, source_order: true}"
#: How many ids there are, in two partitions.
IDS = 12


@dataclass(frozen=True)
class Change:
    """At ``lsn``; ``name`` None: a deletion."""

    lsn: int
    id: int
    name: str | None

    @property
    def message(self) -> bytes:
        row = {"id": self.id, "name": self.name}
        op = "d" if self.name is None else "u"
        states = {"before": {"id": self.id, "name": None}, "after": None} if op == "d" else {"after": row}
        change = {**states, "op": op, "source": {"connector": "postgresql", "lsn": self.lsn}}
        return json.dumps({"schema": {}, "payload": change} if self.lsn % 2 else change).encode()


class Source:
    """Rows that change, and a connector that forgets how far it was: it sends a part of its changes again, in their
    order, and then all that follow."""

    def __init__(self, address: str, topic: str, seed: str = "") -> None:
        self.address, self.topic, self.chance = address, topic, random.Random(seed)
        self.log: list[Change] = []
        kafka.create_topic(address, topic, partitions=2)

    def change(self, times: int) -> None:
        for _ in range(times):
            name = None if self.chance.random() < 0.3 else f"n{len(self.log)}"
            self.log.append(Change(100 * len(self.log), self.chance.randrange(IDS), name))
            self.send(self.log[-1:])
            if self.chance.random() < 0.1:
                self.send_again()

    def send_again(self) -> None:
        """Up to now, or only a part: the connector has died again."""
        start = self.chance.randrange(len(self.log))
        self.send(self.log[start : self.chance.choice([None, start + 5])])

    def send(self, changes: Iterable[Change]) -> None:
        with kafka.producer(self.address) as made:
            for change in changes:
                made.produce(self.topic, change.message, str(change.id).encode(), change.id % 2)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        last = {change.id: change for change in self.log}
        return sorted(((id, one.name) for id, one in last.items() if one.name is not None), key=repr)

    def names(self) -> dict[int, list[str]]:
        """The versions of each row, in their order."""
        found: dict[int, list[str]] = {}
        for change in self.log:
            if change.name is not None:
                found.setdefault(change.id, []).append(change.name)
        return found

    def must_be_in(self, target: TargetPlace, mode: Mode) -> None:
        if mode == "merge":
            found = target.rows(("id", "name", "_deleted_at", "_source_order"))
            assert [row[:2] for row in found if row[2] is None] == self.rows
            last = {change.id: f"{change.lsn:020}.{change.lsn:020}" for change in self.log}
            assert {row[0]: row[3] for row in found} == last, "deleted rows are there, too"
            return
        versions = target.rows(("_source_order", "id", "name", "is_current"))
        assert [(id, name) for _, id, name, is_current in versions if is_current] == sorted(
            self.rows, key=lambda row: next(one.lsn for one in reversed(self.log) if one.id == row[0])
        )
        kept: dict[int, list[str]] = {}
        for _, id, name, _ in versions:
            kept.setdefault(id, []).append(name)
        written = self.names()
        for id, names in kept.items():  # those of one millisecond are one version
            assert names == [name for name in written[id] if name in names], "each once, and in their order"


def write_flow(flow: Flow, address: str, topic: str, target: TargetPlace, mode: Mode, more: str = "") -> None:
    table = f"{{from: bus:{topic}, format: {FORMAT}, to: out:{target.object}, key: [id], {MODES[mode]}{more}}}"
    write_tables(flow, address, target.connection, f"  customers: {table}")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_what_is_sent_again_is_ignored(mode: Mode, tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """In the same batch, in a later one, after a deletion, and after the row has come back."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    source = Source(kafka_broker, topic)
    write_flow(flow, kafka_broker, topic, target, mode)
    first, second, gone, back = Change(1, 1, "a"), Change(2, 1, "b"), Change(3, 1, None), Change(4, 1, "c")
    unseen = [Change(5, 2, "x"), Change(6, 2, None)]
    for batch, left in [
        ([first, second, first], "b"),
        ([first, second], "b"),
        ([first], "b"),
        ([second, gone], None),
        ([first, second], None),
        ([gone], None),
        ([back, *unseen], "c"),
        ([first, second, gone], "c"),
        ([gone, unseen[0]], "c"),
    ]:
        source.send(batch)
        flow.apply()
        found = target.rows(("id", "name", "_deleted_at" if mode == "merge" else "is_current"))
        assert [row[:2] for row in found if row[2] in (None, 1)] == ([(1, left)] if left else []), batch
    if mode == "scd2":
        versions = target.rows(("id", "_source_order", "name"))
        assert [(id, name) for id, _, name in versions if id == 1][-2:] == [(1, "b"), (1, "c")]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("delta", "merge"),
        *(
            pytest.param(kind, mode, marks=pytest.mark.full)
            for kind in kinds_with("merge", "scd2")
            for mode in MODES
            if (kind, mode) != ("delta", "merge")
        ),
    ],
)
def test_what_is_ignored_is_counted(
    kind: Kind, mode: Mode, tmp_path: Path, databases: Databases, kafka_broker: str, topic: str
) -> None:
    """By the plan as by the run, and in its record. Of several changes of a row in one run, only those that count
    within the run are compared with the target."""
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    source = Source(kafka_broker, topic)
    write_flow(flow, kafka_broker, topic, target, mode)
    source.send([Change(1, 1, "a"), Change(2, 2, "b"), Change(3, 3, "c")])
    flow.apply()
    source.send([Change(4, 1, "d")])
    flow.apply()
    source.send([Change(1, 1, "a"), Change(2, 2, "b"), Change(5, 3, None)])
    (step,) = flow.plan("--effects")["steps"]
    assert (step["effects"]["ignored"], step["effects"]["unchanged"]) == (2, None)
    assert "2 ignored" in flow.run("plan", "flow.yaml", "--effects").words
    done = flow.apply("--log-format", "json")
    (committed,) = (line for line in map(json.loads, done.err.splitlines()) if line.get("event") == "table_committed")
    assert committed["rows"]["ignored"] == 2
    record = flow.run("runs", "flow.yaml", committed["run"], "--format", "json", expect=0).json()
    assert record["tables"][0]["rows"]["ignored"] == 2
    lines = flow.run("runs", "flow.yaml", committed["run"], expect=0).out.splitlines()
    header = next(line for line in lines if line.startswith("table ")).split()
    assert "ignored" in header


@pytest.mark.full
@pytest.mark.parametrize(("kind", "mode"), in_turn(MODES, kinds_with("merge", "scd2")))
def test_whatever_is_killed_and_sent_again(
    kind: Kind,
    mode: Mode,
    tmp_path: Path,
    databases: Databases,
    kafka_broker: str,
    topic: str,
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    source = Source(kafka_broker, topic, seed=kind)
    write_flow(flow, kafka_broker, topic, target, mode)
    for point in POINTS:
        source.change(30)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        source.send_again()
        flow.apply()
        source.must_be_in(target, mode)
    assert flow.actions() == {"customers": "none"}


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_an_old_letter_is_ignored_and_removed(mode: Mode, tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """One is older than what was applied of its row; of another, nothing newer has come, but the change before it was
    sent again meanwhile; a third one is of a row that was deleted before it was ever there."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    source = Source(kafka_broker, topic)
    checked = "dead_letters: {}, expect: [{column: name, in: [%s], on_fail: quarantine}]"
    write_flow(flow, kafka_broker, topic, target, mode, f", {checked % 'a, c'}")
    source.send([Change(1, 1, "a"), Change(2, 1, "b"), Change(3, 1, "c"), Change(4, 2, "a"), Change(5, 2, "b")])
    source.send([Change(6, 3, "b"), Change(7, 3, None)])
    flow.apply()
    source.send([Change(4, 2, "a")])
    flow.apply()
    assert count_letters(flow) == 3
    write_flow(flow, kafka_broker, topic, target, mode, f", {checked % 'a, b, c'}")
    flow.run("dlq", "replay", "flow.yaml", "customers", "--yes", expect=0)
    flow.apply(env={"FLOWCTL_CRASH_AT": "after_commit"}, expect=-9)
    flow.apply()
    mark = "_deleted_at" if mode == "merge" else "is_current"
    assert [row[:2] for row in target.rows(("id", "name", mark)) if row[2] in (None, 1)] == [(1, "c"), (2, "b")]
    assert count_letters(flow) == 0


def count_letters(flow: Flow) -> int:
    found = flow.run("dlq", "list", "flow.yaml", "--format", "json", expect=0).json()["tables"]
    return sum(one["letters"] for one in found)


@pytest.mark.full
def test_an_order_for_a_table_that_had_none(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """The plan adds the column; what has no order is older than everything."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    source = Source(kafka_broker, topic)
    table = f"{{from: bus:{topic}, format: {FORMAT}, to: out:{target.object}, key: [id], {MODES['merge']}}}"
    write_tables(flow, kafka_broker, target.connection, f"  customers: {table.replace(', source_order: true', '')}")
    source.send([Change(1, 1, "a"), Change(2, 2, "b")])
    flow.apply()
    assert "_source_order" not in target.columns()
    write_flow(flow, kafka_broker, topic, target, "merge")
    source.send([Change(3, 1, "c")])
    assert "_source_order" in flow.run("plan", "flow.yaml").words
    flow.apply()
    source.send([Change(1, 1, "a"), Change(2, 2, "b")])
    flow.apply()
    orders = [f"{log:020}.{log:020}" for log in (3, 2)]  # of the commit, and of the change in it
    assert target.rows(("id", "name", "_source_order")) == [(1, "c", orders[0]), (2, "b", orders[1])]


@pytest.mark.full
def test_what_has_no_order_stops_the_table(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    source = Source(kafka_broker, topic)
    write_flow(flow, kafka_broker, topic, target, "merge")
    source.send([Change(1, 1, "a")])
    kafka.send(kafka_broker, topic, [b'{"op": "c", "after": {"id": 1}, "source": {"connector": "vitess"}}'])
    refused = flow.apply(expect=4)
    assert "its `source` does not tell the order of changes" in refused.words


@pytest.mark.full
def test_a_changed_key_in_another_partition(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """Maxwell sends one message for it, with the new key; the old row may have changes in another partition."""
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    kafka.create_topic(kafka_broker, topic, partitions=2)
    format = FORMAT.replace("debezium", "maxwell")
    table = f"{{from: bus:{topic}, format: {format}, to: out:{target.object}, key: [id], {MODES['merge']}}}"
    write_tables(flow, kafka_broker, target.connection, f"  customers: {table}")

    def message(kind: str, position: int, id: int, before: int | None = None) -> bytes:
        place = {"position": f"master.000001:{position}", "xid": 1, "xoffset": 0}
        old = {"old": {"id": before}} if before else {}
        return json.dumps({"type": kind, **place, "data": {"id": id, "name": "n"}, **old}).encode()

    kafka.send(kafka_broker, topic, [message("update", 30, 2, before=1)], partition=0)
    flow.apply()
    kafka.send(kafka_broker, topic, [message("insert", 10, 1), message("update", 20, 1)], partition=1)
    flow.apply()
    found = target.rows(("id", "name", "_deleted_at"))
    assert [row[:2] for row in found if row[2] is None] == [(2, "n")]
