"""The cluster as its clients see it: settings, topics, offsets, and errors in flowctl's words."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.model.position import OffsetsPosition
from flowctl.text import counted

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient, ClusterMetadata

#: Seconds that one question may take.
_ANSWER_SECONDS = 10.0
#: librdkafka writes its log to standard error otherwise; what matters arrives as an error of a call.
_SILENT = logging.getLogger("flowctl.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

Ends = Literal["earliest", "latest", "end"]


@dataclass(frozen=True)
class Topic:
    """``id`` differs from that of an earlier topic with the same name. ``partitions`` are their numbers, sorted."""

    name: str
    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Cluster:
    """``brokers`` as in the spec. Connects when it is first asked."""

    brokers: str

    @property
    def settings(self) -> dict[str, Any]:
        """Those that every client has."""
        return {"bootstrap.servers": self.brokers, "client.id": "flowctl", "logger": _SILENT}

    @cached_property
    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.settings)

    def greet(self) -> str:
        seen = self._metadata()
        return f"Kafka cluster {seen.cluster_id}, {counted(len(seen.brokers), 'broker')}"

    def topic_names(self) -> list[str]:
        """All but the cluster's own."""
        return sorted(name for name in self._metadata().topics if name[:2] != "__")

    def id(self) -> str:
        return str(self._metadata().cluster_id)

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

    def consumer(self) -> Consumer:
        """Reads what is committed from given offsets; a member of no group, and commits nothing."""
        from confluent_kafka import Consumer

        own = {
            "group.id": "flowctl",  # required by the client; it joins only what subscribes
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 65536,
            "fetch.queue.backoff.ms": 10,  # a full queue pauses for a second by default: five times slower
            "fetch.wait.max.ms": 100,
        }
        return Consumer({**self.settings, **own})

    def _metadata(self) -> ClusterMetadata:
        with self.translated():
            return self.admin.list_topics(timeout=_ANSWER_SECONDS)

    @contextmanager
    def translated(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self.error_of(error.args[0]) from error

    def error_of(self, error: KafkaError) -> FlowctlError:
        """A client's error in flowctl's words. Whatever another attempt may cure is transient."""
        from confluent_kafka import KafkaError as Code

        away = {Code._ALL_BROKERS_DOWN, Code._TRANSPORT, Code._TIMED_OUT, Code._RESOLVE, Code._TIMED_OUT_QUEUE}
        if error.code() in away:
            return TransientError(
                f"no broker of {self.brokers} answers: {error.str()}",
                hint="Check `brokers`, and whether this machine reaches each address that the brokers advertise",
            )
        if error.retriable():
            return TransientError(f"Kafka says: {error.str()}", hint="Try again when the cluster has settled")
        return TableError(f"Kafka says: {error.str()}", hint=_HINTS.get(error.name(), "Look at the brokers' logs"))


_HINTS: Mapping[str, str] = {
    "TOPIC_AUTHORIZATION_FAILED": "Let this user DESCRIBE and READ the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "Let this user DESCRIBE the cluster",
    "UNKNOWN_TOPIC_OR_PART": "Check whether the topic was deleted meanwhile, and plan again",
}
