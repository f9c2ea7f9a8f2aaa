"""The commits of all tables that are written to topics of one cluster: the compacted topic :data:`COMMITS`.

Each transaction adds one record, keyed by lineage and table: the newest record of a key is the table's last commit. The
topic has one partition, and a transaction that is still open hides whatever was committed behind its record. Records
are written last, so this takes milliseconds, unless a process is killed just then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flowctl.connectors.kafka.client import COMMITS, Cluster, Topic
from flowctl.connectors.kafka.sink.topics import create_statement, create_topic, find_topics, naming, settings_of
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.commit import Commit, commit_from_record
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import TopicCreation

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Compaction must not wait: each look reads the whole topic.
CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
#: Seconds that a look waits for another table's transaction, and for messages.
_WAIT_SECONDS, _SILENT_SECONDS = 10.0, 30.0

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True)
class Record:
    """``columns`` are those that the messages have had so far, ``key`` those that identify a row."""

    commit: Commit
    topic: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    at: str

    def to_key(self) -> bytes:
        return key_of(self.commit.lineage, self.commit.table)

    def to_value(self) -> bytes:
        columns = [{"name": column.name, "type": str(column.type)} for column in self.columns]
        more = {"topic": self.topic, "columns": columns, "key": list(self.key), "at": self.at}
        return json.dumps({**self.commit.record(), **more}, ensure_ascii=False).encode()


def key_of(lineage: str, table: str) -> bytes:
    return json.dumps({"lineage": lineage, "table": table}, ensure_ascii=False).encode()


def record_from(value: bytes) -> Record:
    document: Mapping[str, Any] = json.loads(value)
    return Record(
        commit_from_record(document),
        document["topic"],
        tuple(Column(one["name"], types.parse(one["type"])) for one in document["columns"]),
        tuple(document["key"]),
        document["at"],
    )


def read_records(cluster: Cluster, concerns: Callable[[Record], bool]) -> list[Record]:
    """The newest committed record of each key, of those that ``concerns`` accepts; the oldest first. Starts no
    transaction, so it disturbs no writer. Raises ``TransientError`` if a record may be hidden for longer than some
    seconds."""
    waited = time.monotonic() + _WAIT_SECONDS
    while True:
        topic = find_topics(cluster, [COMMITS]).get(COMMITS)
        if topic is None:
            return []
        require_one_partition(topic)
        oldest, stable, end = (cluster.offsets([topic], at)[COMMITS].of(0) or 0 for at in ("earliest", "latest", "end"))
        found: dict[bytes, Record] = {}
        for message in _read(cluster, oldest, stable, "read_committed"):
            found.pop(message.key(), None)
            if message.value() is not None and concerns(record := record_from(message.value())):
                found[message.key()] = record
        if not _is_hidden(cluster, stable, end, concerns):
            return list(found.values())
        if time.monotonic() > waited:
            raise TransientError(
                f"the last commits are hidden in {COMMITS} behind a transaction that is still open",
                hint="Wait some minutes: the brokers end the transaction of a writer that is gone",
            )
        time.sleep(0.2)


def _is_hidden(cluster: Cluster, stable: int, end: int, concerns: Callable[[Record], bool]) -> bool:
    """Whether a record behind the first open transaction may be committed already. That transaction's own record, the
    first one, is not."""
    for message in _read(cluster, stable, end, "read_uncommitted") if stable < end else ():
        if message.offset() > stable and message.value() is not None and concerns(record_from(message.value())):
            return True
    return False


def ensure_commits(cluster: Cluster) -> None:
    """Creates the topic of commits if it does not exist. Raises ``TableError`` if it may lose some."""
    creation = TopicCreation(partitions=1, config=CONFIG)
    try:
        topic = create_topic(cluster, COMMITS, creation)
    except TableError as error:
        statement = create_statement(ObjectName((COMMITS,)), creation)
        raise TableError(
            f"topic {COMMITS}, where flowctl keeps what is committed, cannot be created: {error.message}",
            hint=f"Create it: `{statement}`; and let this user READ and WRITE it",
        ) from error
    require_one_partition(topic)
    policy = settings_of(cluster, COMMITS).get("cleanup.policy", "compact")
    if policy != "compact":
        raise TableError(
            f"topic {COMMITS} has cleanup.policy={policy}: it would lose commits, and rows would be sent twice",
            hint=f"Change it: `kafka-configs.sh --alter --topic {COMMITS} --add-config cleanup.policy=compact`",
        )


def require_one_partition(topic: Topic) -> None:
    if len(topic.partitions) != 1:
        raise TableError(
            f"topic {topic.name} has {len(topic.partitions)} partitions: the order of commits is not known",
            hint="Restore it with one partition; nobody but flowctl should change it",
        )


def _read(cluster: Cluster, start: int, end: int, isolation: Isolation) -> Iterator[Message]:
    """What the topic still has from ``start`` to before ``end``."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    if start >= end:
        return
    consumer = cluster.consumer(isolation)
    silent = time.monotonic() + _SILENT_SECONDS
    try:
        with naming([COMMITS]), cluster.translated():
            consumer.assign([TopicPartition(COMMITS, 0, start)])
            while True:
                for message in consumer.consume(1000, timeout=0.2):
                    error = message.error()
                    if error is None:
                        silent = time.monotonic() + _SILENT_SECONDS
                        if message.offset() < end:
                            yield message
                        if message.offset() + 1 >= end:
                            return
                    elif error.code() == KafkaError._PARTITION_EOF:
                        if message.offset() >= end:
                            return
                    elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                        continue  # the client looks for the group's coordinator, but no group is used
                    elif not isinstance(cluster.error_of(error), TransientError):
                        raise KafkaException(error)
                cluster.require_connection()
                if time.monotonic() > silent:
                    raise TransientError(
                        f"topic {COMMITS} sent nothing for {_SILENT_SECONDS:.0f} s, though it is not at its end",
                        hint="Check whether its partition has a leader",
                    )
    finally:
        consumer.close()
