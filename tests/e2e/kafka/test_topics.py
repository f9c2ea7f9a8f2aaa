"""Topics read by `flowctl apply`: each message once, whatever is killed or happens to the topic in between."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flowctl.crashpoints import POINTS
from tests.e2e.flows import Flow, sqlite_rows
from tests.e2e.streams.test_follow import followed, wait_for
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, place
from tests.services import kafka
from tests.services.kafka import broker

#: Of each test of random kills.
KILLS = int(os.environ.get("FLOWCTL_TEST_KILLS", "50"))
COLUMNS = ("_partition", "_offset", "value")


class Clicks:
    """A topic, and all that was sent to it."""

    def __init__(self, address: str, name: str, partitions: int = 2) -> None:
        self.address, self.name, self.partitions = address, name, partitions
        self.sent: list[tuple[int, int, str]] = []
        kafka.create_topic(address, name, partitions)

    def send(self, count: int) -> None:
        for partition in range(self.partitions):
            first = sum(one == partition for one, _, _ in self.sent)
            values = [f"{partition}-{at}" for at in range(first, first + count)]
            kafka.send(self.address, self.name, [value.encode() for value in values], partition=partition)
            self.sent += [(partition, first + at, value) for at, value in enumerate(values)]

    def must_be_in(self, target: TargetPlace) -> None:
        assert target.rows(COLUMNS) == sorted(self.sent, key=repr)


def write_bus(flow: Flow, address: str, connections: str, tables: str, *, registry: str = "", oauth: str = "") -> None:
    """A flow with the cluster as `bus`, and further connections and tables as lines of YAML. ``registry`` is a URL,
    ``oauth`` what it takes as YAML."""
    options = f'url: "{registry}"' + (f", oauth: {oauth}" if oauth else "")
    more = f", registry: {{{options}}}" if registry else ""
    flow.write(
        f"""version: 1
flow: bus
state: state
spark: {{url: sail}}
connections:
  bus: {{type: kafka, brokers: "{address}"{more}}}
{connections}
tables:
{tables}
"""
    )


def write_tables(flow: Flow, address: str, out: str, tables: str) -> None:
    """``out`` is the target's connection, in YAML."""
    write_bus(flow, address, f"  out: {out}", tables)


def write_flow(flow: Flow, address: str, topic: str, target: TargetPlace, *, start: str = "earliest") -> None:
    source = f"{{connection: bus, topic: {topic}, start: {start}}}"
    table = f"  clicks: {{from: {source}, format: {{type: text}}, to: out:{target.object}, mode: append}}"
    write_tables(flow, address, target.connection, table)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_a_killed_apply_loses_and_doubles_no_message(
    kind: Kind, tmp_path: Path, databases: Databases, kafka_broker: str, topic: str
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    clicks = Clicks(kafka_broker, topic)
    write_flow(flow, kafka_broker, topic, target)
    for point in (one for one in POINTS if one != "after_stage"):
        clicks.send(100)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        clicks.send(10)
        flow.apply()
        clicks.must_be_in(target)
    assert flow.actions() == {"clicks": "none"}


def test_a_topic_changes_between_runs(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    clicks = Clicks(kafka_broker, topic)
    write_flow(flow, kafka_broker, topic, target)
    clicks.send(50)
    flow.apply()
    kafka.add_partitions(kafka_broker, topic, 3)
    clicks.partitions = 3
    clicks.send(5)
    flow.apply()
    clicks.must_be_in(target)

    clicks.send(20)
    kafka.expire(kafka_broker, topic, 0, 60)
    refused = flow.apply(expect=6)
    assert "5 messages expired before they were read: 5 of partition 0" in refused.words
    left = '{"kind": "offsets", "offsets": {"0": 60, "1": 55, "2": 5}}'
    assert f"`flowctl state set flow.yaml clicks --position '{left}'`" in refused.out  # on one line
    flow.run("state", "set", "flow.yaml", "clicks", "--position", left, "--yes", expect=0)
    flow.apply()
    clicks.sent = [one for one in clicks.sent if not (one[0] == 0 and 55 <= one[1] < 60)]
    clicks.must_be_in(target)

    kafka.delete_topic(kafka_broker, topic)
    new = Clicks(kafka_broker, topic, 3)
    new.send(200)  # more than before: only the topic's id tells
    anew = flow.apply(expect=6)
    assert "the source was recreated under its name" in anew.words
    assert "flowctl state set flow.yaml clicks --accept-definition --position beginning" in anew.words
    clicks.must_be_in(target)
    flow.run("state", "set", "flow.yaml", "clicks", "--accept-definition", "--position", "beginning", "--yes", expect=0)
    flow.apply()
    clicks.sent += new.sent
    clicks.must_be_in(target)


@pytest.mark.full
def test_a_rewind_reads_again_only_when_told_to(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    clicks = Clicks(kafka_broker, topic, 1)
    write_flow(flow, kafka_broker, topic, target)
    clicks.send(10)
    flow.apply()
    back = ("state", "set", "flow.yaml", "clicks", "--position", '{"kind": "offsets", "offsets": {"0": 7}}', "--yes")
    flow.run(*back, expect=0)
    assert "appending again would double them" in flow.apply(expect=6).words
    flow.run(*back, "--append-again", expect=0)
    flow.apply()
    clicks.sent += clicks.sent[7:]
    clicks.must_be_in(target)


@pytest.mark.full
def test_a_first_run_at_the_end_of_a_topic(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("delta", tmp_path)
    clicks = Clicks(kafka_broker, topic)
    clicks.send(10)
    write_flow(flow, kafka_broker, topic, target, start="latest")
    flow.apply()
    assert target.rows(COLUMNS) == []
    old, clicks.sent = clicks.sent, []
    kafka.send(kafka_broker, topic, [b"after"], partition=1)
    flow.apply()
    assert target.rows(COLUMNS) == [(1, len(old) // 2, "after")]


def test_json_into_typed_columns(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """A message that does not fit stops the table before anything of the interval is written."""
    kafka.create_topic(kafka_broker, topic)
    kafka.send(kafka_broker, topic, [b'{"id": 1, "price": 9.90}', b'{"id": 2, "price": "0.10"}'], key=b"k")
    flow = Flow(tmp_path)
    format = '{type: json, schema: {id: bigint, price: "decimal(12,2)"}}'
    table = f"{{from: bus:{topic}, to: out, mode: append, format: {format}, columns: {{exclude: [_timestamp]}}}}"
    write_tables(flow, kafka_broker, "{type: sqlite, path: out.db}", f"  clicks: {table}")
    flow.apply()
    rows = [(1, "9.90", "k", 0, 0), (2, "0.10", "k", 0, 1)]
    assert sqlite_rows(tmp_path / "out.db", "SELECT * FROM clicks") == rows
    kafka.send(kafka_broker, topic, [b'{"id": 3}', b'{"id": 4.5}'])
    words = flow.apply(expect=4).words
    assert f"message 3 of partition 0 of topic {topic}: id is not exactly bigint" in words
    assert sqlite_rows(tmp_path / "out.db", "SELECT * FROM clicks") == rows


@pytest.mark.full
def test_a_table_for_each_topic_of_a_pattern(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    for name in ("orders", "lines.v2"):
        Clicks(kafka_broker, f"{topic}.{name}", 1).send(3)
    flow = Flow(tmp_path)
    table = f'  "all_${{table}}": {{from: "bus:{topic}.*", to: out, mode: append, exclude: ["*.v2"], every: 1s}}'
    write_tables(flow, kafka_broker, "{type: sqlite, path: out.db}", table)
    assert flow.actions() == {f"all_{topic}.orders": "create"}
    with followed(flow):
        count = f'SELECT count(*) FROM "all_{topic}.orders"'
        wait_for(lambda: (tmp_path / "out.db").exists() and sqlite_tables(tmp_path / "out.db") > 0)
        kafka.send(kafka_broker, f"{topic}.orders", [b"later"])
        wait_for(lambda: sqlite_rows(tmp_path / "out.db", count) == [(4,)])


def sqlite_tables(path: Path) -> int:
    [(count,)] = sqlite_rows(path, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'all_%'")
    return int(count)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_random_kills_while_messages_come(
    kind: Kind, tmp_path: Path, databases: Databases, kafka_broker: str, topic: str
) -> None:
    """`FLOWCTL_TEST_KILLS` times, at a random moment of a run."""
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    clicks = Clicks(kafka_broker, topic, 4)
    write_flow(flow, kafka_broker, topic, target)
    kill_at_random(flow, lambda: clicks.send(500), f"{kind} 1")
    clicks.must_be_in(target)


def kill_at_random(flow: Flow, send: Callable[[], None], seed: str) -> None:
    """Kills :data:`KILLS` runs, each at a random moment, while ``send`` is called again and again; then runs to the
    end."""
    chance, stopping = random.Random(seed), threading.Event()

    def send_until_stopped() -> None:
        while not stopping.is_set():
            send()
            stopping.wait(0.2)

    sender = threading.Thread(target=send_until_stopped)
    sender.start()
    try:
        for _ in range(KILLS):
            process = flow.start("apply", "flow.yaml")
            time.sleep(chance.uniform(0.3, 2.5))
            process.kill()
            process.communicate()
    finally:
        stopping.set()
        sender.join()
    flow.apply()
    flow.apply()


@pytest.mark.full
def test_a_group_shows_monitors_how_far_a_table_has_come(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    clicks, group = Clicks(kafka_broker, topic), f"flowctl-{topic}"
    source = f"{{connection: bus, topic: {topic}, group: {group}}}"
    table = f"  clicks: {{from: {source}, format: {{type: text}}, to: out:{target.object}, mode: append}}"
    write_tables(flow, kafka_broker, target.connection, table)
    clicks.send(10)
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_record"}, expect=-9)
    assert kafka.group_offsets(kafka_broker, group) == {}
    flow.apply()
    assert kafka.group_offsets(kafka_broker, group) == {(topic, 0): 10, (topic, 1): 10}
    clicks.send(5)
    with kafka.member(kafka_broker, group, topic):  # someone uses the group as one
        done = flow.apply()
    assert f"warning: group {group} does not show its offsets" in done.words
    clicks.must_be_in(target)
    flow.apply()
    clicks.send(1)
    flow.apply()
    assert kafka.group_offsets(kafka_broker, group) == {(topic, 0): 16, (topic, 1): 16}


@pytest.mark.full
def test_a_broker_that_restarts_while_messages_come(tmp_path: Path, topic: str) -> None:
    flow, target = Flow(tmp_path), place("delta", tmp_path)
    with broker() as made:
        with made.started() as address:
            clicks = Clicks(address, topic)
            write_flow(flow, address, topic, target)
            clicks.send(50_000)
            flow.apply()
        away = flow.apply(expect=4)
        assert f"no broker of {address} answers" in away.words
        with made.started():
            clicks.send(50_000)
            flow.apply()
            clicks.must_be_in(target)
