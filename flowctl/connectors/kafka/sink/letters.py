"""Dead letters as messages: key, value and headers as they were, and further headers that tell what is wrong.

They are sent before the commit whose messages they are, in a transaction of their own. Its record, with the same
sequence number, tells a repetition that they were sent. A repetition may reject other messages, because a schema or a
check has changed since: it sends those that are not in the topic yet, and what is there stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl import crashpoints, delays
from flowctl.connectors.kafka.client import COMMITS, Cluster, Topic
from flowctl.connectors.kafka.messages import Letter
from flowctl.connectors.kafka.sink.commit_log import Record, ensure_commits, key_of, read, read_records
from flowctl.connectors.kafka.sink.messages import Messages
from flowctl.connectors.kafka.sink.topics import RECORD_BYTES, create_topic, find_topics, message_bytes
from flowctl.connectors.kafka.sink.transaction import Limits, open_writer
from flowctl.errors import StateConflict, TableError, TransientError
from flowctl.model.position import OffsetsPosition

if TYPE_CHECKING:
    import pyarrow as pa

    from flowctl.connectors.target import WriteJob
    from flowctl.model.commit import Commit

#: Before the names of the headers, as `__connect.errors.` is in Kafka Connect.
PREFIX = "__flowctl.errors."
#: Headers by the letters' columns, in order. A null has none.
_HEADERS = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_schema_id": "schema.id",
    "_error": "class",
    "_reason": "message",
    "_lineage": "lineage",
    "_table": "table",
    "_seq": "seq",
    "_run_id": "run.id",
}
_ROWS = 10_000
#: A letter, by the topic, the partition and the offset of its message.
_Place = tuple[str, str, str]


def send_letters(cluster: Cluster, batches: Iterable[pa.RecordBatch], size: tuple[int, int], job: WriteJob) -> None:
    """Sends the rows of ``batches``, which have the columns of a letter and those of its commit, to the topic
    ``job.object``: each once under the job's sequence number. ``size`` is how many rows there are, and their bytes."""
    record = replace(job.record, table=f"{job.record.table}/dead_letters", position=None)
    ensure_commits(cluster)
    topic = _topic(cluster, job)
    limits = Limits(size[0], message_bytes(cluster, topic.name), size[1])
    with open_writer(cluster, f"flowctl.{record.lineage}.{record.table}", limits) as writer:
        writer.take_over()
        delays.pause()
        newest = _newest(cluster, record)
        is_repeated = newest is not None and newest.commit.seq == record.seq
        since = newest.since if newest is not None and is_repeated else _ends(cluster, topic)
        sent = set(_sent(cluster, topic, since, record, job.record.table)) if is_repeated else set()
        has_begun = False
        for messages in (one for rows in batches for one in _messages(rows, sent)):
            if not has_begun:
                writer.begin()
                has_begun = True
            writer.send(topic.name, messages, limits.bytes)
        if not has_begun:
            return
        writer.flush()
        crashpoints.reached("in_transaction", job.record.table)
        job.before_commit()
        commit = replace(record, target_id=f"kafka:{cluster.id()}/{topic.id}")
        made = Record(commit, topic.name, (), (), job.at, writer.first, since)
        writer.send(COMMITS, Messages([made.to_key()], [made.to_value()]), RECORD_BYTES)
        writer.flush()
        delays.pause()
        writer.commit()
        crashpoints.reached("transaction_committed", job.record.table)


def _topic(cluster: Cluster, job: WriteJob) -> Topic:
    name, creation = job.object.parts[-1], job.layout.topic.create
    found = find_topics(cluster, [name]).get(name)
    if found is None and creation is not None:
        found = create_topic(cluster, name, creation)
    if found is None:
        hint = "Create it, or let the run create it with `create: {}` in `dead_letters.to`"
        raise TableError(f"there is no topic {name} for dead letters", hint=hint)
    return found


def _newest(cluster: Cluster, record: Commit) -> Record | None:
    key = key_of(record.lineage, record.table)
    newest = next(iter(read_records(cluster, lambda one: one.to_key() == key)), None)
    if newest is not None and newest.commit.seq > record.seq:
        raise StateConflict(
            f"dead letters of sequence number {newest.commit.seq} were sent, and this is {record.seq}",
            hint="Run again: another run has taken over",
        )
    return newest


def _ends(cluster: Cluster, topic: Topic) -> OffsetsPosition:
    return cluster.offsets([topic], "latest")[topic.name]


def _sent(cluster: Cluster, topic: Topic, since: OffsetsPosition, record: Commit, table: str) -> Iterator[_Place]:
    """The letters of this sequence number that the topic has."""
    stable, ends = _ends(cluster, topic), cluster.offsets([topic], "end")[topic.name]
    if stable != ends:
        raise TransientError(
            f"topic {topic.name} has a transaction that is still open: which dead letters it has is not known",
            hint="Wait some minutes: the brokers end the transaction of a writer that is gone",
        )
    oldest = cluster.offsets([topic], "earliest")[topic.name]
    wanted = {"lineage": record.lineage, "table": table, "seq": str(record.seq)}
    for partition, end in stable.offsets:
        start = max(since.of(partition) or 0, oldest.of(partition) or 0)
        for message in read(cluster, topic.name, partition, start, end):
            given = [(name, value) for name, value in message.headers() or () if name.startswith(PREFIX)]
            found = {name.removeprefix(PREFIX): (value or b"").decode(errors="replace") for name, value in given}
            if {name: found.get(name) for name in wanted} == wanted:
                yield found["topic"], found["partition"], found["offset"]


def _messages(rows: pa.RecordBatch, sent: set[_Place]) -> Iterator[Messages]:
    """Those that are not ``sent``."""
    for start in range(0, rows.num_rows, _ROWS):
        letters = [Letter(row) for row in rows.slice(start, _ROWS).to_pylist()]
        if left := [one for one in letters if _place(one) not in sent]:
            yield Messages([one.key() for one in left], [one.value() for one in left], list(map(_headers, left)))


def _place(letter: Letter) -> _Place:
    return str(letter.topic()), str(letter.partition()), str(letter.offset())


def _headers(letter: Letter) -> list[tuple[str, bytes | str | None]]:
    """The message's own headers, and flowctl's. Those that flowctl has given it before, when it was a letter of another
    table, are replaced."""
    own = [one for one in letter.headers() or () if not one[0].startswith(PREFIX)]
    kind, at = letter.timestamp()
    values: Mapping[str, Any] = {**letter.row, "_timestamp": at if kind else None}
    more = [(PREFIX + name, str(value)) for of, name in _HEADERS.items() if (value := values[of]) is not None]
    return [*own, *more]
