"""Produces messages of Avro at a rate, a hundredth of them poison, with a schema that changes twice: what was sent can
be told from the number of messages in each partition.

    python -m tests.e2e.kafka.load BROKERS REGISTRY TOPIC RATE SECONDS

The rate is that of the busy times: a third of the time, so that two cores that have also the rest of the world on them
catch up in between. It ends after so many seconds, or at SIGTERM, when all is delivered; and outlives brokers and
registries that restart.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import Any

import httpx2
from confluent_kafka import KafkaException, Producer
from confluent_kafka.schema_registry import SchemaRegistryError

from tests.services import schemas

_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "price", "type": _DECIMAL, "default": "\u0001"},
]
#: Message k of a partition is poison if k mod 100 is this.
POISON = 7
ERRORS = ("no_schema_id", "corrupt", "unknown_schema")
#: The number of the first message of each version, in every partition.
VERSIONS = (0, 300_000, 900_000)


def error_of(at: int) -> str:
    return ERRORS[at // 100 % len(ERRORS)]


def value(at: int, ids: list[int]) -> bytes:
    """Message ``at`` of a partition; ``ids`` are those of the versions."""
    version = sum(at >= first for first in VERSIONS)
    header = schemas.framed(ids[version - 1], b"")
    if at % 100 == POISON:
        poison = {"no_schema_id": b"plain", "corrupt": header + b"\x80", "unknown_schema": schemas.framed(2**30, b"")}
        return poison[error_of(at)]
    made = header + schemas.avro_long(at)
    if version > 1:
        name = f"n{at % 1000}".encode()
        made += b"\x02" + schemas.avro_long(len(name)) + name
    if version > 2:
        price = (at % 30_000).to_bytes(2, "big", signed=True)
        made += schemas.avro_long(len(price)) + price
    return made


def _busy(seconds: float) -> float:
    """How many of so many seconds were busy."""
    cycles, rest = divmod(seconds, 30)
    return cycles * 10 + min(rest, 10)


def _register(url: str, topic: str, version: int) -> int:
    text = json.dumps({"type": "record", "name": "Order", "fields": _FIELDS[:version]})
    while True:
        try:
            return schemas.register(url, f"{topic}-value", text)
        except (SchemaRegistryError, httpx2.HTTPError) as error:
            print("waiting for the registry:", error, flush=True)
            time.sleep(1)


class Load:
    def __init__(self, brokers: str, url: str, topic: str) -> None:
        settings = {"linger.ms": 20, "enable.idempotence": True, "topic.metadata.refresh.interval.ms": 1000}
        waiting = {"delivery.timeout.ms": 600_000, "queue.buffering.max.messages": 1_000_000}
        self.made = Producer({"bootstrap.servers": brokers, **settings, **waiting})
        self.url, self.topic = url, topic
        self.ids = [_register(url, topic, 1)]
        self.sent: list[int] = []
        self.stopping = threading.Event()

    def partitions(self) -> int:
        try:
            return len(self.made.list_topics(self.topic, timeout=5).topics[self.topic].partitions)
        except KafkaException:
            return len(self.sent)

    def run(self, rate: int, seconds: float) -> None:
        begun, total = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < seconds and not self.stopping.is_set():
            if int(passed) % 5 == 0 or not self.sent:
                self.sent += [0] * (self.partitions() - len(self.sent))
            due = int(_busy(passed) * rate) - total
            share = max(0, due // max(1, len(self.sent)))
            for partition in range(len(self.sent)):
                self._send(partition, share)
                total += share
            self.made.poll(0.02)
        while left := self.made.flush(10):
            print("not delivered yet:", left, flush=True)
        print(json.dumps(self.sent), flush=True)

    def _send(self, partition: int, count: int) -> None:
        for at in range(self.sent[partition], self.sent[partition] + count):
            if len(self.ids) < len(VERSIONS) and at >= VERSIONS[len(self.ids)]:
                self.ids.append(_register(self.url, self.topic, len(self.ids) + 1))
            while True:
                try:
                    self.made.produce(self.topic, value(at, self.ids), None, partition)
                    break
                except BufferError:
                    self.made.poll(0.1)
        self.sent[partition] += count


def main(brokers: str, url: str, topic: str, rate: str, seconds: str) -> Any:
    load = Load(brokers, url, topic)
    signal.signal(signal.SIGTERM, lambda *_: load.stopping.set())
    load.run(int(rate), float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
