"""One transaction of a producer: everything that is sent in it becomes visible together, or never.

Only the newest producer with a transactional id may write. :meth:`Writer.take_over` fences all earlier ones and waits
until their last transaction is committed or aborted: from then on, what is committed stays as it is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.sink.messages import Messages
from flowctl.connectors.kafka.sink.topics import RECORD_BYTES
from flowctl.connectors.sql.waiting import is_interrupted
from flowctl.errors import FlowctlError, Interrupted, TableError, TransientError, WriteConflict, chain

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

#: Seconds that the brokers keep a transaction open: at least and at most (the default of their
#: `transaction.max.timeout.ms`); and messages a second for which this is enough.
_SHORTEST, _LONGEST, _SLOWEST = 60, 900, 2_000
#: Seconds that a call is repeated while no broker answers, and of one call.
_PATIENCE, _CALL_SECONDS = 60.0, 2.0
#: Bytes of messages sent at once.
_BATCH_BYTES = 1_000_000


@dataclass(frozen=True)
class Limits:
    """``messages`` is how many one transaction will have, ``bytes`` how large one may be."""

    messages: int
    bytes: int

    @property
    def seconds(self) -> int:
        return max(_SHORTEST, min(_SHORTEST + self.messages // _SLOWEST, _LONGEST))


@contextmanager
def open_writer(cluster: Cluster, id: str, limits: Limits) -> Iterator[Writer]:
    """``id`` is the transactional id. A transaction that is open at the end is aborted."""
    from confluent_kafka import Producer

    own = replace(cluster, reported=deque(maxlen=20))
    settings = {
        "transactional.id": id,
        "transaction.timeout.ms": limits.seconds * 1000,
        "compression.type": "lz4",
        "partitioner": "murmur2_random",  # as Java's clients: a key is in the same partition whoever writes it
        "linger.ms": 20,
        "log_level": 3,  # when it ends, the client writes the rest to standard error
        "message.max.bytes": max(limits.bytes, RECORD_BYTES),
        "batch.size": min(_BATCH_BYTES, limits.bytes),
        "queue.buffering.max.kbytes": 65_536 + 2 * limits.bytes // 1024,
    }
    with own.translated():
        producer = Producer({**own.settings, **settings})
    writer = Writer(own, producer, limits)
    try:
        yield writer
    finally:
        writer.close()


@dataclass
class Writer:
    """``first`` is where the first message is, once it is delivered: partition and offset."""

    cluster: Cluster
    producer: Producer
    limits: Limits
    first: tuple[int, int] | None = field(default=None, init=False)
    _has_sent: bool = field(default=False, init=False)
    _is_open: bool = field(default=False, init=False)

    def take_over(self) -> None:
        """Fences earlier writers and settles their last transaction."""
        self._repeat(self.producer.init_transactions)

    def begin(self) -> None:
        self._repeat(lambda _seconds: self.producer.begin_transaction())
        self._is_open = True

    def send(self, topic: str, messages: Messages, most_bytes: int) -> None:
        """Waits where the client's queue is full. Refuses a message of more than ``most_bytes``, as the topic would."""
        produce, headers = self.producer.produce, messages.headers
        try:
            for at, (key, value) in enumerate(zip(messages.keys, messages.values, strict=True)):
                size = len(value or b"") + len(key or b"")
                if size > most_bytes:
                    raise _too_large(f"a message of {size:,} bytes", most_bytes)
                more: dict[str, Any] = {} if headers is None else {"headers": list(headers[at])}
                if not self._has_sent:
                    more["on_delivery"], self._has_sent = self._on_first, True
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
            raise self._error_of(_problem_of(error)) from error
        self._check()

    def flush(self) -> None:
        """Returns when the brokers have all messages."""
        left = 1
        while left:
            try:
                left = self.producer.flush(1.0)
            except Exception as error:
                raise self._error_of(_problem_of(error)) from error
            self._check()
        self._require_delivery()

    def commit(self) -> None:
        """An error leaves unknown whether it is committed; only :meth:`take_over` of another writer finds that out."""
        self._repeat(self.producer.commit_transaction)
        self._is_open = False

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            self.producer.purge()
            self.producer.abort_transaction(_CALL_SECONDS)
        except Exception as error:  # noqa: BLE001 - the first error is the one to report
            _problem_of(error)  # fenced, or no broker answers: the brokers abort it

    def _on_first(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.first = (message.partition(), message.offset())

    def _require_delivery(self) -> None:
        """A message that is not delivered makes the transaction fail, which says so whenever one is begun; otherwise,
        one is open already."""
        from confluent_kafka import KafkaError as Code

        try:
            self.producer.begin_transaction()
        except Exception as error:
            problem = _problem_of(error)
            if problem.code() != Code._STATE:
                raise self._error_of(problem) from error

    def _check(self) -> None:
        if is_interrupted():
            raise Interrupted("the run was asked to stop while messages were sent", hint="Run again to finish it")
        self.cluster.require_connection()

    def _repeat(self, call: Callable[[float], None]) -> None:
        """Until it is done: a call that times out continues when it is called again."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                call(_CALL_SECONDS)
            except Exception as error:
                problem = _problem_of(error)
                if not problem.retriable() or time.monotonic() > end:
                    raise self._error_of(problem) from error
                self._check()
            else:
                return

    def _hear(self) -> None:
        """Has the client say what it has met: to a callback, or as an exception. A transaction that has failed says why
        whenever one is begun."""
        asked: list[Callable[[], object]] = [lambda: self.producer.poll(0.5)]
        asked += [self.producer.begin_transaction] if self._is_open else []
        for ask in asked:
            try:
                ask()
            except Exception as error:  # noqa: BLE001 - what it says is the answer
                self.cluster.reported.append(_problem_of(error))

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
        if cause.code() in (Code._FENCED, Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE):
            return WriteConflict(
                "another writer has taken over this table, or the brokers have ended its transaction: nothing of it is"
                f" committed (Kafka says: {cause.str()})",
                hint="Run again: what is committed is looked up first",
            )
        if cause.code() == Code.MSG_SIZE_TOO_LARGE:
            return _too_large("a message", self.limits.bytes)
        if cause.code() == Code.INVALID_TRANSACTION_TIMEOUT:
            return TableError(
                f"the brokers do not keep a transaction open for the {self.limits.seconds} s that"
                f" {self.limits.messages:,} messages may take",
                hint=f"Set `transaction.max.timeout.ms` of the brokers to {self.limits.seconds * 1000}",
            )
        if hint := _HINTS.get(cause.name()):
            return TableError(f"Kafka says: {cause.str()}", hint=hint)
        found = self.cluster.error_of(cause)
        if cause.txn_requires_abort() and not isinstance(found, TransientError):
            return TransientError(found.message, hint=found.hint)
        return found


def _too_large(what: str, most_bytes: int) -> TableError:
    return TableError(
        f"{what} is too large: the topic takes {most_bytes:,} bytes at most (max.message.bytes)",
        hint="Raise the topic's `max.message.bytes`, or leave long columns out with `columns: {exclude: […]}`",
    )


def _problem_of(error: Exception) -> KafkaError:
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
}
