"""The cluster as its clients see it: settings, topics, offsets, and errors in flowctl's words."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from flowctl.connectors.kafka.problems import cause_of, translated
from flowctl.errors import FlowctlError, TransientError
from flowctl.model.position import OffsetsPosition
from flowctl.text import counted

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient, ClusterMetadata

#: Seconds that one question may take, and after which the first asks what is wrong.
_ANSWER_SECONDS, _FIRST_SECONDS = 10.0, 1.0
#: librdkafka writes its log to standard error otherwise; what matters arrives as an error of a call.
_SILENT = logging.getLogger("flowctl.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

#: The topic of the commits of tables that are written to topics (:mod:`.sink.commit_log`).
COMMITS = "_flowctl_commits"

Ends = Literal["earliest", "latest", "end"]


@dataclass(frozen=True)
class Topic:
    """``id`` differs from that of an earlier topic with the same name. ``partitions`` are their numbers, sorted."""

    name: str
    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Cluster:
    """``brokers`` as in the spec, ``security`` as :func:`.security.security_settings` returns it. Connects when it is
    first asked. ``reported`` is what its clients tell beside their answers."""

    brokers: str
    security: Mapping[str, Any] = field(repr=False)
    reported: deque[KafkaError] = field(default_factory=lambda: deque(maxlen=20), repr=False, compare=False)

    @property
    def settings(self) -> dict[str, Any]:
        """Those that every client has."""
        own = {"bootstrap.servers": self.brokers, "client.id": "flowctl", "logger": _SILENT}
        return {**own, "error_cb": self.reported.append, **self.security}

    @cached_property
    def _opened(self) -> tuple[AdminClient, ClusterMetadata]:
        """A client that is connected, and the first that it has heard."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with self.translated():
            client = AdminClient(self.settings)
            end = time.monotonic() + _ANSWER_SECONDS
            while True:
                try:
                    seen = client.list_topics(timeout=_FIRST_SECONDS)
                    self.reported.clear()  # of no account any more
                    return client, seen
                except KafkaException:
                    client.poll(0)  # calls back with what is wrong
                    self.require_connection()
                    if time.monotonic() > end:
                        raise

    @property
    def admin(self) -> AdminClient:
        return self._opened[0]

    def require_connection(self) -> None:
        """Raises ``FlowctlError`` if a client has reported why it cannot connect."""
        if cause := cause_of(self.reported, self.brokers, self.security):
            raise cause

    def greet(self) -> str:
        seen = self._opened[1]
        return f"Kafka cluster {seen.cluster_id}, {counted(len(seen.brokers), 'broker')}"

    def topic_names(self) -> list[str]:
        """All but the cluster's own, and flowctl's."""
        return sorted(name for name in self._opened[1].topics if name[:2] != "__" and name != COMMITS)

    def id(self) -> str:
        return str(self._opened[1].cluster_id)

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Those that exist."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        found = {}
        with self.translated():
            asked = self.admin.describe_topics(TopicCollection(list(names)), request_timeout=_ANSWER_SECONDS)
            for name, future in asked.items():
                try:
                    seen = future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    continue
                found[name] = Topic(name, str(seen.topic_id), tuple(sorted(one.id for one in seen.partitions)))
        return found

    def offsets(self, topics: Sequence[Topic], at: Ends | dt.datetime) -> dict[str, OffsetsPosition]:
        """The offset of each partition by the topic's name: of the oldest message; of the first that is not committed
        yet (`latest`: the end, where no transaction is open); of the end itself; or of the first message that is not
        older than a time. Without a partition that has no such message."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if not topics:
            return {}
        match at:
            case "earliest":
                spec = OffsetSpec.earliest()
            case "latest" | "end":
                spec = OffsetSpec.latest()
            case _:
                spec = OffsetSpec.for_timestamp(int(at.timestamp() * 1000))
        wanted = {TopicPartition(one.name, number): spec for one in topics for number in one.partitions}
        found: dict[str, dict[int, int]] = {one.name: {} for one in topics}
        with self.translated():
            level = IsolationLevel.READ_UNCOMMITTED if at == "end" else IsolationLevel.READ_COMMITTED
            asked = self.admin.list_offsets(wanted, isolation_level=level, request_timeout=_ANSWER_SECONDS)
            for partition, future in asked.items():
                if (offset := future.result().offset) >= 0:
                    found[partition.topic][partition.partition] = offset
        return {name: OffsetsPosition(tuple(sorted(offsets.items()))) for name, offsets in found.items()}

    def commit_offsets(self, group: str, topic: str, position: OffsetsPosition) -> None:
        """Raises ``FlowctlError`` if the group has members."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        offsets = [TopicPartition(topic, partition, offset) for partition, offset in position.offsets]
        with self.translated():
            asked = self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])
            for future in asked.values():
                for one in future.result().topic_partitions:
                    if one.error is not None:
                        raise self.error_of(one.error)

    def consumer(self, isolation: Literal["read_committed", "read_uncommitted"] = "read_committed") -> Consumer:
        """Reads from given offsets; a member of no group, and commits nothing."""
        from confluent_kafka import Consumer

        own = {
            "group.id": "flowctl",  # required by the client; it joins only what subscribes
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 65536,
            "fetch.queue.backoff.ms": 10,  # a full queue pauses for a second by default: five times slower
            "fetch.wait.max.ms": 100,
        }
        return Consumer({**self.settings, **own})

    def require_passing(self, error: KafkaError) -> None:
        """Raises what a consumer has met, unless its client tries again by itself; or unless it looks for a group's
        coordinator, as no group is used."""
        from confluent_kafka import KafkaError as Code
        from confluent_kafka import KafkaException

        if error.code() == Code.GROUP_AUTHORIZATION_FAILED:
            return
        found = self.error_of(error)
        if error.fatal() or not isinstance(found, TransientError):
            raise found from KafkaException(error)

    @contextmanager
    def translated(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self.error_of(error.args[0]) from error

    def error_of(self, error: KafkaError) -> FlowctlError:
        """A client's error in flowctl's words."""
        return translated(error, self.brokers, self.security)
