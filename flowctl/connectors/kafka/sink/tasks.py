"""Messages that the tasks of an engine send, each with a producer of its own: at least once.

No transaction holds them together, so consumers see each as soon as it is sent, and what a killed run has sent stays.
The next run sends the whole commit again. The headers of each message tell consumers which messages are the same.

A task returns its error instead of raising it: the engine would repeat the task, and put its own words around it. The
credentials travel inside the function: no plan and no option shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.security import with_contents
from flowctl.connectors.kafka.sink.messages import Form, Headers
from flowctl.connectors.kafka.sink.producing import Sender, open_sender
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import named
from flowctl.errors import FlowctlError, Interrupted, TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from flowctl.connectors.target import WriteJob

_REPORT = "sent BIGINT, deleted BIGINT, error STRING, message STRING, hint STRING"
#: What a task may report, by the names of the classes; any other error is an engine's.
_ERRORS: Mapping[str, type[FlowctlError]] = {one.__name__: one for one in (TableError, TransientError, Interrupted)}


@dataclass(frozen=True)
class Sent:
    """How many messages were sent; ``deleted`` of them are tombstones."""

    messages: int = 0
    deleted: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.messages + other.messages, self.deleted + other.deleted)


@dataclass(frozen=True)
class Task:
    """Sends rows, which have ``columns`` in this order, to ``topic``, where a message may have ``most_bytes``."""

    cluster: Cluster
    topic: str
    form: Form
    columns: tuple[Column, ...]
    most_bytes: int

    def send(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for `mapInArrow`; yields one row, once the brokers have all messages: how many there are, or why
        they were not sent."""
        import pyarrow as pa

        report: dict[str, Any] = {"error": "", "message": "", "hint": ""}
        try:
            sent = self.sent(batches)
        except tuple(_ERRORS.values()) as error:
            sent = Sent()
            report = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        counts = {"sent": pa.array([sent.messages], pa.int64()), "deleted": pa.array([sent.deleted], pa.int64())}
        texts = {name: pa.array([text], pa.string()) for name, text in report.items()}
        yield pa.RecordBatch.from_pydict({**counts, **texts})

    def sent(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        """The brokers have all messages when it returns."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return Sent()
        with open_sender(self.cluster, self.most_bytes) as sender:
            total = self._send(sender, first)
            for batch in filled:
                total += self._send(sender, batch)
            sender.flush()
        return total

    def _send(self, sender: Sender, rows: pa.RecordBatch) -> Sent:
        total = Sent()
        for messages in self.form.messages(_typed(rows, self.columns)):
            sender.send(self.topic, messages, self.most_bytes)
            total += Sent(len(messages.values), messages.tombstones)
        return total


def send_at_least_once(rows: Batch, task: Task) -> Sent:
    """Sends ``rows``, which have the columns of ``task``: by the engine's tasks if the engine has them, otherwise by
    this process. Raises what a task reports."""
    match rows:
        case InMemory(held):
            return task.sent(iter(held.select([column.name for column in task.columns]).to_batches()))
        case OnEngine(frame):
            cluster = Cluster(task.cluster.brokers, with_contents(task.cluster.security))
            # By position: mapInArrow takes a dot in a name for a field of a struct.
            numbered = [
                named(column.name).cast(types.spark_ddl(column.type)).alias(f"c{at}")
                for at, column in enumerate(task.columns)
            ]
            remote = replace(task, cluster=cluster)
            total = Sent()
            for row in frame.select(*numbered).mapInArrow(remote.send, _REPORT).collect():
                if row["error"]:
                    raise _ERRORS[row["error"]](row["message"], hint=row["hint"])
                total += Sent(row["sent"], row["deleted"])
            return total


def headers_of(job: WriteJob) -> Headers:
    """What tells consumers which commit a message belongs to, and which of two messages is newer: that with the greater
    sequence number, and of one number that with the greater fence, which each run has of its own."""
    record = job.record
    values = {"lineage": record.lineage, "table": record.table, "seq": record.seq, "fence": job.fence}
    return [(f"flowctl.{name}", str(value)) for name, value in values.items()]


def _typed(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """``rows`` with the names and types of ``columns``: an engine has its own of text and of time zones."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    arrays = [values.cast(field.type) for values, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
