"""Topics written `at_least_once`: a killed run sends a commit's messages again, a finished one does not."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from flowctl.crashpoints import POINTS, TOPIC_POINTS, Point, TopicPoint
from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.kafka.test_topics import KILLS, write_bus
from tests.e2e.kafka.test_writing import FORMATS, Decoded
from tests.services import kafka

#: Text that makes 200 rows more than this process holds, so that the engine's tasks send them.
PAD = 120_000
ALL: tuple[Point | TopicPoint, ...] = (*POINTS, *TOPIC_POINTS)
#: Where a run is killed once its messages are sent, and whether the next one sends them again.
IS_REPEATED: Mapping[Point | TopicPoint, bool] = {
    "in_transaction": True,
    "before_commit": True,
    "in_commit": True,
    "transaction_committed": False,
    "after_commit": False,
    "before_record": False,
    "after_record": False,
}
#: The last point with each answer: what is sent again does not depend on the format.
OF_FORMATS: tuple[Point | TopicPoint, ...] = ("in_commit", "transaction_committed")
#: Of a commit that is killed while it is sent: so many rows that the tasks take a while, and more than this process
#: holds.
MANY, MANY_PAD = 20_000, 1_000


def written_by_engines(formats: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """Each of ``formats`` by each engine, the modes in turn; with a name."""
    both = [(engine, format) for engine in ("sail", "local[2]") for format in formats]
    return [
        (engine, format, mode, f"{engine[:5]}-{format[6:]}-{mode}")
        for (engine, format), mode in zip(both, itertools.cycle(("append", "merge")))
    ]


@dataclass(frozen=True)
class Written:
    """The topic that is written, as its consumers in `read_committed` find it."""

    address: str
    topic: str
    decoded: Decoded

    def messages(self) -> list[kafka.Received]:
        return kafka.received(self.address, self.topic) if self.topic in kafka.topics(self.address) else []

    def count(self) -> int:
        return kafka.count(self.address, self.topic)

    def times(self) -> Counter[int]:
        """How often each row is there, by its number."""
        return Counter(self._number(one) for one in self.messages() if one.value is not None)

    def last_of_keys(self) -> dict[int, int]:
        """The number of the last message of each id, without tombstones."""
        found: dict[int, int] = {}
        for one in self.messages():
            id = self.decoded.fields(one.key or b"")["id"]
            found.pop(id, None)
            if one.value is not None:
                found[id] = self._number(one)
        return found

    def must_have(self, mode: str, rows: range, ids: int = 50) -> None:
        if mode == "append":
            assert {*self.times()} == {*rows}
        else:
            newest = {n % ids: n for n in rows}
            assert self.last_of_keys() == {id: n for id, n in newest.items() if n % 7}

    def _number(self, message: kafka.Received) -> int:
        return int(self.decoded.fields(message.value or b"")["n"])


def write_orders(
    flow: Flow,
    written: Written,
    mode: str,
    *,
    engine: str = "sail",
    format: str = FORMATS[0],
    more: str = "",
) -> None:
    """A table of SQLite with a cursor; ``more`` is of `to`."""
    merged = ", key: [id], deletes: {detect: flag, column: gone, action: hard}" if mode == "merge" else ""
    to = f"connection: bus, topic: {written.topic}, delivery: at_least_once, create: {{partitions: 3}}"
    to = f"{{{to}, format: {{{format}}}{more}}}"
    columns = "columns: {exclude: [gone]}"
    table = f"  orders: {{from: db:orders, to: {to}, mode: {mode}, cursor: {{column: n}}, {columns}{merged}}}"
    registry = written.decoded.registry
    write_bus(flow, written.address, "  db: {type: sqlite, path: shop.db}", table, registry=registry)
    flow.write(flow.spec.read_text().replace("{url: sail}", f'{{url: "{engine}"}}'))
    if not (flow.folder / "shop.db").exists():
        ddl = "CREATE TABLE orders (n bigint, id bigint, name text, gone boolean)"
        sqlite_script(flow.folder / "shop.db", ddl)


def add(flow: Flow, numbers: range, pad: int, ids: int = 50) -> None:
    """So many orders: each number changes the one of its remainder, and removes it if it can be divided by 7."""
    next_one = f"SELECT n + 1 FROM c WHERE n + 1 < {numbers.stop}"
    counted = f"WITH RECURSIVE c(n) AS (SELECT {numbers.start} UNION ALL {next_one})"
    row = f"n, n % {ids}, n || ' ' || substr(hex(zeroblob({pad})), 1, {pad}), n % 7 = 0"
    sqlite_script(flow.folder / "shop.db", f"INSERT INTO orders {counted} SELECT {row} FROM c")


@pytest.mark.parametrize(
    ("engine", "pad", "format", "points", "mode"),
    [
        pytest.param(
            "sail", 0, FORMATS[0], ("transaction_committed",), "merge", id="this-process-merge", marks=pytest.mark.full
        ),
        *(
            pytest.param(engine, pad, FORMATS[0], ALL, mode, id=f"{engine[:5]}-all-{mode}", marks=pytest.mark.full)
            for engine, pad in (("sail", 0), ("local[2]", PAD))
            for mode in ("append", "merge")
        ),
        *(
            pytest.param(engine, PAD, format, OF_FORMATS, mode, id=name, marks=pytest.mark.full)
            for engine, format, mode, name in written_by_engines(FORMATS[1:])
        ),
    ],
)
def test_a_killed_apply_sends_each_row_again(
    engine: str,
    pad: int,
    format: str,
    points: Sequence[Point | TopicPoint],
    mode: str,
    tmp_path: Path,
    kafka_broker: str,
    schema_registry: str,
    topic: str,
) -> None:
    """A run that dies before its record sends all messages again; one that dies after it sends none of them."""
    flow = Flow(tmp_path)
    written = Written(kafka_broker, topic, Decoded(schema_registry if format != FORMATS[0] else ""))
    write_orders(flow, written, mode, engine=engine, format=format)
    end = 0
    for point in (one for one in points if mode == "merge" or one != "after_stage"):
        add(flow, range(end, end + 200), pad)
        begin, end = end, end + 200
        before = len(written.messages())
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        after_kill = len(written.messages())
        if point in IS_REPEATED:
            assert after_kill - before >= (200 if mode == "append" else 50)
        else:
            assert after_kill == before
        flow.apply()
        written.must_have(mode, range(end))
        again = len(written.messages()) - after_kill
        if point in IS_REPEATED:
            assert again == (after_kill - before if IS_REPEATED[point] else 0)
        if mode == "append":
            times = written.times()
            assert {times[n] for n in range(begin, end)} == {2 if IS_REPEATED.get(point) else 1}
    assert flow.actions() == {"orders": "none"}


@pytest.mark.parametrize(
    ("engine", "format", "kills", "mode"),
    [
        pytest.param(engine, format, min(KILLS, 8), mode, id=name)
        for engine, format, mode, name in written_by_engines((FORMATS[0], "type: avro", "type: protobuf"))
    ],
)
@pytest.mark.full
def test_a_run_killed_while_it_sends_loses_no_row(
    engine: str,
    format: str,
    kills: int,
    mode: str,
    tmp_path: Path,
    kafka_broker: str,
    schema_registry: str,
    topic: str,
) -> None:
    """At random moments, so often that ``kills`` of them had sent a part of their commit. Now and then a run ends."""
    flow, chance = Flow(tmp_path), random.Random(f"{engine} {format} {mode}")
    written = Written(kafka_broker, topic, Decoded(schema_registry if format != FORMATS[0] else ""))
    write_orders(flow, written, mode, engine=engine, format=format)
    end, partial, is_done = 0, 0, True
    for _ in range(10 * kills):
        if is_done:
            add(flow, range(end, end + MANY), MANY_PAD, ids=MANY)
            end += MANY
        sent = kill_while_it_sends(flow, written, chance.randrange(MANY))
        partial += 0 < sent < MANY
        if partial == kills:
            break
        if is_done := chance.random() < 0.5:
            flow.apply()
    assert partial == kills, "no run was killed between the first and the last message of its commit"
    flow.apply()
    written.must_have(mode, range(end), ids=MANY)
    assert flow.actions() == {"orders": "none"}


def kill_while_it_sends(flow: Flow, written: Written, wanted: int) -> int:
    """Once the topic has got more than ``wanted`` messages, or the run has ended; returns how many it has got."""
    before = written.count()
    with (flow.folder / "output").open("w") as output:
        process = flow.start("apply", "flow.yaml", output=output)
        while process.poll() is None and written.count() - before <= wanted:
            time.sleep(0.01)
        process.kill()
        process.wait()
    return written.count() - before


def test_the_plan_and_each_message_say_so(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, written = Flow(tmp_path), Written(kafka_broker, topic, Decoded())
    write_orders(flow, written, "append", more=", key: [id], headers: [n]")
    add(flow, range(1), 0)
    plan = flow.run("plan", "flow.yaml", "--verbose", expect=0).words
    assert "at least once: sent by the engine's tasks; a killed run sends a commit's messages again" in plan
    flow.apply()
    [found] = written.messages()
    headers = {name: value.decode() for name, value in found.headers}
    lineage, fence = headers.pop("flowctl.lineage"), headers.pop("flowctl.fence")
    assert headers == {"n": "0", "flowctl.table": "orders", "flowctl.seq": "1"}
    assert lineage and int(fence) > 0
