"""Topics whose messages have schemas in a registry, which change between runs and within them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from flowctl.connectors.kafka.encodings.protobuf import ProtobufSchema
from tests.e2e.flows import Flow, sqlite_rows, sqlite_script
from tests.e2e.kafka.test_dead_letters import letters_of
from tests.e2e.kafka.test_topics import write_bus
from tests.e2e.targets import TargetPlace, place
from tests.services import kafka, schemas
from tests.services.processes import HOST, free_port

ID = {"name": "id", "type": "long"}
NAME = {"name": "name", "type": ["null", "string"], "default": None}
PRICE = {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}


def avro(*fields: Mapping[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


def encoded(schema: str, row: Mapping[str, Any]) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(schema)), row)
    return made.getvalue()


def write_flow(flow: Flow, address: str, url: str, target: TargetPlace, table: str, *, oauth: str = "") -> None:
    written = f'  orders: {{{table}, to: "out:{target.object}"}}'
    write_bus(flow, address, f"  out: {target.connection}", written, registry=url, oauth=oauth)


@pytest.fixture
def target(tmp_path: Path) -> TargetPlace:
    return place("sqlite", tmp_path)


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


class Orders:
    """A topic and the subject of its values."""

    def __init__(self, address: str, url: str, topic: str) -> None:
        self.address, self.url, self.topic = address, url, topic
        kafka.create_topic(address, topic)

    def register(self, schema: str, kind: str = "AVRO") -> int:
        return schemas.register(self.url, f"{self.topic}-value", schema, kind)

    def send(self, id: int, schema: str, *rows: Mapping[str, Any]) -> None:
        kafka.send(self.address, self.topic, [schemas.framed(id, encoded(schema, row)) for row in rows])


@pytest.fixture
def orders(kafka_broker: str, schema_registry: str, topic: str) -> Orders:
    return Orders(kafka_broker, schema_registry, topic)


@pytest.mark.full
def test_a_schema_that_changes_twice(flow: Flow, target: TargetPlace, orders: Orders) -> None:
    table = f"from: 'bus:{orders.topic}', mode: append, format: {{type: avro}}, dead_letters: {{}}"
    write_flow(flow, orders.address, orders.url, target, table)
    first, second, third = avro(ID), avro(ID, NAME), avro(ID, NAME, {**PRICE, "default": "\u0001"})
    one = orders.register(first)
    orders.send(one, first, {"id": 1}, {"id": 2})
    flow.apply()
    assert target.rows(("id", "_offset")) == [(1, 0), (2, 1)]

    two = orders.register(second)
    orders.send(two, second, {"id": 3, "name": "ü"})
    orders.send(one, first, {"id": 4})  # a producer that was not restarted
    kafka.send(orders.address, orders.topic, [schemas.framed(9_999_999, b"?"), b"plain", schemas.framed(two, b"\x02")])
    flow.apply()
    assert target.rows(("id", "name")) == [(1, None), (2, None), (3, "ü"), (4, None)]

    three = orders.register(third)
    orders.send(three, third, {"id": 5, "name": None, "price": Decimal("1.25")})
    orders.send(two, second, {"id": 6, "name": "x"})
    flow.apply()
    rows = [(1, None), (2, None), (3, None), (4, None), (5, "1.25"), (6, "0.01")]
    assert [(id, price and str(price)) for id, price in target.rows(("id", "price"))] == rows
    assert letters_of(target).rows(("_offset", "_error")) == [
        (4, "unknown_schema"), (5, "no_schema_id"), (6, "corrupt"),
    ]  # fmt: skip
    assert flow.actions() == {"orders": "none"}


def debezium() -> str:
    row = {"type": "record", "name": "Value", "fields": [ID, {"name": "name", "type": ["null", "string"]}]}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
    parts = [("before", ["null", row]), ("after", ["null", "Value"]), ("source", source), ("op", "string")]
    fields = [{"name": name, "type": kind} for name, kind in parts]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": "shop.orders", "fields": fields})


def test_changes_of_debezium_in_avro(flow: Flow, target: TargetPlace, orders: Orders) -> None:
    table = f"from: 'bus:{orders.topic}', mode: merge, key: [id], format: {{type: avro, envelope: debezium}}"
    write_flow(flow, orders.address, orders.url, target, table)
    schema = debezium()
    id = orders.register(schema)

    def change(op: str, before: Any, after: Any) -> dict[str, Any]:
        return {"before": before, "after": after, "source": {"lsn": 7}, "op": op}

    one, two = {"id": 1, "name": "a"}, {"id": 2, "name": None}
    orders.send(id, schema, change("r", None, one), change("c", None, two), change("u", one, {**one, "name": "b"}))
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "b"), (2, None)]
    assert target.columns() == ["id", "name"]
    orders.send(id, schema, change("d", two, None))
    kafka.send(orders.address, orders.topic, [None])
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "b")]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["avro", pytest.param("protobuf", marks=pytest.mark.full)])
def test_keys_with_schemas(flow: Flow, target: TargetPlace, orders: Orders, kind: str) -> None:
    """The key's columns are the row's, also where the value has them too."""
    table = f"from: 'bus:{orders.topic}', mode: merge, key: [id], format: {{type: {kind}, key: {{}}}}"
    write_flow(flow, orders.address, orders.url, target, table)
    value_schema, key_schema = (avro(ID, NAME), avro(ID, name="Key")) if kind == "avro" else (VALUE_PROTO, KEY_PROTO)
    value_id = orders.register(value_schema, kind.upper())
    key_id = schemas.register(orders.url, f"{orders.topic}-key", key_schema, kind.upper())

    def send(id: int, name: str | None) -> None:
        row = None if name is None else {"id": id, "name": name}
        if kind == "avro":
            key, value = encoded(key_schema, {"id": id}), row and encoded(value_schema, row)
        else:
            key = b"\x00" + ProtobufSchema(key_schema)._class(id=id).SerializeToString()
            value = row and b"\x00" + ProtobufSchema(value_schema)._class(**row).SerializeToString()
        framed = schemas.framed(value_id, value) if value else None
        kafka.send(orders.address, orders.topic, [framed], key=schemas.framed(key_id, key))

    send(1, "a")
    send(2, "b")
    send(1, "c")
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "c"), (2, "b")]
    send(2, None)
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "c")]


VALUE_PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string name = 2; }'
KEY_PROTO = 'syntax = "proto3"; package shop; message Key { int64 id = 1; }'


@pytest.mark.full
def test_a_registry_that_is_down_for_a_while(flow: Flow, target: TargetPlace, kafka_broker: str, topic: str) -> None:
    with schemas.registry() as made:
        with made.started() as url:
            orders = Orders(kafka_broker, url, topic)
            write_flow(flow, kafka_broker, url, target, f"from: 'bus:{topic}', mode: append, format: {{type: avro}}")
            schema = avro(ID)
            id = orders.register(schema)
            orders.send(id, schema, {"id": 1})
            flow.apply()
        orders.send(id, schema, {"id": 2})
        refused = flow.apply(expect=4)
        assert f"the registry {url} does not answer" in refused.words
        flow.run("plan", "flow.yaml", expect=4)
        with made.started():
            flow.apply()
    assert target.rows(("id",)) == [(1,), (2,)]


def test_schemas_in_files(flow: Flow, target: TargetPlace, kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    (flow.folder / "order.proto").write_text(VALUE_PROTO)
    format = "{type: protobuf, schema_file: order.proto}"
    write_flow(flow, kafka_broker, "http://nobody:1", target, f"from: 'bus:{topic}', mode: append, format: {format}")
    message = ProtobufSchema(VALUE_PROTO)._class(id=1, name="a").SerializeToString()
    kafka.send(kafka_broker, topic, [message])
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "a")]
    (flow.folder / "order.proto").write_text("message")
    assert "the schema is not valid Protobuf" in flow.run("plan", "flow.yaml").words
    (flow.folder / "order.proto").unlink()
    assert "order.proto cannot be read" in flow.run("plan", "flow.yaml").words


@pytest.mark.full
@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("format", ["type: avro", "type: protobuf", "type: json, registry: true"])
def test_a_table_through_a_topic_with_schemas(
    flow: Flow, kafka_broker: str, schema_registry: str, topic: str, format: str, mode: str
) -> None:
    """Written and read again: equal, also after a column was added, and with rows that are gone."""
    sqlite_script(flow.folder / "shop.db", "CREATE TABLE o (n bigint, id bigint, price decimal(9,2), gone boolean)")
    key, read_key = (", key: [id]", f", key: {{{format}}}") if mode == "merge" else (", dead_letters: {}", "")
    deletes = ", deletes: {detect: flag, column: gone, action: hard}" if mode == "merge" else ""
    own_key = ", key: [id]" if mode == "append" else ""
    to = f"{{connection: bus, topic: {topic}, create: {{partitions: 2}}, format: {{{format}}}{own_key}}}"
    files = "  db: {type: sqlite, path: shop.db}\n  out: {type: sqlite, path: target.db}"
    own = key if mode == "merge" else ""
    tables = f"""  sent: {{from: "db:o", to: {to}, mode: {mode}{own}{deletes}, cursor: {{column: n}},
    columns: {{exclude: [gone]}}}}
  read: {{from: "bus:{topic}", to: "out:o", mode: {mode}{key}, format: {{{format}{read_key}}}}}"""
    write_bus(flow, kafka_broker, files, tables, registry=schema_registry)

    def must_be_read(columns: str, rows: list[Any]) -> None:
        flow.apply("--select", "sent")
        flow.apply("--select", "read")
        assert sqlite_rows(flow.folder / "target.db", f"SELECT {columns} FROM o") == rows

    sqlite_script(flow.folder / "shop.db", "INSERT INTO o VALUES (1, 1, 1.25, 0), (2, 2, NULL, 0)")
    must_be_read("id, price", [(1, "1.25"), (2, None)])
    schemas.require_compatibility(schema_registry, f"{topic}-value", "BACKWARD")
    sqlite_script(flow.folder / "shop.db", "ALTER TABLE o ADD COLUMN name text")
    sqlite_script(flow.folder / "shop.db", "INSERT INTO o VALUES (3, 1, 2.5, 1, 'x'), (4, 3, 9999999.99, 0, 'ü')")
    kept = [(1, None), (2, None), (3, "ü")] if mode == "append" else [(2, None), (3, "ü")]
    must_be_read("id, name", sorted([*kept, *([(1, "x")] if mode == "append" else [])], key=repr))


def write_sent(flow: Flow, address: str, url: str, topic: str) -> None:
    sqlite_script(flow.folder / "shop.db", "CREATE TABLE o (id bigint); INSERT INTO o VALUES (1)")
    to = f"{{connection: bus, topic: {topic}, create: {{}}, format: {{type: avro}}}}"
    table = f'  sent: {{from: "db:o", to: {to}, mode: append, cursor: {{column: id}}}}'
    write_bus(flow, address, "  db: {type: sqlite, path: shop.db}", table, registry=url)


@pytest.mark.full
def test_a_schema_that_a_subject_does_not_allow(
    flow: Flow, kafka_broker: str, schema_registry: str, topic: str
) -> None:
    """The plan stops the table, and so does a run whose plan was made before: nothing is sent, or registered."""
    write_sent(flow, kafka_broker, schema_registry, topic)
    assert f"registers version 1 of {topic}-value" in flow.run("plan", "flow.yaml", "--verbose", expect=0).words
    flow.run("plan", "flow.yaml", "--out", "plan.json", expect=0)
    schemas.register(
        schema_registry, f"{topic}-value", avro({"name": "id", "type": "string"}, name=topic.replace("-", "_"))
    )
    schemas.require_compatibility(schema_registry, f"{topic}-value", "BACKWARD")
    refused = flow.apply("--plan", "plan.json", expect=4)
    assert f"subject {topic}-value does not allow the new schema" in refused.words
    refused = flow.run("plan", "flow.yaml", expect=6)
    assert f"subject {topic}-value does not allow the schema of these columns as version 2" in refused.words
    assert kafka.received(kafka_broker, topic) == []
    assert schemas.versions(schema_registry, f"{topic}-value") == [1]


def test_a_plan_whose_registry_does_not_answer(flow: Flow, kafka_broker: str, topic: str) -> None:
    write_sent(flow, kafka_broker, f"http://{HOST}:{free_port()}", topic)
    assert "does not answer" in flow.run("plan", "flow.yaml", expect=4).words
