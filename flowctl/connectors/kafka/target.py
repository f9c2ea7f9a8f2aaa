"""Topics as a target: the rows of a commit, and its record.

Exactly once, this process sends the staged rows and the record in one Kafka transaction. At least once, the engine's
tasks send the rows (:mod:`.sink.tasks`), and only the record is in a transaction. The order of a commit:

1. A producer with the table's own transactional id takes over: earlier writers of this table are fenced, and their last
   transaction is committed or aborted for good.
2. The last commit is read. If it is this sequence number's, nothing is sent.
3. The rows are sent, exactly once in the transaction, which begins. Once the brokers have all of them, the topic is
   checked to be the same still, ``before_commit`` is called, and the commit's record follows. The transaction commits.

A topic is never replaced, and its content is not read back. Others may write to it too, so a topic that exists may be
written. Its id is the target's identity: one that was deleted and created again is another target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from flowctl import crashpoints, delays
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.buffered import computed, record_batches
from flowctl.connectors.kafka.client import COMMITS, Cluster, Topic
from flowctl.connectors.kafka.registry import Registry
from flowctl.connectors.kafka.sink.commit_log import Record, ensure_commits, key_of, read_records
from flowctl.connectors.kafka.sink.formats import TopicRows, confirm_schemas, form_of, topic_rows
from flowctl.connectors.kafka.sink.keys import KeyForm, key_form_from
from flowctl.connectors.kafka.sink.messages import Form, Messages
from flowctl.connectors.kafka.sink.tasks import Sent, Task, headers_of, send_at_least_once
from flowctl.connectors.kafka.sink.topics import (
    RECORD_BYTES,
    compaction,
    create_statement,
    create_topic,
    find_topics,
    may_write,
    message_bytes,
)
from flowctl.connectors.kafka.sink.transaction import Limits, Writer, open_writer
from flowctl.connectors.preconditions import already_committed, check_base, identified, verify_total
from flowctl.connectors.target import OP_COLUMN, CommitLookup, Staged, Target, WriteJob, WriteShape
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.errors import FlowctlError, StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout
from flowctl.spec.topic_layout import Delivery
from flowctl.storage.buffer import Buffer
from flowctl.text import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DELIVERIES: Mapping[Delivery, str] = {
    "exactly_once": "exactly once: one Kafka transaction",
    "at_least_once": "at least once: sent by the engine's tasks; a killed run sends a commit's messages again",
}


@dataclass(frozen=True)
class KafkaTarget(Target):
    cluster: Cluster
    context: OpenContext
    capabilities: Capabilities
    registry: Registry | None = None

    # Rules for plans

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        return [create_statement(object, layout.topic.create)] if layout.topic.create is not None else []

    def refuse_create(self, object: ObjectName, layout: Layout) -> tuple[str, str] | None:
        if layout.topic.create is not None:
            return None
        return f"there is no topic {object}", "Create it, or let the run create it with `create: {}` in `to`"

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        return [_fixed_key(change) if change.column in info.primary_key else change for change in changes]

    def explain_write(
        self, object: ObjectName, there: TableInfo | None, write: WriteShape, engine: str, conf: Mapping[str, str]
    ) -> str:
        keys, text = key_form_from(there.extra.get("keys")) if there else None, _DELIVERIES[write.layout.topic.delivery]
        if there is None or keys is None or keys.partitions == there.extra["partitions"]:
            return text
        return f"{text}; keys stay in the first {counted(keys.partitions, 'partition')} of {there.extra['partitions']}"

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        return _refuse_replacing(info.object) if replaces else None

    def refuse_key(self, there: TableInfo, key: Sequence[str], layout: Layout) -> tuple[str, str] | None:
        before = key_form_from(there.extra.get("keys"))
        if before is None:
            return None
        if there.primary_key != tuple(key):
            what = f"its keys have {', '.join(there.primary_key)}, and the spec says {', '.join(key)}"
            return (
                f"{there.object}: {what}: rows would be there under two keys",
                "Keep the key, or write to a new topic",
            )
        refused = before.refuse_layout(layout.topic)
        return (f"{there.object}: {refused[0]}", refused[1]) if refused else None

    # Reading

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        """The columns are those of the newest commit, whoever made it."""
        names = sorted({_name(object) for object in objects})
        topics = find_topics(self.cluster, names)
        records = {record.commit.target_id: record for record in self._records(lambda record: record.topic in topics)}
        return {object: self._described(object, topics.get(_name(object)), records) for object in objects}

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        """As sources are identified, so that a topic is not read and written by one table."""
        topics = find_topics(self.cluster, sorted({_name(object) for object in objects}))
        named = {object: _name(object) for object in objects}
        return {
            object: self._identity(topics[name]) if name in topics else f"kafka:{self.cluster.id()}/{name}"
            for object, name in named.items()
        }

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        found = self._own_records(lookups)
        return {lookup.table: record.commit if (record := found.get(lookup.table)) else None for lookup in lookups}

    def described_and_committed(
        self, lookups: Sequence[CommitLookup]
    ) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
        """The columns are those of this table's commit, if it has one."""
        topics = find_topics(self.cluster, sorted({_name(lookup.object) for lookup in lookups}))
        own = self._own_records(lookups)
        found: dict[str, tuple[TableInfo | None, Commit | None]] = {}
        for lookup in lookups:
            record = own.get(lookup.table)
            by_id = {record.commit.target_id: record} if record else {}
            info = self._described(lookup.object, topics.get(_name(lookup.object)), by_id)
            found[lookup.table] = (info, record.commit if record and info else None)
        return found

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        if may_write(self.cluster, _name(object)):
            return None
        return TableError(f"this user may not write topic {object}", hint=f"Let it DESCRIBE and WRITE {object}")

    def confirm_write(self, object: ObjectName, write: WriteShape, written: Sequence[str]) -> str:
        """The topic decides whether it takes messages without a key, the registry whether it takes the schemas."""
        columns = [column for column in write.columns if column.name in written]
        rows = topic_rows(_name(object), write.layout.topic, write.mode, write.key, columns)
        there = self.describe([object])[object] if (rows.is_merged and rows.parts) or not rows.key else None
        if there is not None and not rows.key and (what := compaction(self.cluster, rows.topic)):
            hint = "Set `to.key`, or write to a topic that is not compacted"
            raise StoppedByPolicy(f"topic {rows.topic} {what}: it takes no messages without a key", hint=hint)
        return confirm_schemas(rows, self.registry, key_form_from(there.extra.get("keys")) if there else None)

    def refuse_letters(self, there: TableInfo) -> tuple[str, str] | None:
        if what := compaction(self.cluster, _name(there.object)):
            return f"{what}, and loses those with equal keys", "Set it to delete, or give the dead letters another `to`"
        return None

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        raise TableError(
            f"{object} is a topic: its rows cannot be read back, which this batch needs",
            hint="Let the source send whole rows (REPLICA IDENTITY FULL), or write the table to a database or Delta",
        )

    # Writing

    @contextmanager
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Iterator[Staged]:
        if job.replaces_content and job.record.target_id:
            raise _refuse_replacing(job.object)
        rows: Batch
        match batch:
            case InMemory():
                rows = batch
            case OnEngine(frame):
                folder = partial(self._buffer.folder, f"messages-{job.object}-{job.record.seq}")
                rows = computed(frame, batch, folder)
        yield Staged(job, rows, batch.names)

    def commit(self, staged: Sequence[Staged]) -> list[Commit]:
        """One after the other, in a transaction each."""
        return [self._commit(one) for one in staged]

    def void(self, job: WriteJob) -> Commit:
        return self._commit(Staged(replace(job, record=replace(job.record, void=True)), None))

    def quarantine(
        self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int, through: int | None = None
    ) -> None:
        from flowctl.connectors.kafka.sink.letters import send_letters

        folder = self._buffer.folder(f"letters-{job.record.table}-{job.record.seq}")
        in_order = frame.orderBy("_topic", "_partition", "_offset")
        rows = computed(in_order, OnEngine(in_order), lambda: folder)
        send_letters(self.cluster, record_batches(rows), (folder.rows(), folder.bytes()), job)

    @property
    def _buffer(self) -> Buffer:
        if self.context.buffer is None:
            raise FlowctlError("a topic was opened without a buffer", hint="Use `flowctl apply`")
        return self.context.buffer

    def _commit(self, staged: Staged) -> Commit:
        job, name = staged.job, _name(staged.job.object)
        lookup = CommitLookup(job.record.lineage, job.record.table, job.object)
        ensure_commits(self.cluster)
        topic = self._topic_of(job)
        in_transaction = job.layout.topic.delivery == "exactly_once"
        count, volume = _size(staged.rows) if in_transaction else (1, 0)
        limits = Limits(count, message_bytes(self.cluster, name if topic else COMMITS), volume)
        with open_writer(self.cluster, f"flowctl.{job.record.lineage}.{job.record.table}", limits) as writer:
            writer.take_over()
            delays.pause()
            newest = self._own_records([lookup]).get(job.record.table)
            if newest is not None and newest.commit.seq >= job.record.seq:
                return already_committed(newest.commit, job.record)
            check_base(job.record.table, newest.commit.name if newest else "", job.base)
            form = form_of(_rows_of(job, staged.columns), self.registry)
            keys = _keys_of(job, form, topic, self._keys_before(job, topic, newest))
            if keys is not None and topic is not None and keys.partitions != len(topic.partitions):
                form = replace(form, partitions=keys.partitions)
            if in_transaction:
                writer.begin()
                counts = self._send(writer, staged, form)
            else:
                counts = self._send_by_tasks(staged, form, limits.bytes)
                writer.begin()
            crashpoints.reached("in_transaction", job.record.table)
            if _id(self._topic_of(job)) != _id(topic):
                raise StoppedByPolicy(f"topic {name} was deleted while it was written", hint="Plan again")
            job.before_commit()
            record = replace(self._record(job, topic, newest, writer.first), keys=keys)
            writer.send(COMMITS, Messages([record.to_key()], [record.to_value()]), RECORD_BYTES)
            writer.flush()
            crashpoints.reached("in_commit", job.record.table)
            delays.pause()
            writer.commit()
            crashpoints.reached("transaction_committed", job.record.table)
        return replace(record.commit, counts=counts)

    def _record(
        self, job: WriteJob, topic: Topic | None, newest: Record | None, first: tuple[int, int] | None
    ) -> Record:
        """A void changes no columns, and a topic that has only voids is not written yet."""
        commit = job.record
        if topic is not None and not commit.void:
            commit = identified(commit, self._identity(topic))
        columns, key = job.columns, job.key if job.mode == "merge" else job.layout.topic.key
        if job.record.void:
            columns, key = (newest.columns, newest.key) if newest else ((), ())
        return Record(commit, _name(job.object), tuple(columns), tuple(key), job.at, first)

    def _keys_before(self, job: WriteJob, topic: Topic | None, newest: Record | None) -> KeyForm | None:
        """How the last commit to this very topic has written keys."""
        there = self._identity(topic) if topic is not None else job.record.target_id
        return newest.keys if newest is not None and newest.commit.target_id == there else None

    def _send(self, writer: Writer, staged: Staged, form: Form) -> RowCounts:
        if staged.rows is None:
            return RowCounts()
        total = Sent()
        for rows in record_batches(staged.rows):
            for messages in form.messages(rows):
                writer.send(_name(staged.job.object), messages, writer.limits.bytes)
                total += Sent(len(messages.values), messages.tombstones)
        writer.flush()
        return _counted(staged.job, total)

    def _send_by_tasks(self, staged: Staged, form: Form, most_bytes: int) -> RowCounts:
        if staged.rows is None:
            return RowCounts()
        job = staged.job
        columns = [Column(OP_COLUMN, types.STRING), *job.columns]
        written = tuple(column for column in columns if column.name in staged.columns)
        task = Task(self.cluster, _name(job.object), replace(form, same=headers_of(job)), written, most_bytes)
        return _counted(job, send_at_least_once(staged.rows, task))

    def _topic_of(self, job: WriteJob) -> Topic | None:
        """The topic, which is created if the job does so; a void needs none. Raises :class:`StateConflict` if it is
        another one than the intent was for."""
        name, creation = _name(job.object), job.layout.topic.create
        topic = find_topics(self.cluster, [name]).get(name)
        if topic is None and job.record.void:
            return None
        if topic is None and creation is not None and not job.record.target_id:
            topic = create_topic(self.cluster, name, creation)
        if topic is None:
            raise TableError(f"there is no topic {name}", hint="Plan again: it was deleted since the plan was made")
        identified(job.record, self._identity(topic))
        return topic

    # Commits

    def _records(self, concerns: Callable[[Record], bool]) -> list[Record]:
        return read_records(self.cluster, concerns)

    def _own_records(self, lookups: Sequence[CommitLookup]) -> dict[str, Record]:
        wanted = {key_of(lookup.lineage, lookup.table) for lookup in lookups}
        return {record.commit.table: record for record in self._records(lambda record: record.to_key() in wanted)}

    def _identity(self, topic: Topic) -> str:
        return f"kafka:{self.cluster.id()}/{topic.id}"

    def _described(self, object: ObjectName, topic: Topic | None, records: Mapping[str, Record]) -> TableInfo | None:
        """``records`` by the id of what they were written to."""
        if topic is None:
            return None
        record = records.get(self._identity(topic))
        keys = {"keys": record.keys.document()} if record and record.keys else {}
        return TableInfo(
            object=object,
            columns=record.columns if record else (),
            identity=self._identity(topic),
            primary_key=record.key if record else (),
            extra={"partitions": len(topic.partitions), **keys},
            system=f"kafka:{self.cluster.id()}",
        )


def _rows_of(job: WriteJob, names: Sequence[str]) -> TopicRows:
    """``names`` are the columns of the batch, of which a void has none."""
    written = [column for column in job.columns if column.name in names]
    return topic_rows(_name(job.object), job.layout.topic, job.mode, job.key, written)


def _keys_of(job: WriteJob, form: Form, topic: Topic | None, before: KeyForm | None) -> KeyForm | None:
    """How a merge writes keys: in the partitions of the last commit, though the topic may have more by now. Raises
    :class:`StoppedByPolicy` if the last commit has encoded them otherwise."""
    if job.record.void or topic is None:
        return before
    if job.mode != "merge":
        return None
    layout = job.layout.topic
    made = KeyForm(layout.format, form.key_schema, before.partitions if before else len(topic.partitions))
    refused = before and (before.refuse_layout(layout) or before.refuse_schema(made.schema or 0))
    if refused:
        raise StoppedByPolicy(f"{job.object}: {refused[0]}", hint=refused[1])
    return made


def _name(object: ObjectName) -> str:
    return object.parts[-1]


def _counted(job: WriteJob, sent: Sent) -> RowCounts:
    verify_total(job, sent.messages)
    deleted = sent.deleted if job.mode == "merge" else None
    return RowCounts(inserted=sent.messages - sent.deleted, deleted=deleted)


def _id(topic: Topic | None) -> str:
    return topic.id if topic is not None else ""


def _size(rows: Batch | None) -> tuple[int, int]:
    """Rows and bytes, as far as they are known."""
    match rows:
        case None:
            return 0, 0
        case InMemory(held):
            return int(held.num_rows), int(held.nbytes)
        case OnEngine(_, folder):
            return (folder.rows(), folder.bytes()) if folder is not None else (0, 0)


def _refuse_replacing(object: ObjectName) -> StoppedByPolicy:
    return StoppedByPolicy(
        f"{object} is a topic: what it holds cannot be replaced",
        hint="Send everything again with `flowctl state set … --position beginning`, or write to a new topic",
    )


def _fixed_key(change: SchemaChange) -> SchemaChange:
    """Keys are compared as text: one of another type would be another key, and maybe in another partition."""
    if change.change not in ("wider_type", "other_type") or change.action == "fail":
        return change
    hint = "Keep its type with `columns: {types: …}`, or write to a new topic"
    return replace(change, action="fail", note="it is part of the messages' key", next_step=hint)
