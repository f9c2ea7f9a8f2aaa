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
from flowctl.connectors.kafka.sink.producing import Sender, open_producer, problem_of
from flowctl.errors import FlowctlError, TableError, TransientError, WriteConflict

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

#: Seconds that the brokers keep a transaction open: at least and at most (the default of their
#: `transaction.max.timeout.ms`); and messages and bytes a second for which this is enough.
_SHORTEST, _LONGEST, _SLOWEST, _SLOWEST_BYTES = 60, 900, 2_000, 250_000
#: Seconds that a call is repeated while no broker answers, and of one call.
_PATIENCE, _CALL_SECONDS = 60.0, 2.0


@dataclass(frozen=True)
class Limits:
    """``messages`` is how many one transaction will have, ``bytes`` how large one may be, ``volume`` about how large
    all are together."""

    messages: int
    bytes: int
    volume: int = 0

    @property
    def seconds(self) -> int:
        sending = max(self.messages // _SLOWEST, self.volume // _SLOWEST_BYTES)
        return max(_SHORTEST, min(_SHORTEST + sending, _LONGEST))


@contextmanager
def open_writer(cluster: Cluster, id: str, limits: Limits) -> Iterator[Writer]:
    """``id`` is the transactional id. A transaction that is open at the end is aborted."""
    own = replace(cluster, reported=deque(maxlen=20))
    settings = {"transactional.id": id, "transaction.timeout.ms": limits.seconds * 1000}
    producer = open_producer(own, limits.bytes, settings)
    writer = Writer(own, producer, limits.bytes, limits=limits)
    try:
        yield writer
    finally:
        writer.close()


@dataclass
class Writer(Sender):
    """``first`` is where the first message is, once it is delivered: partition and offset."""

    limits: Limits = field(kw_only=True)
    first: tuple[int, int] | None = field(default=None, init=False)
    _has_sent: bool = field(default=False, init=False)
    _is_open: bool = field(default=False, init=False)
    _begun_at: float = field(default=0.0, init=False)

    def take_over(self) -> None:
        """Fences earlier writers and settles their last transaction."""
        self._repeat(self.producer.init_transactions)

    def begin(self) -> None:
        self._repeat(lambda _seconds: self.producer.begin_transaction())
        self._is_open, self._begun_at = True, time.monotonic()

    def commit(self) -> None:
        """An error leaves unknown whether it is committed; only :meth:`take_over` of another writer finds that out."""
        self._repeat(self.producer.commit_transaction)
        self._is_open = False

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            self.purge()
            self.producer.abort_transaction(_CALL_SECONDS)
        except Exception as error:  # noqa: BLE001 - the first error is the one to report
            problem_of(error)  # fenced, or no broker answers: the brokers abort it

    def _reporting(self) -> Mapping[str, Any]:
        if self._has_sent:
            return {}
        self._has_sent = True
        return {"on_delivery": self._on_first}

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
            problem = problem_of(error)
            if problem.code() != Code._STATE:
                raise self._error_of(problem) from error

    def _repeat(self, call: Callable[[float], None]) -> None:
        """Until it is done: a call that times out continues when it is called again."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                call(_CALL_SECONDS)
            except Exception as error:
                problem = problem_of(error)
                if not problem.retriable() or time.monotonic() > end:
                    raise self._error_of(problem) from error
                self._check()
            else:
                return

    def _asked(self) -> list[Callable[[], object]]:
        """A transaction that has failed says why whenever one is begun."""
        return [*super()._asked(), *([self.producer.begin_transaction] if self._is_open else [])]

    def _worded(self, cause: KafkaError) -> FlowctlError:
        from confluent_kafka import KafkaError as Code

        if cause.code() in (Code._FENCED, Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE):
            return WriteConflict(
                "another writer has taken over this table, or the brokers have ended its transaction: nothing of it is"
                f" committed (Kafka says: {cause.str()})",
                hint="Run again: what is committed is looked up first",
            )
        if cause.code() == Code.INVALID_TRANSACTION_TIMEOUT:
            return TableError(
                f"the brokers do not keep a transaction open for the {self.limits.seconds} s that"
                f" {self.limits.messages:,} messages may take",
                hint=f"Set `transaction.max.timeout.ms` of the brokers to {self.limits.seconds * 1000}",
            )
        is_late = cause.code() == Code._TIMED_OUT and "message(s)" in cause.str()  # so it fails a transaction
        if self._is_open and (is_late or cause.code() == Code._MSG_TIMED_OUT):
            seconds = time.monotonic() - self._begun_at
            return TransientError(
                f"{seconds:.0f} s after the transaction began, the brokers do not have all of its messages, of which"
                f" there are {self.limits.messages:,} (Kafka says: {cause.str()})",
                hint="Check whether the brokers answer; over a slow connection, reduce what one commit has (`batch`,"
                " where a topic is read), or set `delivery: at_least_once` in `to`",
            )
        found = super()._worded(cause)
        if cause.txn_requires_abort() and not isinstance(found, TransientError):
            return TransientError(found.message, hint=found.hint)
        return found
