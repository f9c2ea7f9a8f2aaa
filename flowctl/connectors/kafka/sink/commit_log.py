"""The commits of all tables that are written to topics of one cluster: the compacted topic :data:`COMMITS`.

Each transaction adds one record, keyed by lineage and table: the newest record of a key is the table's last commit. The
topic has one partition, and a transaction that is still open hides whatever was committed behind its record. Records
are written last, so this takes milliseconds, unless a process is killed just then. What became of a hidden record is
seen in its own topic: by the first message of the same transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flowctl.connectors.kafka.client import COMMITS, Cluster, Topic
from flowctl.connectors.kafka.sink.keys import KeyForm, key_form_from
from flowctl.connectors.kafka.sink.topics import (
    RECORD_BYTES,
    create_statement,
    create_topic,
    find_topics,
    naming,
    settings_of,
)
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.commit import Commit, commit_from_record
from flowctl.model.position import OffsetsPosition
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.topic_layout import TopicCreation

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Compaction must not wait: each look reads the whole topic.
CONFIG = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(RECORD_BYTES),
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",
}
#: Seconds that a look waits for another writer's transaction (longer than most may be open), and for messages.
_WAIT_SECONDS, _SILENT_SECONDS = 75.0, 30.0

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True)
class Record:
    """``columns`` are those that the messages have had so far, ``key`` those that identify a row. ``first`` is where
    the first message of the same transaction is: partition and offset (None: it has none). ``since``, of dead letters:
    where their topic ended before them. ``keys``, of merges: how keys are written."""

    commit: Commit
    topic: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    at: str
    first: tuple[int, int] | None = None
    since: OffsetsPosition = OffsetsPosition(())
    keys: KeyForm | None = None

    def to_key(self) -> bytes:
        return key_of(self.commit.lineage, self.commit.table)

    def to_value(self) -> bytes:
        columns = [{"name": column.name, "type": str(column.type)} for column in self.columns]
        more = {"topic": self.topic, "columns": columns, "key": list(self.key), "at": self.at, "first": self.first}
        since = {"since": self.since.offsets} if self.since.offsets else {}
        keys = {"keys": self.keys.document()} if self.keys else {}
        return json.dumps({**self.commit.record(), **more, **since, **keys}, ensure_ascii=False).encode()


def key_of(lineage: str, table: str) -> bytes:
    return json.dumps({"lineage": lineage, "table": table}, ensure_ascii=False).encode()


def record_from(value: bytes) -> Record:
    try:
        document: Mapping[str, Any] = json.loads(value)
        return Record(
            commit_from_record(document),
            document["topic"],
            tuple(Column(one["name"], types.parse(one["type"])) for one in document["columns"]),
            tuple(document["key"]),
            document["at"],
            tuple(document["first"]) if document["first"] is not None else None,
            OffsetsPosition(tuple((partition, offset) for partition, offset in document.get("since", ()))),
            key_form_from(document.get("keys")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"topic {COMMITS} has a message that is no commit", hint="Find out who else writes to it, and delete it"
        ) from error


def read_records(cluster: Cluster, concerns: Callable[[Record], bool]) -> list[Record]:
    """The newest committed record of each key, of those that ``concerns`` accepts; the oldest first. Starts no
    transaction, so it disturbs no writer. Waits for a hidden record of which nothing else is known, and raises
    ``TransientError`` if that takes too long."""
    waited = time.monotonic() + _WAIT_SECONDS
    while True:
        topic = find_topics(cluster, [COMMITS]).get(COMMITS)
        if topic is None:
            return []
        require_one_partition(topic)
        oldest, stable, end = (cluster.offsets([topic], at)[COMMITS].of(0) or 0 for at in ("earliest", "latest", "end"))
        found: dict[bytes, Record] = {}
        for record in _records(read(cluster, COMMITS, 0, oldest, stable), concerns):
            found.pop(record.to_key(), None)
            found[record.to_key()] = record
        is_known = True
        hidden = read(cluster, COMMITS, 0, stable, end, "read_uncommitted")
        for record in _records((one for one in hidden if one.offset() != stable), concerns):
            outcome = outcome_of(cluster, record)
            is_known &= outcome != "unknown"
            if outcome == "committed":
                found.pop(record.to_key(), None)
                found[record.to_key()] = record
        if is_known:
            return list(found.values())
        if time.monotonic() > waited:
            raise TransientError(
                f"the last commits are hidden in {COMMITS} behind a transaction that is still open",
                hint="Wait some minutes: the brokers end the transaction of a writer that is gone",
            )
        time.sleep(0.5)


def _records(messages: Iterable[Message], concerns: Callable[[Record], bool]) -> Iterator[Record]:
    made = (record_from(message.value()) for message in messages if message.value() is not None)
    return (record for record in made if concerns(record))


def outcome_of(cluster: Cluster, record: Record) -> Literal["committed", "not_committed", "unknown"]:
    """What became of the transaction of ``record``. Its first message is at a known place: while the transaction is
    open, and for a moment after it was committed, its partition is stable up to there and no further. Whoever sends
    again takes over the writer first, which waits for the end of that moment. Afterwards everybody sees the message;
    or only those do that read what was aborted."""
    topic = find_topics(cluster, [record.topic]).get(record.topic)
    if record.first is None or topic is None or not record.commit.target_id.endswith(f"/{topic.id}"):
        return "unknown"
    partition, offset = record.first
    oldest, stable = (cluster.offsets([topic], at)[topic.name].of(partition) or 0 for at in ("earliest", "latest"))
    if stable == offset:
        return "not_committed"
    if not oldest <= offset < stable:  # it has expired, or is hidden by somebody else's transaction
        return "unknown"
    if _is_there(cluster, topic.name, partition, offset, "read_committed"):
        return "committed"
    return "not_committed" if _is_there(cluster, topic.name, partition, offset, "read_uncommitted") else "unknown"


def _is_there(cluster: Cluster, topic: str, partition: int, offset: int, isolation: Isolation) -> bool:
    return next(read(cluster, topic, partition, offset, offset + 1, isolation), None) is not None


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


def read(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, isolation: Isolation = "read_committed"
) -> Iterator[Message]:
    """What the partition still has from ``start`` to before ``end``."""
    from confluent_kafka import KafkaError, TopicPartition

    if start >= end:
        return
    consumer = cluster.consumer(isolation)
    silent = time.monotonic() + _SILENT_SECONDS
    try:
        with naming([topic]), cluster.translated():
            consumer.assign([TopicPartition(topic, partition, start)])
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
                    else:
                        cluster.require_passing(error)
                cluster.require_connection()
                if time.monotonic() > silent:
                    raise TransientError(
                        f"topic {topic} sent nothing for {_SILENT_SECONDS:.0f} s, though it is not at its end",
                        hint="Check whether its partition has a leader",
                    )
    finally:
        consumer.close()
