"""Kafka: one broker in KRaft mode, from the jars of Maven Central."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowctl.engine import java
from tests.services import ivy
from tests.services.cache import cached
from tests.services.processes import HOST, free_port, listens, running

_IVY_FILE = Path(__file__).parent / "kafka.xml"
_JVM = ("-Xms128m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
}


@dataclass(frozen=True)
class Secured:
    """Further listeners of a broker, by name: their ports and protocols. ``users`` are arguments of the tool that
    formats its storage, ``options`` those of its JVM."""

    ports: Mapping[str, int]
    protocols: Mapping[str, str]
    settings: Mapping[str, str]
    users: Sequence[str] = ()
    options: Sequence[str] = ()


@dataclass(frozen=True)
class Broker:
    """``folder`` holds its data; it may be stopped and started again."""

    folder: Path
    port: int
    controller: int
    secured: Secured | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @contextmanager
    def started(self) -> Iterator[str]:
        """Its :attr:`address`, while it runs."""
        command = [str(java.find().command), *_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += self.secured.options if self.secured else ()
        command += ["-cp", f"{_jars()}/*", "kafka.Kafka", str(self._settings())]
        with running(command, log=self.folder / "kafka.log", answers=lambda: listens(self.port)):
            yield self.address

    def format(self) -> None:
        tool = [str(java.find().command), *_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        tool += ["-cp", f"{_jars()}/*", "kafka.tools.StorageTool"]
        id = subprocess.run([*tool, "random-uuid"], check=True, capture_output=True, text=True).stdout.strip()
        format = [*tool, "format", "-t", id, "-c", str(self._settings()), *(self.secured.users if self.secured else ())]
        subprocess.run(format, check=True, capture_output=True)

    def _settings(self) -> Path:
        file = self.folder / "server.properties"
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        clients = [f"PLAINTEXT://{self.address}"]
        if self.secured:
            clients += [f"{name}://{HOST}:{port}" for name, port in self.secured.ports.items()]
            protocols |= self.secured.protocols
        own = {
            "controller.quorum.voters": f"1@{HOST}:{self.controller}",
            "listeners": ",".join([*clients, f"CONTROLLER://{HOST}:{self.controller}"]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "log.dirs": str(self.folder / "logs"),
            **(self.secured.settings if self.secured else {}),
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in {**_SETTINGS, **own}.items()))
        return file


@contextmanager
def broker(secured: Secured | None = None) -> Iterator[Broker]:
    """A new one, not started."""
    with tempfile.TemporaryDirectory(prefix="flowctl-kafka-", ignore_cleanup_errors=True) as folder:
        made = Broker(Path(folder), free_port(), free_port(), secured)
        made.format()
        yield made


def create_topic(address: str, name: str, partitions: int = 1) -> None:
    """The topic can be seen by every client once this returns: a broker answers before its own metadata has it."""
    from confluent_kafka.admin import NewTopic

    _admin(address, "create_topics", [NewTopic(name, partitions, 1)])
    end = time.monotonic() + 30
    while name not in topics(address):
        if time.monotonic() > end:
            raise AssertionError(f"topic {name} was created and is not there yet")
        time.sleep(0.05)


def topics(address: str) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return {*AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics}


def delete_topic(address: str, name: str) -> None:
    _admin(address, "delete_topics", [name])


def add_partitions(address: str, name: str, total: int) -> None:
    from confluent_kafka.admin import NewPartitions

    _admin(address, "create_partitions", [NewPartitions(name, total)])


def expire(address: str, name: str, partition: int, below: int) -> None:
    """Deletes the messages below an offset, as a topic's retention does."""
    from confluent_kafka import TopicPartition

    _admin(address, "delete_records", [TopicPartition(name, partition, below)])


def allow(address: str, user: str, kind: str, name: str, *operations: str) -> None:
    """``kind`` is a resource's, such as ``TOPIC``; ``name`` that of one, or its beginning and ``*``."""
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
    bindings = [
        AclBinding(
            ResourceType[kind],
            name.removesuffix("*"),
            pattern,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    _admin(address, "create_acls", bindings)


@contextmanager
def producer(address: str, transactional_id: str = "") -> Iterator[Any]:
    from confluent_kafka import Producer

    # Idempotent: otherwise a message that is sent again, as to a topic just created, comes after later ones.
    settings = {"bootstrap.servers": address, "linger.ms": 5, "enable.idempotence": True}
    made = Producer({**settings, **({"transactional.id": transactional_id} if transactional_id else {})})
    yield made
    if made.flush(30):
        raise AssertionError("messages were not delivered")


def send(
    address: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
) -> None:
    with producer(address) as made:
        for value in values:
            made.produce(topic, value, key, partition, headers=dict(headers or {}))
            made.poll(0)


@dataclass(frozen=True)
class Received:
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    partition: int
    offset: int


def received(address: str, topic: str) -> list[Received]:
    """All that is committed now, as a consumer in ``read_committed`` gets it, by partition and offset."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "tests", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest", **settings})
    open = set(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in open])
    found = []
    while open:
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                headers = message.headers() or ()
                place = (message.partition(), message.offset())
                found.append(Received(message.key(), message.value(), headers, *place))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                open.discard(message.partition())
            else:
                raise AssertionError(message.error())
    consumer.close()
    return sorted(found, key=lambda one: (one.partition, one.offset))


def _admin(address: str, what: str, *arguments: Any) -> None:
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address})
    for future in getattr(client, what)(*arguments).values():
        future.result(30)


def _jars() -> Path:
    return cached("kafka-4.1.1", lambda folder: ivy.retrieve(_IVY_FILE, folder))


def count(address: str, topic: str) -> int:
    """The sum of the ends of its partitions; 0 if there is no such topic yet."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "counting"})
    try:
        with suppress(KafkaException):
            found = consumer.list_topics(topic, timeout=5).topics[topic].partitions
            return sum(consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=5)[1] for one in found)
        return 0
    finally:
        consumer.close()


def wait_for_messages(address: str, topic: str, wanted: int, seconds: float = 120) -> None:
    """Until the topic exists and has at least so many."""
    until = time.monotonic() + seconds
    while count(address, topic) < wanted:
        if time.monotonic() > until:
            raise AssertionError(f"{topic} has fewer than {wanted} messages")
        time.sleep(0.5)


def group_offsets(address: str, group: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address})  # kept until it has answered
    [asked] = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(one.topic, one.partition): one.offset for one in asked.result().topic_partitions}


@contextmanager
def member(address: str, group: str, topic: str) -> Iterator[None]:
    """A consumer that has joined the group."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.2)
    try:
        yield
    finally:
        consumer.close()
