"""A table is read by the schemas that it was planned by, whatever is registered meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from flowctl.connectors.kafka import CAPABILITIES
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.payloads import Payloads
from flowctl.connectors.kafka.registry import Registry
from flowctl.connectors.kafka.source import KafkaSource
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.table_info import ObjectName, TableInfo
from tests.connectors.kafka.test_avro import encoded, record
from tests.connectors.sinks import Rows
from tests.services import kafka, schemas

NARROW = record(("id", "long"))
WIDE = record(("id", "long"), ("name", ["null", "string"], None))


class Topic:
    def __init__(self, address: str, url: str, name: str) -> None:
        self.address, self.url, self.name = address, url, name
        kafka.create_topic(address, name)

    def send(self, schema: str, row: dict[str, Any]) -> int:
        id = schemas.register(self.url, f"{self.name}-value", schema)
        kafka.send(self.address, self.name, [schemas.framed(id, encoded(schema, row))])
        return id

    @property
    def source(self) -> KafkaSource:
        return KafkaSource(Cluster(self.address, {}), CAPABILITIES, Payloads(Registry({"url": self.url}, ".")))

    def relation(self, **format: Any) -> Relation:
        return Relation(ObjectName((self.name,)), format={"type": "avro", **format})

    def planned(self, **format: Any) -> TableInfo:
        wanted = self.relation(**format)
        info = self.source.describe([wanted])[wanted]
        assert info is not None
        return info

    def read(self, info: TableInfo, **format: Any) -> list[dict[str, Any]]:
        rows = Rows()
        with self.source.capture(self.relation(**format), info) as capture:
            capture.read(ReadRequest(info.columns[:-4]), rows)
        return rows.rows()


@pytest.fixture
def sent(kafka_broker: str, schema_registry: str, topic: str) -> Topic:
    return Topic(kafka_broker, schema_registry, topic)


def test_messages_with_more_fields_than_the_plan_knew_are_not_read_without_them(sent: Topic) -> None:
    sent.send(NARROW, {"id": 1})
    info = sent.planned()
    sent.send(WIDE, {"id": 2, "name": "x"})
    with pytest.raises(StoppedByPolicy, match="was registered after the plan was made, and adds name"):
        sent.read(info)
    assert sent.read(sent.planned()) == [{"id": 1, "name": None}, {"id": 2, "name": "x"}]


def test_a_later_version_with_fewer_fields_is_read_by_the_plan(sent: Topic) -> None:
    sent.send(WIDE, {"id": 1, "name": "x"})
    info = sent.planned()
    sent.send(NARROW, {"id": 2})
    assert sent.read(info) == [{"id": 1, "name": "x"}, {"id": 2, "name": None}]
    assert sent.read(sent.planned()) == [{"id": 1}, {"id": 2}]


def test_declared_fields_are_read_from_every_version(sent: Topic) -> None:
    sent.send(NARROW, {"id": 1})
    declared = {"schema": {"id": "string"}}
    info = sent.planned(**declared)
    sent.send(WIDE, {"id": 2, "name": "x"})
    assert sent.read(info, **declared) == [{"id": "1"}, {"id": "2"}]


def test_a_schema_of_something_else_in_the_same_topic(sent: Topic) -> None:
    sent.send(WIDE, {"id": 1, "name": "x"})
    other = schemas.register(sent.url, f"{sent.name}-refunds", record(("id", "long"), name="Refund"))
    kafka.send(sent.address, sent.name, [schemas.framed(other, encoded(NARROW, {"id": 2}))])
    with pytest.raises(TableError, match=rf"schema {other} is of shop\.Refund, not of shop\.Order"):
        sent.read(sent.planned())


def test_a_message_by_a_name_that_no_table_can_have(sent: Topic) -> None:
    schemas.register(sent.url, f"{sent.name}-value", record(("_offset", "long")))
    with pytest.raises(TableError, match="has _offset: that is where the message is in its topic"):
        sent.planned()


@pytest.mark.parametrize(
    ("format", "said"),
    [
        ({"subject": "nobody"}, "has no subject nobody"),
        ({"type": "protobuf"}, "is Avro, and the table says `type: protobuf`"),
        ({"envelope": "debezium"}, "is no envelope of Debezium"),
        ({"key": {}}, "-key"),
    ],
)
def test_what_the_registry_does_not_have(sent: Topic, format: dict[str, Any], said: str) -> None:
    sent.send(NARROW, {"id": 1})
    with pytest.raises(TableError) as refused:
        sent.planned(**format)
    assert said in refused.value.sentences


PROTO = """syntax = "proto3";
package shop;
message Refund { int64 id = 1; }
message Order { int64 id = 1; string name = 2; }
"""


def test_one_message_of_several_in_a_schema(sent: Topic) -> None:
    """The indexes before a value tell which it is; the others are of something else."""
    id = schemas.register(sent.url, f"{sent.name}-value", PROTO, "PROTOBUF")
    order = b"\x02\x02" + b"\x08\x01\x12\x01x"
    kafka.send(sent.address, sent.name, [schemas.framed(id, order)])
    wanted = {"type": "protobuf", "message": "shop.Order"}
    assert sent.read(sent.planned(**wanted), **wanted) == [{"id": 1, "name": "x"}]
    kafka.send(sent.address, sent.name, [schemas.framed(id, b"\x00\x08\x02")])
    with pytest.raises(TableError, match=rf"schema {id} is of shop\.Refund, not of shop\.Order"):
        sent.read(sent.planned(**wanted), **wanted)


def test_a_schema_of_another_kind_in_the_same_topic(sent: Topic) -> None:
    sent.send(WIDE, {"id": 1, "name": "x"})
    other = schemas.register(sent.url, f"{sent.name}-other", PROTO, "PROTOBUF")
    kafka.send(sent.address, sent.name, [schemas.framed(other, b"\x00\x08\x02")])
    with pytest.raises(TableError, match=f"schema {other} is of Protobuf, not of Avro"):
        sent.read(sent.planned())
