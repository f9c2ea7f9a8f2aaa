"""What may happen to a topic that is written, to its brokers and its writers, in between and at the same time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, end_of_stopped, sqlite_script, wait_until_stopped
from tests.e2e.kafka.test_topics import write_bus
from tests.e2e.kafka.test_writing import Orders, must_be_appended, write_flow
from tests.services import kafka, kafka_security
from tests.services.processes import HOST

STATE = ("state", "adopt", "flow.yaml", "orders")
COMMITS = "_flowctl_commits"


def write_one(flow: Flow, address: str, to: str, more: str = "") -> None:
    """A table of two columns, appended by its cursor."""
    table = f"  orders: {{from: db:orders, to: {to}, mode: append, cursor: {{column: n}}{more}}}"
    write_bus(flow, address, "  db: {type: sqlite, path: shop.db}", table)
    if not (flow.folder / "shop.db").exists():
        sqlite_script(flow.folder / "shop.db", "CREATE TABLE orders (n bigint, name text)")


def add(flow: Flow, *rows: tuple[int, str]) -> None:
    values = ", ".join(f"({n}, '{name}')" for n, name in rows)
    sqlite_script(flow.folder / "shop.db", f"INSERT INTO orders VALUES {values}")


def numbers(address: str, topic: str) -> list[int]:
    return sorted(json.loads(one.value or b"")["n"] for one in kafka.received(address, topic))


def test_a_missing_topic_is_created_only_when_asked_for(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    write_one(flow, kafka_broker, f"bus:{topic}")
    add(flow, (1, "a"))
    words = flow.apply(expect=6).words
    assert f"there is no topic {topic} (flow.yaml:9)" in words
    assert "Create it, or let the run create it with `create: {}` in `to`" in words
    create = "create: {partitions: 2, config: {max.message.bytes: 5000}}"
    write_one(flow, kafka_broker, f"{{connection: bus, topic: {topic}, key: [name], headers: [n], {create}}}")
    plan = flow.run("plan", "flow.yaml", "--ddl", "--verbose", expect=0).words
    assert f"kafka-topics.sh --create --if-not-exists --topic {topic} --partitions 2" in plan
    assert "exactly once: one Kafka transaction" in plan
    flow.apply()
    [found] = kafka.received(kafka_broker, topic)
    assert (found.key, found.value, found.headers) == (b'{"name":"a"}', b'{"n":1,"name":"a"}', [("n", b"1")])


@pytest.mark.full
def test_a_topic_that_exists_and_that_others_write(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    kafka.create_topic(kafka_broker, topic)
    kafka.send(kafka_broker, topic, [b'{"n": -1}'])
    write_one(flow, kafka_broker, f"bus:{topic}")
    add(flow, (1, "a"))
    assert flow.actions() == {"orders": "create"}
    flow.apply()
    kafka.send(kafka_broker, topic, [b'{"n": -2}'])
    add(flow, (2, "b"))
    flow.apply()
    assert numbers(kafka_broker, topic) == [-2, -1, 1, 2]
    refused = flow.apply("--full-refresh", "orders", expect=6)
    assert f"{topic} is a topic: what it holds cannot be replaced" in refused.words
    assert numbers(kafka_broker, topic) == [-2, -1, 1, 2]


def test_a_topic_is_not_read_and_written_by_one_table(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """Two connections, by different addresses of one cluster."""
    flow = Flow(tmp_path)
    kafka.create_topic(kafka_broker, topic)
    port = kafka_broker.rpartition(":")[2]
    flow.write(
        f"""version: 1
flow: bus
state: state
spark: {{url: sail}}
connections:
  bus: {{type: kafka, brokers: "{kafka_broker}"}}
  other: {{type: kafka, brokers: "localhost:{port}"}}
tables:
  loop: {{from: "bus:{topic}", to: "other:{topic}", mode: append, format: {{type: text}}}}
"""
    )
    assert f"bus:{topic} and other:{topic} are the same table" in flow.apply(expect=6).words


@pytest.mark.full
def test_a_topic_deleted_and_created_again_is_another_target(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    write_one(flow, kafka_broker, f"{{connection: bus, topic: {topic}, create: {{}}}}")
    add(flow, (1, "a"), (2, "b"))
    flow.apply()
    kafka.delete_topic(kafka_broker, topic)
    add(flow, (3, "c"))
    assert f"bus:{topic} is gone" in flow.apply(expect=6).words
    kafka.create_topic(kafka_broker, topic)
    assert f"bus:{topic} is another table than the one this flow has written" in flow.apply(expect=6).words
    assert kafka.received(kafka_broker, topic) == []
    flow.run(*STATE, "--yes", expect=0)
    flow.apply()
    assert numbers(kafka_broker, topic) == [3]

    kafka.delete_topic(kafka_broker, topic)
    flow.apply("--full-refresh", "orders")
    assert numbers(kafka_broker, topic) == [1, 2, 3]


@pytest.mark.full
def test_a_topic_created_again_while_it_is_written(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    kafka.create_topic(kafka_broker, topic)
    write_one(flow, kafka_broker, f"bus:{topic}")
    add(flow, (1, "a"))
    flow.apply()
    add(flow, (2, "b"))
    process = flow.start(
        "apply", "flow.yaml", env={"FLOWCTL_CRASH_AT": "in_transaction", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    )
    wait_until_stopped(process)
    kafka.delete_topic(kafka_broker, topic)
    kafka.create_topic(kafka_broker, topic)
    out, err = end_of_stopped(process)
    assert process.returncode in (1, 4), out + err  # another topic, or none: brokers hear of it a moment later
    assert kafka.received(kafka_broker, topic) == []


@pytest.mark.full
@pytest.mark.server
def test_lost_commits_stop_the_table(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    with kafka.broker() as made, made.started() as address:
        kafka.create_topic(address, "out")
        write_one(flow, address, "bus:out")
        add(flow, (1, "a"))
        flow.apply()
        kafka.delete_topic(address, COMMITS)
        add(flow, (2, "b"))
        words = flow.apply(expect=6).words
        assert "the target carries no sequence number of this flow, behind the recorded sequence number 1" in words
        flow.run(*STATE, "--yes", expect=0)
        flow.apply()
        add(flow, (3, "c"))
        flow.apply()
        assert numbers(address, "out") == [1, 2, 3]

        kafka.delete_topic(address, COMMITS)
        kafka.create_topic(address, COMMITS, 2)
        assert f"topic {COMMITS} has 2 partitions" in flow.apply(expect=4).words
        kafka.delete_topic(address, COMMITS)
        kafka.create_topic(address, COMMITS)
        flow.run(*STATE, "--yes", expect=0)
        add(flow, (4, "d"))
        assert f"topic {COMMITS} has cleanup.policy=delete" in flow.apply(expect=4).words
        assert numbers(address, "out") == [1, 2, 3]


@pytest.mark.full
def test_a_first_commit_that_is_given_up(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """Its number becomes a void, and the topic counts as not written."""
    flow = Flow(tmp_path)
    kafka.create_topic(kafka_broker, topic)
    write_one(flow, kafka_broker, f"bus:{topic}", ", on_schema_change: {new_column: ignore}")
    add(flow, (1, "a"))
    flow.apply(env={"FLOWCTL_CRASH_AT": "in_commit"}, expect=-9)
    add(flow, (2, "b"))
    flow.apply("--full-refresh", "orders")
    assert [one.value for one in kafka.received(kafka_broker, topic)] == [
        b'{"n":1,"name":"a"}',
        b'{"n":2,"name":"b"}',
    ]


@pytest.mark.full
@pytest.mark.server
def test_brokers_that_keep_no_transaction_open_for_long(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    secured = kafka.Secured({}, {}, {"transaction.max.timeout.ms": "30000"})
    with kafka.broker(secured) as made, made.started() as address:
        kafka.create_topic(address, "out")
        write_one(flow, address, "bus:out")
        add(flow, (1, "a"))
        words = flow.apply(expect=4).words
    assert "the brokers do not keep a transaction open for the 60 s that 1 messages may take" in words
    assert "Set `transaction.max.timeout.ms` of the brokers to 60000" in words


def test_a_message_that_is_too_large(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    create = "create: {config: {max.message.bytes: 5000}}"
    write_one(flow, kafka_broker, f"{{connection: bus, topic: {topic}, {create}}}")
    add(flow, (1, "a"), (2, "x" * 6000), (3, "c"))
    words = flow.apply(expect=4).words
    assert "a message of 6,0" in words and "the topic takes 5,000 bytes at most (max.message.bytes)" in words
    assert "Raise the topic's `max.message.bytes`, or leave long columns out" in words
    assert kafka.received(kafka_broker, topic) == []
    sqlite_script(tmp_path / "shop.db", "UPDATE orders SET name = 'b' WHERE n = 2")
    flow.apply()
    assert numbers(kafka_broker, topic) == [1, 2, 3]


@pytest.mark.full
def test_a_stale_writer_sends_nothing(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """It is stopped in its transaction, loses its lease, and wakes up after another has committed its rows."""
    flow = Flow(tmp_path, {"FLOWCTL_LEASE_SECONDS": "3"})
    orders = Orders(tmp_path, kafka_broker, "table", topic)
    write_flow(flow, orders, f"{topic}-out", "append")
    for point in ("in_transaction", "in_commit"):
        orders.add(50)
        process = flow.start("apply", "flow.yaml", env={"FLOWCTL_CRASH_AT": point, "FLOWCTL_CRASH_WITH": "SIGSTOP"})
        wait_until_stopped(process)
        flow.apply("--lock-timeout", "30s")
        must_be_appended(orders, f"{topic}-out")
        orders.add(5)
        flow.apply()
        out, err = end_of_stopped(process)
        assert process.returncode == 1, out + err
        must_be_appended(orders, f"{topic}-out")


@pytest.mark.full
@pytest.mark.server
@pytest.mark.parametrize("point", ["in_transaction", pytest.param("in_commit", marks=pytest.mark.full)])
def test_a_broker_restarts_in_the_middle_of_a_transaction(point: str, tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    with kafka.broker() as made:
        with made.started() as address:
            orders = Orders(tmp_path, address, "table", "orders")
            write_flow(flow, orders, "out", "append")
            orders.add(20)
            flow.apply()
            orders.add(50)
            stopped = {"FLOWCTL_CRASH_AT": point, "FLOWCTL_CRASH_WITH": "SIGSTOP"}
            process = flow.start("apply", "flow.yaml", env=stopped)
            wait_until_stopped(process)
        with made.started():
            out, err = end_of_stopped(process)
            assert process.returncode == 0, out + err
            must_be_appended(orders, "out")
            assert flow.actions() == {"orders": "none"}


@pytest.mark.full
@pytest.mark.server
def test_what_the_user_may_do(tmp_path: Path) -> None:
    """Each refusal names what to allow; once all of it is allowed, the rows are sent."""
    flow = Flow(tmp_path, {"KAFKA_PW": kafka_security.PASSWORD})
    secured, user = kafka_security.restricted(), kafka_security.USER
    with kafka.broker(secured) as made, made.started() as address:
        kafka.create_topic(address, "out")
        write_one(flow, f"{HOST}:{secured.ports['OPEN']}", "bus:out")
        login = f'sasl: {{mechanism: PLAIN, username: {user}, password: "${{secret:env:KAFKA_PW}}"}}'
        flow.write(flow.spec.read_text().replace("type: kafka,", f"type: kafka, {login},"))
        add(flow, (1, "a"))

        def after(*allowed: str) -> str:
            """What the next run says."""
            kafka.allow(address, user, *allowed)
            return flow.apply(expect=None).words

        assert "Let it DESCRIBE, READ and WRITE out" in flow.apply(expect=4).words
        assert f"this user may not use topic {COMMITS}" in after("TOPIC", "out", "DESCRIBE")
        words = after("TOPIC", COMMITS, "DESCRIBE")
        assert f"topic {COMMITS}, where flowctl keeps what is committed, cannot be created" in words
        statement = f"kafka-topics.sh --create --if-not-exists --topic {COMMITS} --partitions 1"
        assert f"Create it: `{statement} --config cleanup.policy=compact" in words
        assert "transactional ids that begin with `flowctl.`" in after("TOPIC", COMMITS, "CREATE")
        of_topics = "Let this user DESCRIBE, READ and WRITE the topic and `_flowctl_commits`"
        assert of_topics in after("TRANSACTIONAL_ID", "flowctl.*", "DESCRIBE", "WRITE")
        found = flow.run("validate", "flow.yaml", "--connect", expect=None).words
        assert "orders: this user may not write topic out. Let it DESCRIBE and WRITE out" in found
        assert of_topics in after("TOPIC", "out", "WRITE")
        assert "1 committed" in after("TOPIC", COMMITS, "WRITE")
        add(flow, (2, "b"))
        assert f"Let it DESCRIBE, READ and WRITE {COMMITS}" in flow.apply(expect=4).words
        assert numbers(address, "out") == [1]
        assert "1 committed" in after("TOPIC", COMMITS, "READ")
        assert numbers(address, "out") == [1, 2]


@pytest.mark.full
def test_columns_come_and_go(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """A column that is gone is a header no more, either."""
    flow = Flow(tmp_path)
    kafka.create_topic(kafka_broker, topic)
    write_one(flow, kafka_broker, f"{{connection: bus, topic: {topic}, headers: [name]}}")
    flow.write(flow.spec.read_text().replace("mode: append", "mode: merge, key: [n]"))
    add(flow, (1, "a"))
    flow.apply()
    sqlite_script(tmp_path / "shop.db", "ALTER TABLE orders ADD city text; INSERT INTO orders VALUES (2, 'b', 'Gouda')")
    assert "+ city string; on_schema_change.new_column: add" in flow.run("plan", "flow.yaml", expect=0).words
    flow.apply()
    sqlite_script(tmp_path / "shop.db", "ALTER TABLE orders DROP name; INSERT INTO orders VALUES (3, 'Delft')")
    flow.apply()
    first, *later = kafka.received(kafka_broker, topic)
    (last,) = (message for message in later if message.key == b'{"n":3}')
    assert json.loads(first.value or b"") == {"n": 1, "name": "a"}
    assert json.loads(last.value or b"") == {"n": 3, "city": "Delft"}
    assert (first.headers, last.headers) == ([("name", b"a")], ())
