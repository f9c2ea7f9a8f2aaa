"""Messages on their way to the brokers, by one producer: in a transaction (:mod:`.transaction`), or without one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.sink.messages import Messages
from flowctl.connectors.kafka.sink.topics import RECORD_BYTES
from flowctl.connectors.sql.waiting import is_interrupted
from flowctl.errors import FlowctlError, Interrupted, TableError, TransientError, chain

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

#: Bytes of messages sent at once.
_BATCH_BYTES = 1_000_000
#: Seconds that a message outside of a transaction is tried for.
_PATIENCE = 120


def open_producer(cluster: Cluster, most_bytes: int, settings: Mapping[str, Any]) -> Producer:
    """``most_bytes`` is how large a message of the rows' topic may be; ``settings`` are further ones."""
    from confluent_kafka import Producer

    common = {
        "compression.type": "lz4",
        "partitioner": "murmur2_random",  # as Java's clients: a key is in the same partition whoever writes it
        "linger.ms": 20,
        "log_level": 3,  # when it ends, the client writes the rest to standard error
        "message.max.bytes": max(most_bytes, RECORD_BYTES),
        "batch.size": min(_BATCH_BYTES, most_bytes),
        "queue.buffering.max.kbytes": 65_536 + 2 * most_bytes // 1024,
    }
    with cluster.translated():
        return Producer({**cluster.settings, **common, **settings})


@dataclass
class Sender:
    """Sends messages that no transaction holds together: consumers get each as soon as it is sent. Within a partition,
    they stay in order, and none is there twice, as long as this sender lives. ``most_bytes`` is how large a message of
    its topic may be. ``failed`` is why messages were not delivered."""

    cluster: Cluster
    producer: Producer
    most_bytes: int
    failed: list[KafkaError] = field(default_factory=list)

    def send(self, topic: str, messages: Messages, most_bytes: int) -> None:
        """Waits where the client's queue is full. Refuses a message of more than ``most_bytes``, as the topic would."""
        produce, headers = self.producer.produce, messages.headers
        try:
            for at, (key, value) in enumerate(zip(messages.keys, messages.values, strict=True)):
                size = len(value or b"") + len(key or b"")
                if size > most_bytes:
                    raise too_large(f"a message of {size:,} bytes", most_bytes)
                more: dict[str, Any] = {} if headers is None else {"headers": list(headers[at])}
                if messages.partitions is not None:
                    more["partition"] = messages.partitions[at]
                more |= self._reporting()
                while True:
                    try:
                        produce(topic, value, key, **more)
                        break
                    except BufferError:
                        self.producer.poll(0.05)
                        self._check()
            self.producer.poll(0)
        except FlowctlError:
            raise
        except Exception as error:
            raise self._error_of(problem_of(error)) from error
        self._check()

    def flush(self) -> None:
        """Returns when the brokers have all messages."""
        left = 1
        while left:
            try:
                left = self.producer.flush(1.0)
            except Exception as error:
                raise self._error_of(problem_of(error)) from error
            self._check()
        self._require_delivery()

    def purge(self) -> None:
        """Gives up what is not sent yet: a producer that is collected waits for it."""
        self.producer.purge()

    def _reporting(self) -> Mapping[str, Any]:
        """How the next message's delivery is reported."""
        return {}

    def _require_delivery(self) -> None:
        """Raises ``FlowctlError`` if a message was not delivered."""
        if self.failed:
            raise self._error_of(self.failed[0])

    def _check(self) -> None:
        if is_interrupted():
            raise Interrupted("the run was asked to stop while messages were sent", hint="Run again to finish it")
        self.cluster.require_connection()
        if self.failed:
            raise self._error_of(self.failed[0])

    def _asked(self) -> list[Callable[[], object]]:
        """Calls that let the client say what it has met."""
        return [lambda: self.producer.poll(0.5)]

    def _hear(self) -> None:
        """Has the client say what it has met: to a callback, or as an exception."""
        for ask in self._asked():
            try:
                ask()
            except Exception as error:  # noqa: BLE001 - what it says is the answer
                self.cluster.reported.append(problem_of(error))

    def _error_of(self, problem: KafkaError) -> FlowctlError:
        """What a call has met, or the delivery of a message, in flowctl's words. Where a client that has failed refuses
        further calls, what it has reported first tells more."""
        from confluent_kafka import KafkaError as Code

        follow_up = {Code._FATAL, Code._PURGE_QUEUE, Code._PURGE_INFLIGHT, Code._STATE}
        if problem.code() in follow_up:
            self._hear()
        told = [one for one in (problem, *self.cluster.reported) if one.code() not in follow_up]
        if not told:  # another client may succeed: it first finds out what is committed
            return TransientError(f"Kafka's client has failed: {problem.str()}", hint="Run again")
        cause = told[0]
        if cause.code() == Code.MSG_SIZE_TOO_LARGE:
            return too_large("a message", self.most_bytes)
        if hint := _HINTS.get(cause.name()):
            return TableError(f"Kafka says: {cause.str()}", hint=hint)
        return self._worded(cause)

    def _worded(self, cause: KafkaError) -> FlowctlError:
        return self.cluster.error_of(cause)


@contextmanager
def open_sender(cluster: Cluster, most_bytes: int) -> Iterator[Sender]:
    """For one topic. What is not sent at the end is given up."""
    own = replace(cluster, reported=deque(maxlen=20))
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    settings = {
        "enable.idempotence": True,
        "message.timeout.ms": _PATIENCE * 1000,
        "queue.buffering.max.kbytes": 16_384 + 2 * most_bytes // 1024,  # a full one takes a while if they are slow
        "delivery.report.only.error": True,
        "on_delivery": on_delivery,
    }
    sender = Sender(own, open_producer(own, most_bytes, settings), most_bytes, failed)
    try:
        yield sender
    finally:
        sender.purge()


def too_large(what: str, most_bytes: int) -> TableError:
    return TableError(
        f"{what} is too large: the topic takes {most_bytes:,} bytes at most (max.message.bytes)",
        hint="Raise the topic's `max.message.bytes`, or leave long columns out with `columns: {exclude: […]}`",
    )


def problem_of(error: Exception) -> KafkaError:
    """What Kafka's client says. The exception of a fatal error, raised while a callback runs, arrives as the cause of a
    ``SystemError``. Raises ``error`` if it is another one."""
    from confluent_kafka import KafkaException

    for link in chain(error):
        if isinstance(link, KafkaException):
            return link.args[0]
    raise error


_HINTS: Mapping[str, str] = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "Let this user DESCRIBE and WRITE transactional ids that begin with `flowctl.`"
    ),
    "TOPIC_AUTHORIZATION_FAILED": "Let this user DESCRIBE, READ and WRITE the topic and `_flowctl_commits`",
    "CLUSTER_AUTHORIZATION_FAILED": "Let this user IDEMPOTENT_WRITE on the cluster",
    "INVALID_RECORD": (
        "Set `to.key` if the topic is compacted (`cleanup.policy`): it takes no messages without a key; otherwise, look"
        " at the brokers' logs"
    ),
}
