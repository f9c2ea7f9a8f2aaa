"""Dead letters in another table or in a topic: each once, whatever is killed, and whatever the spec says by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from flowctl.crashpoints import POINTS, Point, TopicPoint
from tests.e2e.flows import Flow, Row, sqlite_script
from tests.e2e.kafka.test_dead_letters import Mixed, listed
from tests.e2e.kafka.test_topics import kill_at_random, write_bus
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, place
from tests.services import kafka

ROWS = ("_partition", "_offset", "id")
LETTERS = ("_table", "_topic", "_partition", "_offset", "_error")
PREFIX = "__flowctl.errors."
#: Those at which letters are sent, or are there without their commit.
SOME: tuple[Point | TopicPoint, ...] = ("in_transaction", "transaction_committed", "after_quarantine")


@dataclass
class Flows:
    """A flow that writes to a folder of Delta, with a database beside it, and the cluster."""

    flow: Flow
    address: str
    rows: TargetPlace
    letters: TargetPlace

    def write(self, *tables: str) -> None:
        """Each is a table of a topic: its name, the topic, what is declared, and where its letters go."""
        connections = f"  out: {self.rows.connection}\n  db: {self.letters.connection}"
        write_bus(self.flow, self.address, connections, "\n".join(f"  {table}" for table in tables))

    def clicks(self, topic: str, to: str, kind: str = "bigint", name: str = "clicks") -> str:
        format = f"format: {{type: json, schema: {{id: {kind}}}}}"
        return f"{name}: {{from: bus:{topic}, {format}, to: out:{name}, mode: append, dead_letters: {{to: {to}}}}}"

    def table(self, name: str = "clicks") -> TargetPlace:
        return self.rows.named(name)

    def in_table(self, name: str) -> list[Row]:
        return self.letters.named(name).rows(LETTERS)

    def in_topic(self, topic: str) -> list[Row]:
        """As :meth:`in_table`."""
        found = []
        for one in kafka.received(self.address, topic):
            said = {name.removeprefix(PREFIX): (value or b"").decode() for name, value in one.headers}
            place = (said["topic"], int(said["partition"]), int(said["offset"]))
            found.append((said["table"], *place, said["class"]))
        return sorted(found, key=repr)

    def both(self, out: str) -> dict[str, list[Row]]:
        return {"table": self.in_table("letters"), "topic": self.in_topic(out)}


@pytest.fixture
def flows(tmp_path: Path, kafka_broker: str) -> Flows:
    flow = Flow(tmp_path, ENV)
    return Flows(flow, kafka_broker, place("delta", tmp_path), place("sqlite", tmp_path))


def expected(sent: Mixed, table: str = "clicks") -> list[Row]:
    return sorted(((table, *letter) for letter in sent.poison), key=repr)


def good(sent: Mixed) -> list[Row]:
    return sorted(sent.good, key=repr)


KINDS: Sequence[Kind] = ("sqlite", "postgres", "delta")


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_apply_keeps_each_letter_once_in_a_table_of_another_connection(
    kind: Kind, flows: Flows, databases: Databases, topic: str
) -> None:
    flows.letters = place(kind, flows.flow.folder, databases).apart()
    sent, to = Mixed(flows.address, topic), f"db:{flows.letters.named('letters').object}"
    flows.write(flows.clicks(topic, to))
    for point in (one for one in POINTS if one != "after_stage"):
        sent.send(40)
        flows.flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        sent.send(10)
        flows.flow.apply()
        assert flows.table().rows(ROWS) == good(sent)
        assert flows.in_table("letters") == expected(sent)
    assert flows.flow.actions() == {"clicks": "none"}
    assert listed(flows.flow) == len(sent.poison)


@pytest.mark.full
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(SOME, id="some"),
        pytest.param((*POINTS, "in_transaction", "transaction_committed"), id="all", marks=pytest.mark.full),
    ],
)
def test_a_killed_apply_sends_each_letter_once(points: Sequence[str], flows: Flows, topic: str) -> None:
    sent, dead = Mixed(flows.address, topic), f"{topic}.dead"
    flows.write(flows.clicks(topic, f"{{connection: bus, topic: {dead}, create: {{partitions: 2}}}}"))
    for point in (one for one in points if one != "after_stage"):
        sent.send(40)
        flows.flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        sent.send(10)
        flows.flow.apply()
        assert flows.table().rows(ROWS) == good(sent)
        assert flows.in_topic(dead) == expected(sent)
    assert flows.flow.actions() == {"clicks": "none"}


def test_a_letter_in_a_topic_is_the_message_and_what_is_wrong(flows: Flows, topic: str) -> None:
    kafka.create_topic(flows.address, topic)
    dead = f"{topic}.dead"
    with kafka.producer(flows.address) as made:
        made.produce(
            topic, b"\xffpoison", b"k\xff", headers=[("trace", b"x"), ("trace", None)], timestamp=1_700_000_000_123
        )
        made.produce(topic, b'{"id": 1}')
    flows.write(flows.clicks(topic, f"bus:{dead}"))
    missing = flows.flow.apply(expect=6)
    assert f"there is no topic {dead}" in missing.words and "create: {}" in missing.words
    kafka.create_topic(flows.address, dead)
    assert "1 quarantined" in flows.flow.apply().words
    (letter,) = kafka.received(flows.address, dead)
    assert (letter.key, letter.value) == (b"k\xff", b"\xffpoison")
    own, said = letter.headers[:2], dict(letter.headers[2:])
    assert own == [("trace", b"x"), ("trace", None)]
    lineage = flows.flow.plan()["lineage"]
    run = flows.flow.run("state", "show", "flow.yaml", "clicks", "--format", "json", expect=0).json()["table"][
        "last_run"
    ]
    assert said == {
        f"{PREFIX}topic": topic.encode(),
        f"{PREFIX}partition": b"0",
        f"{PREFIX}offset": b"0",
        f"{PREFIX}timestamp": b"1700000000123",
        f"{PREFIX}class": b"not_utf8",
        f"{PREFIX}message": b"the key is not UTF-8",
        f"{PREFIX}lineage": lineage.encode(),
        f"{PREFIX}table": b"clicks",
        f"{PREFIX}seq": b"1",
        f"{PREFIX}run.id": run.encode(),
    }
    shown = flows.flow.run("dlq", "list", "flow.yaml", expect=0)
    assert f"clicks sends its dead letters to topic bus:{dead}" in shown.words
    for command in ("show", "replay"):
        refused = flows.flow.run("dlq", command, "flow.yaml", "clicks", expect=64)
        assert "which flowctl does not read back" in refused.words


def test_a_table_of_others_takes_no_letters(flows: Flows, topic: str) -> None:
    kafka.create_topic(flows.address, topic)
    sqlite_script(flows.flow.folder / "target.db", "CREATE TABLE letters (id bigint)")
    flows.write(flows.clicks(topic, "db:letters"), flows.clicks(topic, "db:letters", name="views"))
    refused = flows.flow.apply(expect=6)
    assert (
        "2 tables stopped: db:letters, which is for dead letters, exists and was not made by flowctl" in refused.words
    )


def test_letters_do_not_go_where_the_flow_reads_or_writes(flows: Flows, topic: str) -> None:
    """By another address of the cluster, which only the plan can know."""
    for name in (topic, f"{topic}.copy"):
        kafka.create_topic(flows.address, name)
    copy = f"{topic}.copy"
    tables = (
        flows.clicks(topic, f"other:{topic}", name="loop"),
        flows.clicks(topic, f"other:{copy}"),
        f"copy: {{from: bus:{topic}, to: bus:{copy}, mode: append, format: {{type: text}}}}",
    )
    other = f'  other: {{type: kafka, brokers: "localhost:{flows.address.rpartition(":")[2]}"}}'
    connections = f"  out: {flows.rows.connection}\n{other}"
    write_bus(flows.flow, flows.address, connections, "\n".join(f"  {table}" for table in tables))
    words = flows.flow.run("plan", "flow.yaml", expect=6).words
    assert f"bus:{topic} and other:{topic}, for its dead letters, are the same place" in words
    assert f"other:{copy} is where copy is written: it cannot have dead letters" in words


@pytest.mark.full
def test_a_repetition_sends_what_is_a_letter_only_now(flows: Flows, topic: str) -> None:
    """The check was added after the first try; what was sent then stays, though it may be a row now."""
    sent, dead = Mixed(flows.address, topic, 1), f"{topic}.dead"
    to = f"{{connection: bus, topic: {dead}, create: {{}}}}"
    flows.write(flows.clicks(topic, to))
    sent.send(10)
    flows.flow.apply(env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    check = "expect: [{column: id, between: [0, 8], on_fail: quarantine}]"
    flows.write(flows.clicks(topic, to)[:-1] + f", {check}}}")
    flows.flow.apply()
    assert flows.in_topic(dead) == sorted([*expected(sent), ("clicks", topic, 0, 9, "check")], key=repr)
    assert flows.table().rows(("id",)) == [(id,) for _, _, id in good(sent) if id <= 8]


@pytest.mark.full
def test_letters_of_a_number_that_is_given_up_are_sent_again(flows: Flows, topic: str) -> None:
    sent, dead = Mixed(flows.address, topic, 1), f"{topic}.dead"
    flows.write(flows.clicks(topic, f"{{connection: bus, topic: {dead}, create: {{}}}}"))
    flows.flow.apply()
    sent.send(10)
    flows.flow.apply(env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    flows.flow.run(
        "state", "set", "flow.yaml", "clicks", "--position", "beginning", "--append-again", "--yes", expect=0
    )
    flows.flow.apply()
    assert flows.in_topic(dead) == sorted(expected(sent) * 2, key=repr)
    numbers = [
        value for one in kafka.received(flows.address, dead) for name, value in one.headers if name.endswith("seq")
    ]
    assert sorted(numbers) == [b"2", b"3"]


@pytest.mark.full
def test_tables_and_flows_share_a_table_for_letters(flows: Flows, topic: str) -> None:
    """Equal sequence numbers of two tables, and of two flows, are distinguished; each table replays its own."""
    first, second = Mixed(flows.address, topic, 1), Mixed(flows.address, f"{topic}.2", 1)
    for one in (first, second):
        one.send(10)
    both = [flows.clicks(topic, "db:letters"), flows.clicks(second.name, "db:letters", name="views")]
    flows.write(*both)
    flows.flow.apply()
    other = Flow(flows.flow.folder / "other", flows.flow.env)
    other.folder.mkdir()
    there = Flows(other, flows.address, flows.rows, flows.letters)
    there.write(flows.clicks(topic, "db:letters", name="others"))
    spec = other.spec.read_text().replace("path: lake", "path: ../lake").replace("target.db", "../target.db")
    other.spec.write_text(spec.replace("flow: bus", "flow: other"))
    other.apply()
    whole = [*expected(first), *expected(second, "views"), *expected(first, "others")]
    assert flows.in_table("letters") == sorted(whole, key=repr)
    assert listed_by_table(flows.flow) == {"clicks": 1, "views": 1}
    assert listed_by_table(other) == {"others": 1}

    flows.write(*both[:1], flows.clicks(second.name, "db:letters", kind="string", name="views"))
    flows.flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    assert "replays 1 dead letter" in flows.flow.run("plan", "flow.yaml", "--select", "clicks", expect=0).words
    flows.flow.apply("--select", "clicks", env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    flows.flow.apply("--select", "clicks")
    assert flows.in_table("letters") == sorted(whole, key=repr)  # still poison
    assert listed_by_table(flows.flow) == {"clicks": 1, "views": 1}


def listed_by_table(flow: Flow) -> dict[str, int]:
    tables = flow.run("dlq", "list", "flow.yaml", "--format", "json", expect=0).json()["tables"]
    return {table["id"]: table["letters"] for table in tables}


@pytest.mark.full
def test_letters_stay_where_they_were_when_the_place_changes(flows: Flows, topic: str) -> None:
    sent = Mixed(flows.address, topic, 1)
    flows.write(flows.clicks(topic, "db:letters"))
    sent.send(10)
    flows.flow.apply()
    before = expected(sent)
    flows.flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    flows.write(flows.clicks(topic, "db:elsewhere"))
    stopped = flows.flow.apply(expect=6)
    assert "dead letters of db:letters are to be read again, and `dead_letters` says db:elsewhere" in stopped.words
    flows.flow.run("dlq", "replay", "flow.yaml", "clicks", "--cancel", "--yes", expect=0)
    flows.flow.apply()
    sent.send(10)
    flows.flow.apply(env={"FLOWCTL_CRASH_AT": "after_quarantine"}, expect=-9)
    flows.write(flows.clicks(topic, "db:third"))  # another one before the number is finished
    flows.flow.apply()
    assert flows.in_table("letters") == before
    assert flows.in_table("third") == [one for one in expected(sent) if one not in before]
    assert listed(flows.flow) == 1
    flows.write(flows.clicks(topic, "db:elsewhere"))
    assert listed(flows.flow) == 0  # what the killed try has left there does not count
    flows.write(flows.clicks(topic, "db:letters"))
    assert listed(flows.flow) == 1
    assert flows.table().rows(ROWS) == good(sent)


@pytest.mark.full
def test_a_topic_as_target_has_letters_elsewhere(flows: Flows, topic: str) -> None:
    sent, out, dead = Mixed(flows.address, topic, 1), f"{topic}.out", f"{topic}.dead"
    check = "expect: [{column: id, between: [0, 15], on_fail: quarantine}]"
    tables = [
        f"{name}: {{from: bus:{topic}, format: {{type: json, schema: {{id: bigint}}}}, mode: append, {check},"
        f" to: {{connection: bus, topic: {out}.{name}, create: {{}}}}, dead_letters: {{to: {to}}}}}"
        for name, to in (("a", "db:letters"), ("b", f"{{connection: bus, topic: {dead}, create: {{}}}}"))
    ]
    flows.write(*tables)
    sent.send(20)
    for point in ("after_quarantine", "in_commit"):
        flows.flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
    flows.flow.apply()
    wrong = [*sent.poison, *((topic, 0, at, "check") for at in range(16, 20))]
    assert flows.in_table("letters") == sorted((("a", *one) for one in wrong), key=repr)
    assert flows.in_topic(dead) == sorted((("b", *one) for one in wrong), key=repr)
    for name in "ab":
        assert len(kafka.received(flows.address, f"{out}.{name}")) == 20 - len(wrong)


@pytest.mark.full
@pytest.mark.parametrize("to", ["table", "topic"])
def test_random_kills_while_letters_go_elsewhere(to: str, flows: Flows, databases: Databases, topic: str) -> None:
    sent, dead = Mixed(flows.address, topic, 4), f"{topic}.dead"
    flows.letters = place("postgres", flows.flow.folder, databases)
    ways = {"table": "db:public.letters", "topic": f"{{connection: bus, topic: {dead}, create: {{partitions: 3}}}}"}
    flows.write(flows.clicks(topic, ways[to]))
    kill_at_random(flows.flow, lambda: sent.send(500, poison=0.01), f"{to} letters")
    assert flows.table().rows(ROWS) == good(sent)
    assert (flows.in_table("letters") if to == "table" else flows.in_topic(dead)) == expected(sent)
