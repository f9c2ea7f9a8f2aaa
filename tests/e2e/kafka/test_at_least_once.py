"""Topics written `at_least_once`: a killed run sends a commit's messages again, a finished one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from flowctl.crashpoints import Point, TopicPoint
from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.kafka.test_topics import write_bus
from tests.services import kafka

#: Text that makes 200 rows more than this process holds, so that the engine's tasks send them.
PAD = 120_000
#: Where a run is killed, and whether the next one sends the messages of its commit again.
IS_REPEATED: Mapping[Point | TopicPoint, bool] = {
    "in_transaction": True,
    "in_commit": True,
    "transaction_committed": False,
    "after_commit": False,
}


def write_orders(flow: Flow, address: str, topic: str, mode: str, *, engine: str = "sail", more: str = "") -> None:
    """A table of SQLite with a cursor; ``more`` is of `to`."""
    merged = ", key: [id], deletes: {detect: flag, column: gone, action: hard}" if mode == "merge" else ""
    to = f"{{connection: bus, topic: {topic}, delivery: at_least_once, create: {{partitions: 3}}{more}}}"
    columns = "columns: {exclude: [gone]}"
    table = f"  orders: {{from: db:orders, to: {to}, mode: {mode}, cursor: {{column: n}}, {columns}{merged}}}"
    write_bus(flow, address, "  db: {type: sqlite, path: shop.db}", table)
    flow.write(flow.spec.read_text().replace("{url: sail}", f'{{url: "{engine}"}}'))
    if not (flow.folder / "shop.db").exists():
        ddl = "CREATE TABLE orders (n bigint, id bigint, name text, gone boolean)"
        sqlite_script(flow.folder / "shop.db", ddl)


def add(flow: Flow, numbers: Sequence[int], pad: int) -> None:
    """Orders 0 to 49: each number changes the one of its remainder, and removes it if it can be divided by 7."""
    rows = (f"({n}, {n % 50}, '{n} {'x' * pad}', {n % 7 == 0})" for n in numbers)
    sqlite_script(flow.folder / "shop.db", f"INSERT INTO orders VALUES {', '.join(rows)}")


def number(value: bytes) -> int:
    return int(value.split(b'"n":')[1].split(b",")[0])


def sent(address: str, topic: str) -> Counter[int]:
    """How often each row is there, by its number."""
    return Counter(number(one.value or b"") for one in kafka.received(address, topic) if one.value is not None)


def last_of_keys(address: str, topic: str) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for one in kafka.received(address, topic):
        found.pop(one.key or b"", None)
        if one.value is not None:
            found[one.key or b""] = number(one.value)
    return found


def must_be_there(address: str, topic: str, mode: str, rows: range) -> None:
    if mode == "append":
        assert set(sent(address, topic)) == set(rows)
    else:
        newest = {n % 50: n for n in rows}
        expected = {b'{"id":%d}' % id: n for id, n in newest.items() if n % 7}
        assert last_of_keys(address, topic) == expected


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize(
    ("engine", "pad", "points"),
    [
        pytest.param("sail", 0, ("in_commit", "transaction_committed"), id="this-process"),
        pytest.param("sail", 0, tuple(IS_REPEATED), id="this-process-all", marks=pytest.mark.full),
        pytest.param("sail", PAD, ("in_transaction",), id="sail"),
        pytest.param("local[2]", PAD, tuple(IS_REPEATED), id="spark-all", marks=pytest.mark.full),
    ],
)
def test_a_killed_apply_sends_each_row_again(
    engine: str,
    pad: int,
    points: Sequence[Point | TopicPoint],
    mode: str,
    tmp_path: Path,
    kafka_broker: str,
    topic: str,
) -> None:
    """A run that dies before its record sends all messages again; one that dies after it sends none of them."""
    flow = Flow(tmp_path)
    write_orders(flow, kafka_broker, topic, mode, engine=engine)
    end = 0
    for point in points:
        add(flow, range(end, end + 200), pad)
        begin, end = end, end + 200
        before = len(kafka.received(kafka_broker, topic)) if topic in kafka.topics(kafka_broker) else 0
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        after_kill = len(kafka.received(kafka_broker, topic))
        assert after_kill - before >= (200 if mode == "append" else 50)
        flow.apply()
        must_be_there(kafka_broker, topic, mode, range(end))
        again = len(kafka.received(kafka_broker, topic)) - after_kill
        assert again == (after_kill - before if IS_REPEATED[point] else 0)
        if mode == "append":
            times = sent(kafka_broker, topic)
            assert {times[n] for n in range(begin, end)} == {2 if IS_REPEATED[point] else 1}
    assert flow.actions() == {"orders": "none"}


def test_the_plan_and_each_message_say_so(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    write_orders(flow, kafka_broker, topic, "append", more=", key: [id], headers: [n]")
    add(flow, range(1), 0)
    plan = flow.run("plan", "flow.yaml", "--verbose", expect=0).words
    assert "at least once: sent by the engine's tasks; a killed run sends a commit's messages again" in plan
    flow.apply()
    [found] = kafka.received(kafka_broker, topic)
    headers = {name: value.decode() for name, value in found.headers}
    lineage, fence = headers.pop("flowctl.lineage"), headers.pop("flowctl.fence")
    assert headers == {"n": "0", "flowctl.table": "orders", "flowctl.seq": "1"}
    assert lineage and int(fence) > 0
