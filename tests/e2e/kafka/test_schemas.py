"""Topics whose messages have schemas in a registry, which change between runs and within them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.e2e.flows import Flow
from tests.e2e.kafka.test_dead_letters import letters_of
from tests.e2e.targets import TargetPlace, place
from tests.services import kafka, schemas

ID = {"name": "id", "type": "long"}
NAME = {"name": "name", "type": ["null", "string"], "default": None}
PRICE = {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}


def avro(*fields: Mapping[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


def encoded(schema: str, row: Mapping[str, Any]) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(schema)), row)
    return made.getvalue()


def write_flow(flow: Flow, address: str, url: str, target: TargetPlace, table: str) -> None:
    flow.write(
        f"""version: 1
flow: bus
state: state
spark: {{url: sail}}
connections:
  bus: {{type: kafka, brokers: "{address}", registry: {{url: "{url}"}}}}
  out: {target.connection}
tables:
  orders: {{{table}, to: "out:{target.object}"}}
"""
    )


@pytest.fixture
def target(tmp_path: Path) -> TargetPlace:
    return place("sqlite", tmp_path, "")


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
    print(flow.run("plan", "flow.yaml").out)
    flow.apply()
    assert target.rows(("id", "name")) == [(1, None), (2, None), (3, "ü"), (4, None)]

    three = orders.register(third)
    orders.send(three, third, {"id": 5, "name": None, "price": __import__("decimal").Decimal("1.25")})
    orders.send(two, second, {"id": 6, "name": "x"})
    flow.apply()
    rows = [(1, None), (2, None), (3, None), (4, None), (5, "1.25"), (6, "0.01")]
    assert [(id, price and str(price)) for id, price in target.rows(("id", "price"))] == rows
    assert letters_of(target).rows(("_offset", "_error")) == [
        (4, "unknown_schema"), (5, "no_schema_id"), (6, "corrupt"),
    ]  # fmt: skip
    assert flow.actions() == {"orders": "none"}
