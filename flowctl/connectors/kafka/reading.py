"""Messages as Arrow batches: from the lower offset of each partition to the upper, and only what is committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.client import Cluster, Topic
from flowctl.connectors.kafka.conversion import Conversion, Payload
from flowctl.connectors.kafka.messages import letters as letters_of
from flowctl.connectors.source import Capture, ReadRequest
from flowctl.connectors.sql.waiting import is_interrupted
from flowctl.errors import Interrupted, TableError, TransientError
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


@dataclass(frozen=True)
class TopicCapture(Capture):
    cluster: Cluster
    topic: Topic
    payload: Payload
    own_columns: tuple[Column, ...] = ()

    def read(self, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None = None) -> int:
        conversion = Conversion(self.topic.name, self.payload, request.columns)
        return sum(conversion.deliver(messages, sink, rejected) for messages in self._messages(request.interval))

    def read_letters(
        self, letters: pa.RecordBatch, request: ReadRequest, sink: SegmentSink, rejected: SegmentSink | None
    ) -> int:
        conversion = Conversion(self.topic.name, self.payload, request.columns)
        return conversion.deliver(letters_of(letters), sink, rejected)

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
            consumed = consumer.consume(_BATCH_MESSAGES, timeout=0.5)
            if _are_inside(consumed, ends):
                taken, consumed, heard = consumed, [], time.monotonic()
            for message in consumed:
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
                else:
                    self.cluster.require_passing(error)
            if done := open - set(ends):  # it would fetch what is produced meanwhile
                consumer.pause([TopicPartition(self.topic.name, partition) for partition in done])
            if ends and time.monotonic() - heard > _SILENT_SECONDS:
                raise TransientError(
                    f"topic {self.topic.name} sent nothing for {_SILENT_SECONDS:.0f} s, though it is not at its end",
                    hint="Check whether its partitions have leaders, and whether a transaction hangs",
                )
            if taken:
                self.cluster.reported.clear()  # whatever it was, it is over
                yield taken
            else:
                self.cluster.require_connection()

    def _bounds(self, interval: Interval | None) -> tuple[OffsetsPosition, OffsetsPosition]:
        if interval is not None and isinstance(interval.upper, OffsetsPosition):
            lower = interval.lower
            return lower if isinstance(lower, OffsetsPosition) else OffsetsPosition(()), interval.upper
        oldest, ends = (self.cluster.offsets([self.topic], at)[self.topic.name] for at in ("earliest", "latest"))
        return oldest, ends

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


def _are_inside(messages: Sequence[Message], ends: Mapping[int, int]) -> bool:
    """Whether these are messages only, some, and of no partition the last one. Most batches are: a look at each message
    takes as long as decoding it."""
    if not messages or any(map(_ERROR, messages)):
        return False
    last = dict(zip(map(_PARTITION, messages), messages, strict=True))
    return all((message.offset() or 0) + 1 < ends.get(partition, 0) for partition, message in last.items())


_ERROR, _PARTITION = methodcaller("error"), methodcaller("partition")
