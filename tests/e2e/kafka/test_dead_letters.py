"""Dead letters: each poison message once, none lost, whatever is killed; and each again a row once it can be one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from flowctl.crashpoints import POINTS, Point
from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.kafka.test_topics import kill_at_random, write_tables
from tests.e2e.targets import BY_ENGINE, ENV, KINDS, Databases, Kind, TargetPlace, place
from tests.services import kafka

ROWS = ("_partition", "_offset", "id")
LETTERS = ("_topic", "_partition", "_offset", "_error")
OPTIONS = "dead_letters: {}"
#: Killed at every named step, into every kind of target.
#: Killed at every step into what the engine writes, and otherwise where letters and rows are written.
REPLAYS = [
    pytest.param(kind, points, id=kind, marks=pytest.mark.full)
    for kind in KINDS
    for points in [POINTS if kind in BY_ENGINE else ("after_quarantine", "in_commit", "after_commit")]
]


class Mixed:
    """A topic of JSON messages, some of them poison, and all that was sent to it."""

    def __init__(self, address: str, name: str, partitions: int = 2) -> None:
        self.address, self.name, self.partitions = address, name, partitions
        self.good: list[tuple[Any, ...]] = []
        self.poison: list[tuple[Any, ...]] = []
        self.count = 0
        kafka.create_topic(address, name, partitions)

    def send(self, count: int, poison: float = 0.1) -> None:
        """To each partition; about as many of them poison as the fraction says."""
        every = round(1 / poison) if poison else 0
        for partition in range(self.partitions):
            values = []
            for at in range(self.count, self.count + count):
                if every and at % every == 0:
                    wrong = at // every % 2
                    self.poison.append((self.name, partition, at, "wrong_type" if wrong else "not_json"))
                    values.append(b'{"id": "late %d"}' % at if wrong else b"poison %d" % at)
                else:
                    self.good.append((partition, at, at))
                    values.append(b'{"id": %d}' % at)
            kafka.send(self.address, self.name, values, partition=partition)
        self.count += count

    def must_be_in(self, target: TargetPlace) -> None:
        assert target.rows(ROWS) == sorted(self.good, key=repr)
        assert letters_of(target).rows(LETTERS) == sorted(self.poison, key=repr)


def letters_of(target: TargetPlace) -> TargetPlace:
    return target.named(f"{target.name}__dead_letters")


def write_flow(
    flow: Flow, address: str, topic: str, target: TargetPlace, kind: str = "bigint", options: str = OPTIONS
) -> None:
    """``kind`` is the declared type of `id`."""
    format = f"format: {{type: json, schema: {{id: {kind}}}}}"
    table = f"  clicks: {{from: bus:{topic}, {format}, to: out:{target.object}, mode: append, {options}}}"
    write_tables(flow, address, target.connection, table)


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path, ENV)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_apply_loses_and_doubles_no_letter(
    kind: Kind, flow: Flow, databases: Databases, kafka_broker: str, topic: str
) -> None:
    target, sent = place(kind, flow.folder, databases), Mixed(kafka_broker, topic)
    write_flow(flow, kafka_broker, topic, target)
    for point in (one for one in POINTS if one != "after_stage"):
        sent.send(40)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        sent.send(10)
        flow.apply()
        sent.must_be_in(target)
    assert flow.actions() == {"clicks": "none"}


@pytest.mark.parametrize(("kind", "points"), REPLAYS)
def test_a_killed_replay_makes_each_letter_a_row_once(
    kind: Kind, points: Sequence[Point], flow: Flow, databases: Databases, kafka_broker: str, topic: str
) -> None:
    """Half of the poison can be read under another declaration; the rest stays, and new messages come meanwhile."""
    target, sent = place(kind, flow.folder, databases), Mixed(kafka_broker, topic, 1)
    for point in (one for one in points if one != "after_stage"):
        write_flow(flow, kafka_broker, topic, target)
        sent.send(40)
        flow.apply()
        sent.must_be_in(target)
        # The key is not UTF-8: text for the rows that need none of it.
        kafka.send(kafka_broker, topic, [b'{"id": %d}' % sent.count], key=b"\xff")
        flow.apply()
        hidden = (topic, 0, sent.count, "not_utf8")
        sent.poison.append(hidden)
        sent.count += 1
        sent.must_be_in(target)
        write_flow(flow, kafka_broker, topic, target, options=f"{OPTIONS}, columns: {{exclude: [_key]}}")
        flow.run("state", "set", "flow.yaml", "clicks", "--accept-definition", "--yes", expect=0)
        flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        sent.send(10)
        flow.apply()
        sent.poison.remove(hidden)
        sent.good.append((0, hidden[2], hidden[2]))
        assert target.rows(ROWS) == sorted(sent.good, key=repr)
        assert listed(flow) == len(sent.poison)
        flow.run("state", "set", "flow.yaml", "clicks", "--accept-definition", "--yes", expect=0)


@pytest.mark.full
def test_a_replay_that_is_given_up_doubles_nothing(flow: Flow, kafka_broker: str, topic: str) -> None:
    """What it had rejected is gone with it: otherwise the next replay would read the old letters and these."""
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    kafka.send(kafka_broker, topic, [b'{"id": 0}'], key=b"\xff")
    sent.count = 1
    sent.send(9, poison=0)
    flow.apply()
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    flow.apply(env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    write_flow(flow, kafka_broker, topic, target, options=f"{OPTIONS}, columns: {{exclude: [_key]}}")
    flow.run("state", "set", "flow.yaml", "clicks", "--accept-definition", "--yes", expect=0)
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_intent"}, expect=-9)  # the number is void by now
    flow.apply()
    sent.good.append((0, 0, 0))
    sent.must_be_in(target)


@pytest.mark.full
def test_a_committed_replay_that_is_adopted_is_not_read_again(flow: Flow, kafka_broker: str, topic: str) -> None:
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    kafka.send(kafka_broker, topic, [b'{"id": 0}'], key=b"\xff")
    sent.count = 1
    sent.send(5, poison=0)
    flow.apply()
    write_flow(flow, kafka_broker, topic, target, options=f"{OPTIONS}, columns: {{exclude: [_key]}}")
    flow.run("state", "set", "flow.yaml", "clicks", "--accept-definition", "--yes", expect=0)
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--cancel", "--yes", expect=0)
    assert flow.actions() == {"clicks": "none"}
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    flow.apply(env={"FLOWCTL_CRASH_AT": "after_commit"}, expect=-9)
    flow.run("state", "adopt", "flow.yaml", "clicks", "--yes", expect=0)
    flow.apply()
    sent.good.append((0, 0, 0))
    assert target.rows(ROWS) == sorted(sent.good, key=repr)
    assert listed(flow) == 0


@pytest.mark.full
def test_what_a_full_refresh_reads_again_is_no_letter_any_more(flow: Flow, kafka_broker: str, topic: str) -> None:
    """Otherwise a replay would double what the refresh has read from the topic."""
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    kafka.send(kafka_broker, topic, [b'{"id": 0}'], key=b"\xff")
    sent.count = 1
    sent.send(10)
    flow.apply()
    assert listed(flow) == len(sent.poison) + 1
    write_flow(flow, kafka_broker, topic, target, options=f"{OPTIONS}, columns: {{exclude: [_key]}}")
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    flow.apply("--full-refresh", "clicks", env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    assert listed(flow) == len(sent.poison) * 2 + 1  # until the refresh is there, the old ones are
    flow.apply("--full-refresh", "clicks")
    sent.good.append((0, 0, 0))
    sent.must_be_in(target)
    assert listed(flow) == len(sent.poison)
    assert flow.actions() == {"clicks": "none"}  # the replay that was asked for is settled, too


@pytest.mark.full
def test_letters_of_commits_that_a_restored_table_has_no_longer_are_not_replayed(
    flow: Flow, kafka_broker: str, topic: str
) -> None:
    """Their messages are read again, and may be letters again: each would be a row twice."""
    target, sent = place("delta", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    versions = []
    for _ in range(3):
        kafka.send(kafka_broker, topic, [b'{"id": %d}' % sent.count], key=b"\xff")
        sent.good.append((0, sent.count, sent.count))
        sent.count += 1
        sent.send(5, poison=0)
        flow.apply()
        versions.append(DeltaTable(flow.folder / "lake" / target.object).version())
    DeltaTable(flow.folder / "lake" / target.object).restore(versions[0])
    flow.apply(expect=6)
    flow.run("state", "adopt", "flow.yaml", "clicks", "--yes", expect=0)
    assert listed(flow) == 1
    flow.apply()
    assert listed(flow) == 3
    write_flow(flow, kafka_broker, topic, target, options=f"{OPTIONS}, columns: {{exclude: [_key]}}")
    flow.run("state", "set", "flow.yaml", "clicks", "--accept-definition", "--yes", expect=0)
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    flow.apply()
    assert target.rows(ROWS) == sorted(sent.good, key=repr)
    assert listed(flow) == 0


@pytest.mark.full
def test_a_full_refresh_keeps_letters_whose_messages_have_expired(flow: Flow, kafka_broker: str, topic: str) -> None:
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    sent.send(20)
    flow.apply()
    kafka.expire(kafka_broker, topic, 0, 5)
    flow.apply("--full-refresh", "clicks", env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    flow.apply()
    sent.good = [one for one in sent.good if one[1] >= 5]
    sent.must_be_in(target)
    assert {number for (number,) in letters_of(target).rows(("_seq",))} == {2}
    assert listed(flow) == 2
    kafka.delete_topic(kafka_broker, topic)
    again = Mixed(kafka_broker, topic, 1)  # other messages at the same offsets
    again.send(30, poison=0)
    flow.apply("--full-refresh", "clicks")
    assert target.rows(ROWS) == sorted(again.good, key=repr)
    assert letters_of(target).rows(LETTERS) == sorted(sent.poison, key=repr)


@pytest.mark.full
def test_a_table_that_is_created_again_in_several_commits_has_each_letter_once(
    flow: Flow, kafka_broker: str, topic: str
) -> None:
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    options = f"{OPTIONS}, batch: {{rows: 6}}"
    write_flow(flow, kafka_broker, topic, target, options=options)
    sent.send(30)
    flow.apply()
    sent.must_be_in(target)
    sqlite_script(flow.folder / "target.db", f"DROP TABLE {target.object}")
    kafka.expire(kafka_broker, topic, 0, 5)
    flow.apply("--full-refresh", "clicks", env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    flow.apply()
    sent.good = [one for one in sent.good if one[1] >= 5]
    sent.must_be_in(target)
    assert listed(flow) == len(sent.poison)


@pytest.mark.full
def test_a_spec_without_letters_any_more_loses_none(flow: Flow, kafka_broker: str, topic: str) -> None:
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    sent.send(10)
    flow.apply()
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    flow.apply(env={"FLOWCTL_CRASH_AT": "after_intent"}, expect=-9)
    write_flow(flow, kafka_broker, topic, target, options="every: 1m")
    refused = flow.apply(expect=4)  # what it has begun is finished first, and nothing keeps the letters apart
    assert f"message 0 of partition 0 of topic {topic}: not one JSON object" in refused.words
    write_flow(flow, kafka_broker, topic, target)
    flow.apply()
    sent.must_be_in(target)


def listed(flow: Flow) -> int:
    """The number of letters that no run has read again."""
    [table] = flow.run("dlq", "list", "flow.yaml", "--format", "json", expect=0).json()["tables"]
    return int(table["letters"])


@pytest.mark.full
def test_too_many_letters_stop_the_table(flow: Flow, kafka_broker: str, topic: str) -> None:
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target, options="dead_letters: {max_fraction: 5%}")
    sent.send(50, poison=0.1)  # 5: fewer than 100 messages count as 100
    flow.apply()
    sent.must_be_in(target)
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)  # those that stay letters are no new ones
    sent.send(1)
    flow.apply()
    sent.must_be_in(target)
    kafka.send(kafka_broker, topic, [b"poison"] * 11 + [b'{"id": 0}'] * 189)
    refused = flow.apply(expect=6)
    assert "dead_letters.max_fraction 5%: 11 of 200 messages would be dead letters" in refused.words
    assert "(message 51 of partition 0: not one JSON object)" in refused.words
    sent.must_be_in(target)


@pytest.mark.full
def test_what_fails_a_check_is_a_letter_too(flow: Flow, kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    with kafka.producer(kafka_broker) as made:
        for value in (b'{"id": 1}', b'{"id": -1, "more": true}', b"poison", b'{"id": 2}'):
            made.produce(topic, value, b"k", headers=[("trace", b"x")])
    target = place("sqlite", flow.folder)
    check = "expect: [{column: id, between: [0, 10], on_fail: quarantine}]"
    write_flow(flow, kafka_broker, topic, target, options=f"{OPTIONS}, {check}")
    assert "2 quarantined" in flow.apply().words
    assert target.rows(("_offset", "id")) == [(0, 1), (3, 2)]
    shown = flow.run("dlq", "show", "flow.yaml", "clicks", "--format", "json", expect=0).json()
    names = ("topic", "offset", "key", "value", "headers", "error", "reason", "seq")
    headers = json.dumps([{"key": "trace", "value": "x"}])
    assert [tuple(one[name] for name in names) for one in shown["letters"]] == [
        (topic, 1, "k", '{"id": -1, "more": true}', headers, "check", "id: between", 1),
        (topic, 2, "k", "poison", headers, "not_json", "not one JSON object", 1),
    ]
    assert "-1" in flow.run("dlq", "show", "flow.yaml", "clicks", expect=0).words
    write_flow(flow, kafka_broker, topic, target)
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    assert flow.plan()["steps"][0]["interval"]["read"]["letters"] == 1
    flow.apply()
    assert target.rows(("_offset", "id")) == [(0, 1), (1, -1), (3, 2)]
    assert letters_of(target).rows(("_offset", "_seq")) == [(2, 2)]


def test_lines_of_csv_that_do_not_fit_are_letters(flow: Flow, kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    values = [b"1|'a|b'", b"2|", b"x|c", b"3|d|e", b"4|d\n", None]
    kafka.send(kafka_broker, topic, values)
    target = place("sqlite", flow.folder)
    format = """{type: csv, schema: {id: bigint, name: string}, delimiter: "|", quote: "'"}"""
    table = f"clicks: {{from: bus:{topic}, format: {format}, to: out:{target.object}, mode: append, {OPTIONS}}}"
    write_tables(flow, kafka_broker, target.connection, f"  {table}")
    flow.apply()
    assert target.rows(("_offset", "id", "name")) == [(0, 1, "a|b"), (1, 2, None), (4, 4, "d"), (5, None, None)]
    assert letters_of(target).rows(("_offset", "_error")) == [(2, "wrong_type"), (3, "not_csv")]


def test_what_dlq_refuses(flow: Flow, kafka_broker: str, topic: str) -> None:
    target, sent = place("sqlite", flow.folder), Mixed(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    sent.send(3, poison=0)
    assert flow.run("dlq", "list", "flow.yaml", expect=0).out == "There are no dead letters.\n"
    flow.apply()
    assert "clicks has no dead letters" in flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=64).words
    assert "no_such" in flow.run("dlq", "show", "flow.yaml", "no_such", expect=64).words
    write_flow(flow, kafka_broker, topic, target, options="every: 1m")
    assert "Add `dead_letters: {}`" in flow.run("dlq", "list", "flow.yaml", expect=64).words


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_random_kills_while_poison_comes(
    kind: Kind, flow: Flow, databases: Databases, kafka_broker: str, topic: str
) -> None:
    """`FLOWCTL_TEST_KILLS` times, at a random moment of a run, with 1 % of poison."""
    target, sent = place(kind, flow.folder, databases), Mixed(kafka_broker, topic, 4)
    write_flow(flow, kafka_broker, topic, target)
    kill_at_random(flow, lambda: sent.send(500, poison=0.01), f"{kind} letters")
    sent.must_be_in(target)
