"""Messages as Arrow batches: from the lower offset of each partition to the upper, and only what is committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.kafka.client import Cluster, Topic
from flowctl.connectors.kafka.decoding import BATCH_BYTES, Misfit, decoded
from flowctl.connectors.source import Capture, ReadRequest
from flowctl.connectors.sql.waiting import is_interrupted
from flowctl.errors import Interrupted, TableError, TransientError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition
from flowctl.model.table_info import Column
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

#: Messages per Arrow batch.
_BATCH_MESSAGES = 20_000
#: Seconds without any message or end of a partition after which the cluster counts as unreachable.
_SILENT_SECONDS = 60.0

_VALUES: Mapping[str, Callable[[Message], Any]] = {
    "value": lambda message: message.value(),
    "_key": lambda message: message.key(),
    "_partition": lambda message: message.partition(),
    "_offset": lambda message: message.offset(),
    "_timestamp": lambda message: _timestamp(message),
}
#: Columns that every message has, besides its value.
METADATA = frozenset({"_key", "_partition", "_offset", "_timestamp"})


@dataclass(frozen=True)
class TopicCapture(Capture):
    """``declared`` are the columns of messages that are JSON objects; empty for others."""

    cluster: Cluster
    topic: Topic
    declared: Sequence[Column] = ()

    def read(self, request: ReadRequest, sink: SegmentSink) -> int:
        import pyarrow as pa

        rows, schema = 0, arrow_schema(request.columns)
        for messages in self._messages(request.interval):
            for part in _parts(messages) if self.declared else [messages]:
                fields = self._fields(part, {column.name for column in request.columns})
                arrays = [self._array(part, column, fields.get(column.name)) for column in request.columns]
                sink.write(pa.record_batch(arrays, schema=schema))
            rows += len(messages)
        return rows

    def is_empty(self, request: ReadRequest) -> bool:
        return not any(self._messages(request.interval))

    def _messages(self, interval: Interval | None) -> Iterator[list[Message]]:
        """In the order of their offsets within each partition."""
        from confluent_kafka import TopicPartition

        lower, upper = self._bounds(interval)
        ends = {one: end for one, end in upper.offsets if end > (lower.of(one) or 0)}
        if not ends:
            return
        consumer = self.cluster.consumer()
        try:
            with self.cluster.translated():
                consumer.assign([TopicPartition(self.topic.name, one, lower.of(one) or 0) for one in ends])
                yield from self._consumed(consumer, ends)
        finally:
            consumer.close()

    def _consumed(self, consumer: Any, ends: dict[int, int]) -> Iterator[list[Message]]:
        """``ends`` loses each partition that has been read up to its end. Between the last message and the end there
        may be none: markers of transactions, messages that were aborted, compacted or have expired."""
        from confluent_kafka import KafkaError, TopicPartition

        heard = time.monotonic()
        while ends:
            if is_interrupted():
                raise Interrupted("the run was asked to stop while a topic was read", hint="Run again to finish it")
            open, taken = set(ends), []
            for message in consumer.consume(_BATCH_MESSAGES, timeout=0.5):
                partition, error = message.partition(), message.error()
                if error is None:
                    heard = time.monotonic()
                    if message.offset() < ends.get(partition, 0):
                        taken.append(message)
                    if message.offset() + 1 >= ends.get(partition, 0):
                        ends.pop(partition, None)
                elif error.code() == KafkaError._PARTITION_EOF:
                    heard = time.monotonic()
                    self._require_end(partition, message.offset(), ends.pop(partition, 0))
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    raise self._expired(partition)
                elif error.fatal() or not isinstance(self.cluster.error_of(error), TransientError):
                    raise self.cluster.error_of(error)  # the client tries again by itself whatever is transient
            if done := open - set(ends):  # it would fetch what is produced meanwhile
                consumer.pause([TopicPartition(self.topic.name, partition) for partition in done])
            if ends and time.monotonic() - heard > _SILENT_SECONDS:
                raise TransientError(
                    f"topic {self.topic.name} sent nothing for {_SILENT_SECONDS:.0f} s, though it is not at its end",
                    hint="Check whether its partitions have leaders, and whether a transaction hangs",
                )
            if taken:
                yield taken

    def _bounds(self, interval: Interval | None) -> tuple[OffsetsPosition, OffsetsPosition]:
        if interval is not None and isinstance(interval.upper, OffsetsPosition):
            lower = interval.lower
            return lower if isinstance(lower, OffsetsPosition) else OffsetsPosition(()), interval.upper
        oldest, ends = (self.cluster.offsets([self.topic], at)[self.topic.name] for at in ("earliest", "latest"))
        return oldest, ends

    def _fields(self, messages: Sequence[Message], names: Collection[str]) -> Mapping[str, pa.Array]:
        """Of messages that are JSON objects, those with these names, each in its declared type."""
        columns = [column for column in self.declared if column.name in names]
        if not self.declared:
            return {}
        try:
            arrays = decoded([message.value() for message in messages], columns)
        except Misfit as misfit:
            raise self._no_json(messages[misfit.row], misfit.column) from None
        return {column.name: array for column, array in zip(columns, arrays, strict=True)}

    def _array(self, messages: Sequence[Message], column: Column, field: pa.Array | None) -> pa.Array:
        import pyarrow as pa

        if field is not None:
            return field.cast(arrow_type(column.type))
        of = _VALUES.get(column.name)
        if of is None:
            raise TableError(f"a message has no {column.name}", hint="Plan again")
        values = list(map(of, messages))
        native = pa.array(values, _native()[column.name])
        try:
            return native.cast(arrow_type(column.type))
        except pa.ArrowInvalid as error:
            raise self._misfit(messages, values, column) from error

    def _misfit(self, messages: Sequence[Message], values: Sequence[Any], column: Column) -> TableError:
        """Names the first message whose value does not convert, and never shows the value."""
        import pyarrow as pa

        for message, value in zip(messages, values, strict=True):
            try:
                pa.array([value], _native()[column.name]).cast(arrow_type(column.type))
            except pa.ArrowInvalid:
                what = f"the {column.name.removeprefix('_')} of {self._place(message)} is not UTF-8"
                raw = "Read the messages as bytes with `format: {type: raw}`"
                without = "Leave it out with `columns: {exclude: [_key]}`, or read the messages as bytes"
                return TableError(what, hint=without if column.name == "_key" else raw)
        return TableError(f"{column.name} does not convert to {column.type}", hint="Remove it from `columns.types`")

    def _no_json(self, message: Message, column: Column | None) -> TableError:
        if column is None:
            hint = "Read the messages with `format: {type: text}`, which takes everything"
            return TableError(f"{self._place(message)} is not one JSON object", hint=hint)
        return TableError(
            f"{column.name} of {self._place(message)} is not exactly {types.short(column.type)}",
            hint=f"Declare another type in `format: {{schema: {{{column.name}: string}}}}`, or leave the field out",
        )

    def _place(self, message: Message) -> str:
        return f"message {message.offset()} of partition {message.partition()} of topic {self.topic.name}"

    def _require_end(self, partition: int, end: int, planned: int) -> None:
        if end < planned:
            raise TableError(
                f"partition {partition} of topic {self.topic.name} ends at {end}, and had {planned} messages when the"
                " plan was made",
                hint="Plan again: the topic was truncated, or a broker has lost messages",
            )

    def _expired(self, partition: int) -> TableError:
        return TableError(
            f"messages of partition {partition} of topic {self.topic.name} expired while they were read",
            hint="Plan again: it shows how many are gone",
        )


def _parts(messages: list[Message]) -> Iterator[list[Message]]:
    """In order, each of limited size."""
    part: list[Message] = []
    size = 0
    for message in messages:
        part.append(message)
        size += len(message.value() or b"")
        if size >= BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _timestamp(message: Message) -> int | None:
    """Milliseconds; None where the topic keeps no times."""
    kind, at = message.timestamp()
    return at if kind else None


@cache
def _native() -> Mapping[str, pa.DataType]:
    import pyarrow as pa

    at = pa.timestamp("ms", tz="UTC")
    return {
        "value": pa.binary(),
        "_key": pa.binary(),
        "_partition": pa.int32(),
        "_offset": pa.int64(),
        "_timestamp": at,
    }
