"""Which messages an interval has: only committed ones, each once, whatever lies between the offsets."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from flowctl.connectors.kafka import CAPABILITIES
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.source import KafkaSource
from flowctl.connectors.source import HighWatermark, ReadRequest, Relation, WatermarkRequest
from flowctl.errors import StoppedByPolicy, TableError, TransientError
from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition
from flowctl.model.table_info import ObjectName
from tests.connectors.sinks import Rows
from tests.services import kafka
from tests.services.processes import free_port

SCHEMA = {"id": "bigint", "at": "timestamp"}
Read = list[tuple[Any, ...]]


def source(address: str) -> KafkaSource:
    return KafkaSource(Cluster(address, {}), CAPABILITIES)


def relation(topic: str, format: str = "raw", schema: dict[str, str] | None = None) -> Relation:
    return Relation(ObjectName((topic,)), format={"type": format, **({"schema": schema} if schema else {})})


def watermark(address: str, topic: str, start: str = "earliest") -> HighWatermark:
    asked, wanted = source(address), relation(topic)
    info = asked.describe([wanted])[wanted]
    assert info is not None
    return asked.high_watermarks({"it": WatermarkRequest(wanted, info, start=start)})["it"]


def bounds(address: str, topic: str, start: str = "earliest") -> tuple[OffsetsPosition, OffsetsPosition]:
    """Where a first read begins and ends."""
    seen = watermark(address, topic, start)
    assert isinstance(seen.start, OffsetsPosition)
    assert isinstance(seen.position, OffsetsPosition)
    return seen.start, seen.position


def read(
    address: str,
    topic: str,
    lower: OffsetsPosition,
    upper: OffsetsPosition,
    *names: str,
    format: str = "raw",
    schema: dict[str, str] | None = None,
) -> Read:
    wanted = relation(topic, format, schema)
    info = source(address).describe([wanted])[wanted]
    assert info is not None
    rows = Rows()
    request = ReadRequest(info.columns, Interval(lower, upper))
    with source(address).capture(wanted, info) as capture:
        count = capture.read(request, rows)
        assert capture.is_empty(request) == (count == 0)
    found = sorted(tuple(row[name] for name in names) for row in rows.rows())
    assert len(found) == count
    return found


def test_each_message_of_the_interval_is_read_once(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic, 3)
    for partition in range(3):
        kafka.send(kafka_broker, topic, [b"%d" % at for at in range(25_000)], partition=partition)
    lower, upper = OffsetsPosition(((0, 10), (1, 0), (2, 25_000))), OffsetsPosition(((0, 20), (1, 24_999), (2, 25_000)))
    assert read(kafka_broker, topic, lower, upper, "_partition", "_offset", "value") == [
        *((0, at, b"%d" % at) for at in range(10, 20)),
        *((1, at, b"%d" % at) for at in range(24_999)),
    ]


def test_what_a_message_has(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=5)
    kafka.send(kafka_broker, topic, ["grün".encode(), None, b""], key=b"k")
    names = ("_offset", "_key", "value", "_timestamp")
    rows = read(kafka_broker, topic, *bounds(kafka_broker, topic), *names, format="text")
    assert [row[:3] for row in rows] == [(0, "k", "grün"), (1, "k", None), (2, "k", "")]
    assert all(before < row[3] < before + dt.timedelta(seconds=60) for row in rows)


def test_only_committed_messages_are_read(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    with kafka.producer(kafka_broker, f"{topic}-tx") as producer:
        producer.init_transactions(30)
        for end, value in ((producer.commit_transaction, b"kept"), (producer.abort_transaction, b"aborted")):
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.flush(30)
            end(30)
        done = bounds(kafka_broker, topic)
        producer.begin_transaction()
        producer.produce(topic, b"open")
        producer.flush(30)
        kafka.send(kafka_broker, topic, [b"behind it"])
        assert bounds(kafka_broker, topic) == done
        assert watermark(kafka_broker, topic).uncommitted == 2
        assert read(kafka_broker, topic, *done, "_offset", "value") == [(0, b"kept")]
        producer.commit_transaction(30)
    since = bounds(kafka_broker, topic)[1]
    assert read(kafka_broker, topic, done[1], since, "value") == [(b"behind it",), (b"open",)]


def test_an_interval_of_aborted_messages_is_empty(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    with kafka.producer(kafka_broker, f"{topic}-tx") as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(100):
            producer.produce(topic, b"aborted")
        producer.flush(30)
        producer.abort_transaction(30)
    lower, upper = bounds(kafka_broker, topic)
    assert upper.messages_since(lower) == 101
    assert read(kafka_broker, topic, lower, upper, "value") == []


@pytest.mark.parametrize("start", ["latest", "2031-01-01T00:00:00Z"])
def test_a_start_after_all_messages(kafka_broker: str, topic: str, start: str) -> None:
    kafka.create_topic(kafka_broker, topic, 2)
    kafka.send(kafka_broker, topic, [b"old"])
    lower, upper = bounds(kafka_broker, topic, start)
    assert lower == upper == OffsetsPosition(((0, 1), (1, 0)))


def test_a_start_at_a_time(kafka_broker: str, topic: str) -> None:
    """Of the last hours: brokers delete what is older than a week."""
    kafka.create_topic(kafka_broker, topic)
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    times = [now - dt.timedelta(hours=hours) for hours in (3, 2, 1)]
    with kafka.producer(kafka_broker) as producer:
        for number, at in enumerate(times):
            producer.produce(topic, b"%d" % number, timestamp=int(at.timestamp() * 1000))
    lower, upper = bounds(kafka_broker, topic, times[1].isoformat())
    assert read(kafka_broker, topic, lower, upper, "value") == [(b"1",), (b"2",)]


def test_messages_that_expire_after_the_plan_stop_the_read(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    kafka.send(kafka_broker, topic, [b"x"] * 10)
    planned = bounds(kafka_broker, topic)
    kafka.expire(kafka_broker, topic, 0, 5)
    with pytest.raises(TableError, match=r"messages of partition 0 .* expired while they were read"):
        read(kafka_broker, topic, *planned)


def test_a_topic_created_anew_after_the_plan_stops_the_read(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    wanted = relation(topic)
    info = source(kafka_broker).describe([wanted])[wanted]
    assert info is not None
    kafka.delete_topic(kafka_broker, topic)
    kafka.create_topic(kafka_broker, topic)
    with pytest.raises(StoppedByPolicy, match="was deleted"), source(kafka_broker).capture(wanted, info):
        pass


def test_what_is_no_text_is_named_by_its_place(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    kafka.send(kafka_broker, topic, [b"fine", b"\xffsecret"])
    with pytest.raises(TableError, match=f"message 1 of partition 0 of topic {topic}: the value is not UTF-8") as found:
        read(kafka_broker, topic, *bounds(kafka_broker, topic), format="text")
    assert "secret" not in found.value.sentences


def test_json_messages_are_columns(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    kafka.send(kafka_broker, topic, [b'{"id": 1, "at": "2026-11-25T10:00:00Z", "more": {}}', None, b'{"id": 3}'])
    names = ("_offset", "_key", "id", "at")
    at = dt.datetime(2026, 11, 25, 10, tzinfo=dt.UTC)
    wanted = [(0, None, 1, at), (1, None, None, None), (2, None, 3, None)]
    lower, upper = bounds(kafka_broker, topic)
    assert read(kafka_broker, topic, lower, upper, *names, format="json", schema=SCHEMA) == wanted


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b'{"id": "secret"}', "message 1 of partition 0 of topic .*: id is not exactly bigint"),
        (b"secret", "message 1 of partition 0 of topic .*: not one JSON object"),
    ],
)
def test_a_message_that_is_not_as_declared_is_named_by_its_place(
    kafka_broker: str, topic: str, value: bytes, words: str
) -> None:
    kafka.create_topic(kafka_broker, topic)
    kafka.send(kafka_broker, topic, [b"{}", value])
    with pytest.raises(TableError, match=words) as found:
        read(kafka_broker, topic, *bounds(kafka_broker, topic), format="json", schema=SCHEMA)
    assert "secret" not in found.value.sentences


def test_a_declared_field_with_the_name_of_flowctls_own(kafka_broker: str, topic: str) -> None:
    kafka.create_topic(kafka_broker, topic)
    with pytest.raises(TableError, match=r"format\.schema declares _offset"):
        source(kafka_broker).describe([relation(topic, "json", {"_offset": "bigint"})])


@pytest.mark.full
def test_a_cluster_that_does_not_answer() -> None:
    with pytest.raises(TransientError, match=r"no broker of 127\.0\.0\.1"):
        source(f"127.0.0.1:{free_port()}").discover(("*",))
