"""Topics written by `flowctl apply`: a consumer in `read_committed` gets each row exactly once, whatever is killed."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from flowctl.connectors.avro import AvroSchema
from flowctl.connectors.kafka.encodings.json_schema import JsonSchema
from flowctl.connectors.kafka.encodings.protobuf import ProtobufSchema
from flowctl.connectors.kafka.registry import Registry
from flowctl.connectors.written_fields import WriterSchema
from flowctl.crashpoints import POINTS, TOPIC_POINTS, Point, TopicPoint
from tests.e2e.flows import Flow, end_of_stopped, sqlite_rows, sqlite_script, wait_until_stopped
from tests.e2e.kafka.test_topics import kill_at_random, write_bus
from tests.e2e.streams.test_follow import followed, wait_for
from tests.services import kafka

Source = Literal["table", "topic"]
ALL: tuple[Point | TopicPoint, ...] = (*POINTS, *TOPIC_POINTS)
#: The steps at which a transaction is open, or committed and not recorded.
SOME: tuple[Point | TopicPoint, ...] = ("in_transaction", "in_commit", "transaction_committed")
#: What `format` is in `to`, and in `from`.
FORMATS = ("type: json", "type: json, registry: true", "type: avro", "type: protobuf")


@dataclass
class Decoded:
    """Keys and values that were written: as JSON, or with a schema that is in the ``registry`` (a URL)."""

    registry: str = ""
    schemas: dict[int, WriterSchema] = field(default_factory=dict)

    def fields(self, data: bytes) -> Mapping[str, Any]:
        if not self.registry:
            return json.loads(data)  # type: ignore[no-any-return]
        id = int.from_bytes(data[1:5], "big")
        if id not in self.schemas:
            self.schemas[id] = self._schema(id)
        return self.schemas[id].parsed(data[5:])

    def _schema(self, id: int) -> WriterSchema:
        found = Registry({"url": self.registry}, ".").by_id(id)
        assert found is not None
        match found.kind:
            case "AVRO":
                return AvroSchema(found.text)
            case "PROTOBUF":
                return ProtobufSchema(found.text, id=id)
            case _:
                return JsonSchema(found.text)


@dataclass
class Orders:
    """What is read: a table of SQLite with a cursor, or a topic. ``sent`` has every row that was added, ``rows`` the
    last one of each id. ``format`` is that of the messages written, whose schemas are in the ``registry``."""

    folder: Path
    address: str
    source: Source
    topic: str
    format: str = FORMATS[0]
    registry: str = ""
    sent: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random("orders"))

    def __post_init__(self) -> None:
        self.fields = Decoded(self.registry).fields
        if self.source == "topic":
            kafka.create_topic(self.address, self.topic, 2)
        else:
            columns = "n bigint, id bigint, name text, gone boolean"
            sqlite_script(self.folder / "shop.db", f"CREATE TABLE orders ({columns})")

    @property
    def yaml(self) -> str:
        if self.source == "topic":
            of_key = "format: {type: json, schema: {n: bigint, name: string}, key: {schema: {id: bigint}}}"
            return f"from: bus:{self.topic}, {of_key}"
        return "from: db:orders, cursor: {column: n}, columns: {exclude: [gone]}"

    def add(self, count: int) -> None:
        made = []
        for _ in range(count):
            n, id = len(self.sent) + len(made), self.chance.randrange(40)
            is_gone = id in self.rows and self.chance.random() < 0.3
            row = {"n": n, "id": id, "name": None if is_gone else f"name {n}"}
            if is_gone:
                del self.rows[id]
            else:
                self.rows[id] = row
            made.append(row)
        self.sent += made
        if self.source == "topic":
            with kafka.producer(self.address) as producer:
                for row in made:
                    value = json.dumps({"n": row["n"], "name": row["name"]}).encode() if row["name"] else None
                    producer.produce(self.topic, value, json.dumps({"id": row["id"]}).encode(), row["id"] % 2)
        else:
            values = (f"({one['n']}, {one['id']}, '{one['name'] or ''}', {one['name'] is None})" for one in made)
            sqlite_script(self.folder / "shop.db", f"INSERT INTO orders VALUES {', '.join(values)}")


def write_flow(flow: Flow, orders: Orders, out: str, mode: str) -> None:
    key = ", key: [id]" if mode == "merge" else ""
    more = ", deletes: {detect: flag, column: gone, action: hard}" if mode == "merge" and key else ""
    more = "" if orders.source == "topic" else more
    to = f"{{connection: bus, topic: {out}, create: {{partitions: 3}}, format: {{{orders.format}}}}}"
    table = f"  orders: {{{orders.yaml}, to: {to}, mode: {mode}{key}{more}}}"
    write_bus(flow, orders.address, "  db: {type: sqlite, path: shop.db}", table, registry=orders.registry)


def must_be_appended(orders: Orders, out: str) -> None:
    """Every row, once, by value."""
    found = [orders.fields(one.value or b"") for one in kafka.received(orders.address, out)]
    assert sorted(row["n"] for row in found if row["n"] is not None) == sorted(
        row["n"] for row in orders.sent if orders.source == "table" or row["name"]
    )
    names = {row["n"]: row["name"] or None for row in found}
    assert all(names[row["n"]] == row["name"] for row in orders.sent if row["n"] in names)


def must_be_merged(orders: Orders, out: str) -> None:
    """The last message of each key is the row; a tombstone if it is gone."""
    found: dict[int, Any] = {}
    for one in kafka.received(orders.address, out):
        id = orders.fields(one.key or b"")["id"]
        found.pop(id, None)
        if one.value is not None:
            found[id] = orders.fields(one.value)
            assert found[id]["id"] == id
    assert found == orders.rows


MUST_BE: dict[str, Callable[[Orders, str], None]] = {"append": must_be_appended, "merge": must_be_merged}


@pytest.mark.parametrize(
    ("source", "mode", "format", "points"),
    [
        pytest.param("table", "append", FORMATS[0], SOME, id="table-append-some"),
        *(
            pytest.param(source, mode, FORMATS[0], ALL, id=f"{source}-{mode}-all", marks=pytest.mark.full)
            for source in ("table", "topic")
            for mode in MUST_BE
        ),
        *(
            pytest.param("table", mode, format, SOME, id=f"table-{mode}-{format[6:]}", marks=pytest.mark.full)
            for format, mode in zip(FORMATS[1:], itertools.cycle(MUST_BE))
        ),
    ],
)
def test_a_killed_apply_sends_each_row_once(
    source: Source,
    mode: str,
    format: str,
    points: Sequence[Point | TopicPoint],
    tmp_path: Path,
    kafka_broker: str,
    schema_registry: str,
    topic: str,
) -> None:
    flow, out = Flow(tmp_path), f"{topic}-out"
    orders = Orders(tmp_path, kafka_broker, source, topic, format, schema_registry if format != FORMATS[0] else "")
    write_flow(flow, orders, out, mode)
    direct = ("after_stage",) if mode == "append" else ()
    for point in (one for one in points if one not in direct):
        orders.add(100)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        orders.add(10)
        flow.apply()
        MUST_BE[mode](orders, out)
    assert flow.actions() == {"orders": "none"}


@pytest.mark.full
@pytest.mark.parametrize("mode", list(MUST_BE))
@pytest.mark.parametrize("source", ["table", "topic"])
def test_random_kills_while_rows_come(source: Source, mode: str, tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """`FLOWCTL_TEST_KILLS` times, at a random moment of a run."""
    flow, out = Flow(tmp_path), f"{topic}-out"
    orders = Orders(tmp_path, kafka_broker, source, topic)
    write_flow(flow, orders, out, mode)
    orders.add(100)
    kill_at_random(flow, lambda: orders.add(300), f"{source} {mode}")
    MUST_BE[mode](orders, out)


@pytest.mark.parametrize(
    "format", [*FORMATS[::2], *(pytest.param(one, marks=pytest.mark.full) for one in FORMATS[1::2])]
)
def test_values_come_back_equal(
    format: str, tmp_path: Path, kafka_broker: str, schema_registry: str, topic: str
) -> None:
    """From a table to a topic, and from there to another table, by one flow; beside it, without a topic."""
    columns = "id bigint, amount decimal(20,6), price double, at timestamp, day date, name text, ok boolean"
    values = [
        "(1, '12345678901234.500000', 0.1, '2026-01-02 03:04:05.000006', '2026-01-02', 'ü \"x\" \\ \n', true)",
        f"({2**63 - 1}, '-0.000001', -1e300, '0001-01-01 00:00:00', '9999-12-31', '', false)",
        f"({-(2**63)}, NULL, NULL, NULL, NULL, NULL, NULL)",
    ]
    sqlite_script(tmp_path / "shop.db", f"CREATE TABLE t ({columns}); INSERT INTO t VALUES {', '.join(values)}")
    schema = (
        'id: bigint, amount: "decimal(20,6)", price: double, at: timestamp_ntz, day: date, name: string, ok: boolean'
    )
    flow = Flow(tmp_path)
    flow.write(
        f"""version: 1
flow: bus
state: state
spark: {{url: sail}}
connections:
  bus: {{type: kafka, brokers: "{kafka_broker}", registry: {{url: "{schema_registry}"}}}}
  db: {{type: sqlite, path: shop.db}}
  out: {{type: sqlite, path: out.db}}
tables:
  there:
    from: db:t
    to: {{connection: bus, topic: {topic}, create: {{}}, format: {{{format}}}}}
    mode: merge
    key: [id]
  directly: {{from: db:t, to: out, mode: merge, key: [id]}}
  back:
    from: bus:{topic}
    format: {{{format}, schema: {{{schema}}}}}
    columns: {{include: [id, amount, price, at, day, name, ok]}}
    to: out:t
    mode: append
"""
    )
    flow.apply("--select", "there")
    flow.apply()
    by_topic, directly = (sqlite_rows(tmp_path / "out.db", f"SELECT * FROM {name}") for name in ("t", "directly"))
    assert by_topic == directly


def test_a_dry_run_counts_messages(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    orders = Orders(tmp_path, kafka_broker, "table", topic)
    write_flow(flow, orders, f"{topic}-out", "merge")
    orders.add(50)
    flow.apply()
    orders.add(50)
    step = flow.plan("--effects")["steps"][0]
    keys = {row["id"]: row for row in orders.sent[49:]}  # the row at the position is read again
    gone = sum(row["name"] is None for row in keys.values())
    assert (step["effects"]["inserted"], step["effects"]["deleted"]) == (len(keys) - gone, gone)


@pytest.mark.full
@pytest.mark.server
def test_commits_hidden_by_another_flows_transaction(tmp_path: Path) -> None:
    """Another flow is stopped right before its commit. What the others have committed meanwhile is known, and what they
    have not."""
    with kafka.broker() as made, made.started() as address:
        flows, tables = [], []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            flows.append(Flow(folder, {"FLOWCTL_LEASE_SECONDS": "600"}))
            tables.append(Orders(folder, address, "table", "unused"))
            write_flow(flows[-1], tables[-1], name, "append")
            tables[-1].add(20)
        one, two = flows
        stopped = one.start(
            "apply", "flow.yaml", env={"FLOWCTL_CRASH_AT": "in_commit", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
        )
        wait_until_stopped(stopped)
        assert one.actions() == {"orders": "recover"}  # a plan does not disturb it
        two.apply()
        for point in ("in_commit", "after_commit"):
            tables[1].add(20)
            two.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
            tables[1].add(20)
            two.apply()
            must_be_appended(tables[1], "two")
        out, err = end_of_stopped(stopped)
        assert stopped.returncode == 0, out + err
        must_be_appended(tables[0], "one")


@pytest.mark.full
def test_a_topic_is_followed_into_another(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, out = Flow(tmp_path), f"{topic}-out"
    orders = Orders(tmp_path, kafka_broker, "topic", topic)
    write_flow(flow, orders, out, "append")
    flow.write(flow.spec.read_text().replace("mode: append", "mode: append, every: 1s"))
    orders.add(100)

    def sent() -> int:
        """A row without a name is a tombstone, which has no number."""
        return len(kafka.received(kafka_broker, out))

    with followed(flow):
        wait_for(lambda: out in kafka.topics(kafka_broker) and sent() == 100)
        for count in (120, 140):
            orders.add(20)
            wait_for(lambda count=count: sent() == count)  # type: ignore[misc]
    must_be_appended(orders, out)
