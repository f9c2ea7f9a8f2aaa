"""What travels to the tasks of an engine that send messages, and what they report."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from flowctl.connectors import json_text
from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.sink import avro_values, json_schema, protobuf_schema, protobuf_values
from flowctl.connectors.kafka.sink.messages import Form, Serializer
from flowctl.connectors.kafka.sink.schema import RowType
from flowctl.connectors.kafka.sink.tasks import Sent, Task, send_at_least_once
from flowctl.connectors.target import OP_COLUMN
from flowctl.engine.base import Engine
from flowctl.engine.batch import InMemory, OnEngine
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Decimal
from tests.services import kafka

COLUMNS = (
    Column("id", types.INT64),
    Column("a.b", types.STRING),
    Column("amount", Decimal(9, 2)),
    Column("at", types.TIMESTAMP),
    Column("tags", Array(types.STRING)),
)
PLAIN = {"security.protocol": "PLAINTEXT"}


def rows(count: int) -> pa.RecordBatch:
    at = pa.scalar(1_700_000_000_000_001, pa.timestamp("us", "UTC")).as_py()
    made = [{"id": n, "a.b": f"ü{n}", "amount": None, "at": at, "tags": ["x", "y"]} for n in range(count)]
    return pa.RecordBatch.from_pylist(made, arrow_schema(COLUMNS))


@pytest.mark.parametrize("format", ["json", "json schema", "avro", "protobuf"])
def test_what_serializes_survives_the_way_to_a_task(format: str) -> None:
    columns = tuple(Column(one.name.replace(".", "_"), one.type) for one in COLUMNS)
    row, header = RowType("orders", columns), b"\x00\x00\x00\x00\x07"
    made: dict[str, Serializer] = {
        "json": json_text.objects,
        "json schema": json_schema.RegisteredJsonSerializer(json_schema.schema_text(row, ()), header),
        "avro": avro_values.AvroSerializer(avro_values.schema_text(row), header),
        "protobuf": protobuf_values.ProtobufSerializer(protobuf_schema.schema_text(row, ()), header),
    }
    form = Form(columns, columns[:1], values=made[format], same=[("flowctl.seq", "1")])
    batch = rows(3).rename_columns([one.name for one in columns])
    there = cloudpickle.loads(cloudpickle.dumps(form))
    assert list(there.messages(batch)) == list(form.messages(batch))


def test_a_task_shows_no_password() -> None:
    cluster = Cluster("b:9092", {**PLAIN, "sasl.password": "hunter2"})
    assert "hunter2" not in repr(Task(cluster, "t", Form(COLUMNS), COLUMNS, 1000))


def task(address: str, topic: str, **of: Any) -> Task:
    form = Form(COLUMNS, COLUMNS[:1], COLUMNS[1:2], same=[("flowctl.seq", "7")])
    columns = (Column(OP_COLUMN, types.STRING), *COLUMNS)
    return Task(Cluster(address, PLAIN), topic, form, columns, **{"most_bytes": 1_000_000, **of})


def changed(count: int, gone: int) -> pa.Table:
    operations = pa.array(["D" if n < gone else "U" for n in range(count)])
    return pa.Table.from_batches([rows(count)]).append_column(OP_COLUMN, operations)


@pytest.mark.full
def test_messages_by_an_engine_are_those_by_this_process(kafka_broker: str, topic: str, engine: Engine) -> None:
    held = changed(300, 10)
    frame = engine.session_for("python").createDataFrame(held).repartition(3)
    found = []
    for name, batch in (("process", InMemory(held)), ("engine", OnEngine(frame))):
        kafka.create_topic(kafka_broker, f"{topic}-{name}", 2)
        assert send_at_least_once(batch, task(kafka_broker, f"{topic}-{name}")) == Sent(300, 10)
        received = kafka.received(kafka_broker, f"{topic}-{name}")
        found.append(sorted((one.key, one.value, tuple(one.headers), one.partition) for one in received))
    assert found[0] == found[1]
    first = next(one for one in found[0] if one[0] == b'{"id":10}')
    assert first[2] == (("a.b", "ü10".encode()), ("flowctl.seq", b"7"))


@pytest.mark.full
def test_a_task_reports_what_is_wrong(kafka_broker: str, topic: str, engine: Engine) -> None:
    kafka.create_topic(kafka_broker, topic)
    frame = engine.session_for("python").createDataFrame(changed(20, 0)).repartition(2)
    with pytest.raises(TableError, match="is too large: the topic takes 10 bytes at most") as error:
        send_at_least_once(OnEngine(frame), task(kafka_broker, topic, most_bytes=10))
    assert error.value.hint.startswith("Raise the topic's `max.message.bytes`")


def test_no_rows_need_no_producer(topic: str) -> None:
    assert send_at_least_once(InMemory(changed(0, 0)), task("127.0.0.1:1", topic)) == Sent(0, 0)


@pytest.mark.full
def test_a_broker_that_is_gone_is_transient(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowctl.connectors.kafka.sink.producing._PATIENCE", 2)
    with pytest.raises(TransientError, match=r"no broker of 127\.0\.0\.1:1 answers"):
        send_at_least_once(InMemory(changed(3, 0)), task("127.0.0.1:1", topic))
