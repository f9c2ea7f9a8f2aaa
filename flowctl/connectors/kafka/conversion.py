"""Messages as rows: all of a batch at once, or those that fit and, apart, those that do not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.kafka.encodings.decoder import Decoder
from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.envelopes import Rows, operations_of, rows_of
from flowctl.connectors.kafka.messages import PARTS, Message, Role, named_value, native_types, parts
from flowctl.connectors.kafka.unfit import (
    NO_KEY,
    NO_TIME,
    NOT_JSON,
    Unfit,
    Unreadable,
    not_change,
    not_utf8,
    wrong_type,
)
from flowctl.connectors.letters import ERROR_COLUMNS, LETTER_COLUMNS, MESSAGE_COLUMNS, landed
from flowctl.connectors.source import DELETED_COLUMN
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa


#: Column of messages in an envelope: what they say of the row.
OPERATION = "_op"
#: Bytes of messages that are decoded at once.
BATCH_BYTES = 16 << 20
#: Messages among which those that do not fit are looked for; and of these, how many are found by the parser's own word:
#: each takes as long as looking at 150 others. Measured with one in 10 to one in 5,000.
_SIFTED, _FEW = 1_000, 1


@dataclass(frozen=True)
class Payload:
    """What messages are, beside the message itself. ``declared`` are the columns of values that have fields, or of the
    rows in their ``envelope``; empty for other messages. ``of_key`` are those of keys that have fields. ``values`` and
    ``keys`` decode the two. ``key``: what is read are changes of rows with this key; the names of its columns.
    ``is_ordered``: the topic has one partition, so all messages are in order. ``registered`` are those whose schemas
    are in a registry: a header may tell which one."""

    declared: Sequence[Column] = ()
    of_key: Sequence[Column] = ()
    envelope: str = ""
    key: Sequence[str] = ()
    is_ordered: bool = True
    values: Decoder = field(default_factory=JsonDecoder, compare=False)
    keys: Decoder = field(default_factory=lambda: JsonDecoder("key.schema"), compare=False)
    registered: Collection[Role] = ()

    def values_of(self, messages: Sequence[Message]) -> list[bytes | None]:
        """For :attr:`values`."""
        if "value" not in self.registered:
            return [message.value() for message in messages]
        return [named_value(message.value(), message.headers(), "value") for message in messages]

    def keys_of(self, messages: Sequence[Message]) -> list[bytes | None]:
        """For :attr:`keys`."""
        if "key" not in self.registered:
            return [message.key() for message in messages]
        return [named_value(message.key(), message.headers(), "key") for message in messages]


@dataclass(frozen=True)
class Conversion:
    """``columns`` are those of the rows."""

    topic: str
    payload: Payload
    columns: Sequence[Column]

    def deliver(self, messages: Sequence[Message], sink: SegmentSink, rejected: SegmentSink | None) -> int:
        """Writes the rows of ``messages`` to ``sink``, and those that do not fit to ``rejected``; returns the number of
        rows. Without ``rejected``, raises ``TableError`` for the first that does not fit, and never shows a value."""
        return sum(self._deliver(part, sink, rejected) for part in parts(messages, BATCH_BYTES))

    def _deliver(self, messages: Sequence[Message], sink: SegmentSink, rejected: SegmentSink | None) -> int:
        import pyarrow as pa

        try:
            rows = self._rows(messages)
        except (pa.ArrowInvalid, Unreadable):
            parts = (messages[at : at + _SIFTED] for at in range(0, len(messages), _SIFTED))
            return sum(self._deliver_part(part, sink, rejected) for part in parts)
        sink.write(rows)
        return int(rows.num_rows)

    def _deliver_part(self, messages: Sequence[Message], sink: SegmentSink, rejected: SegmentSink | None) -> int:
        """As :meth:`_deliver`. Where the parser tells which message it has refused, those before and after it are
        decoded together; otherwise, or if it refuses many, each is looked at."""
        import pyarrow as pa

        count = refused = 0
        while messages:
            try:
                rows = self._rows(messages)
            except (pa.ArrowInvalid, Unreadable) as error:
                at = self.payload.values.refused(error)
                why = self._why_at_once(messages[at]) if at is not None and at < len(messages) else None
                if at is None or why is None or rejected is None or refused == _FEW:
                    return count + self._deliver_fitting(messages, sink, rejected)
                refused += 1
                count += self._deliver_part(messages[:at], sink, rejected)
                rejected.write(_letters([(messages[at], why)]))
                messages = messages[at + 1 :]
            else:
                sink.write(rows)
                return count + int(rows.num_rows)
        return count

    def _deliver_fitting(self, messages: Sequence[Message], sink: SegmentSink, rejected: SegmentSink | None) -> int:
        import pyarrow as pa

        unfit = {at: why for at, message in enumerate(messages) if (why := self._why_at_once(message)) is not None}
        fitting = []
        for start, found in _sifted([at for at in range(len(messages)) if at not in unfit], messages, self._rows):
            if found is None:
                unfit[start] = self._why(messages[start])
            else:
                fitting.append(found)
        letters = [(messages[at], unfit[at]) for at in sorted(unfit)]
        if letters and rejected is None:
            message, why = letters[0]
            place = f"message {message.offset()} of partition {message.partition()} of topic {self.topic}"
            raise TableError(f"{place}: {why.reason}", hint=why.hint)
        if letters and rejected is not None:
            rejected.write(_letters(letters))
        if fitting:
            sink.write(pa.concat_batches(fitting))
        return sum(rows.num_rows for rows in fitting)

    def _rows(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Raises ``pyarrow.ArrowInvalid`` or ``Unreadable`` if a message does not fit."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found = self._found(messages, self._declared)
        known = dict(zip([column.name for column in self._declared], found.fields, strict=True))
        if self.payload.of_key:
            keys = self.payload.keys_of(messages)
            if None in keys:
                raise pa.ArrowInvalid("a message has no key")
            fields = self.payload.keys.decoded(keys, self._of_key)
            known |= dict(zip([column.name for column in self._of_key], fields, strict=True))
        if any(known[name].null_count for name in self.payload.key if name in known):
            raise pa.ArrowInvalid("a row has no key")
        known |= {OPERATION: found.operations, DELETED_COLUMN: pc.equal(found.operations, "D")}
        arrays = []
        for column in self.columns:
            if column.name in known:
                arrays.append(known[column.name].cast(arrow_type(column.type)))
                continue
            of_messages = _array(messages, column)
            arrays.append(of_messages if found.numbers is None else of_messages.take(found.numbers))
        return pa.record_batch(arrays, schema=arrow_schema(self.columns))

    def _found(self, messages: Sequence[Message], columns: Sequence[Column]) -> Rows:
        """The rows of these messages, with the fields of ``columns``."""
        values = self.payload.values_of(messages)
        if self.payload.declared:
            decode = self.payload.values.decoded
            found = rows_of(values, columns, decode, self.payload.envelope, self.payload.key)
            if found.moves and not self.payload.is_ordered:
                raise TableError(
                    f"topic {self.topic} has several partitions, and a message changes the key of a row: whether other "
                    "messages about that row come before or after it is not known",
                    hint="Let Maxwell partition by table (`producer_partition_by: table`), and read the new topic",
                )
            return found
        return Rows((), operations_of(values))

    @cached_property
    def _declared(self) -> Sequence[Column]:
        return self._read(self.payload.declared)

    @cached_property
    def _of_key(self) -> Sequence[Column]:
        return self._read(self.payload.of_key)

    def _read(self, columns: Sequence[Column]) -> list[Column]:
        """Those that are read; and the key's, which an envelope needs."""
        wanted = {*self.payload.key, *(column.name for column in self.columns)}
        return [column for column in columns if column.name in wanted]

    def _why_at_once(self, message: Message) -> Unfit | None:
        """None: it may fit."""
        payload = self.payload
        if payload.of_key:
            [key] = payload.keys_of([message])
            if found := NO_KEY if key is None else payload.keys.unfit(key, payload.of_key):
                return found
        for column, value in ((one, PARTS[one.name](message)) for one in self._texts):
            if value is not None and not _is_utf8(value):
                return not_utf8(column)
        if not payload.declared:
            return None
        [value] = payload.values_of([message])
        return payload.values.unfit(value, payload.declared, payload.envelope, payload.key)

    def _why(self, message: Message) -> Unfit:
        import pyarrow as pa

        for column in self.columns:
            if column.name not in PARTS:
                continue
            try:
                _array([message], column)
            except pa.ArrowInvalid:
                return NO_TIME if column.type == types.TIMESTAMP else not_utf8(column)
        for column in self.payload.of_key:
            try:
                self.payload.keys.decoded(self.payload.keys_of([message]), [column])
            except (pa.ArrowInvalid, Unreadable):
                return wrong_type(column, "key.schema")
        for columns in ([], *([column] for column in self.payload.declared)):
            try:
                self._found([message], columns)
            except (pa.ArrowInvalid, Unreadable):
                if columns:
                    return wrong_type(columns[0])
                return not_change(self.payload.envelope) if self.payload.envelope else NOT_JSON
        return NO_KEY if self.payload.key else NOT_JSON

    @cached_property
    def _texts(self) -> Sequence[Column]:
        """The columns that are a message's key or value as text."""
        return [column for column in self.columns if column.name in ("_key", "value") and column.type == types.STRING]


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _array(messages: Sequence[Message], column: Column) -> pa.Array:
    import pyarrow as pa

    of = PARTS.get(column.name)
    if of is None:
        raise TableError(f"a message has no {column.name}", hint="Plan again")
    return pa.array(list(map(of, messages)), native_types()[column.name]).cast(arrow_type(column.type))


def _letters(unfit: Sequence[tuple[Message, Unfit]]) -> pa.RecordBatch:
    import pyarrow as pa

    messages = [message for message, _ in unfit]
    arrays = [_array(messages, column) for column in landed(MESSAGE_COLUMNS)]
    arrays += [pa.array([getattr(why, column.name[1:]) for _, why in unfit], pa.string()) for column in ERROR_COLUMNS]
    return pa.record_batch(arrays, schema=arrow_schema(landed(LETTER_COLUMNS)))


def _sifted(
    numbers: Sequence[int], messages: Sequence[Message], convert: Callable[[Sequence[Message]], pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """In order: the rows of as many messages as ``convert`` accepts together, after the number of the first; or None
    after that of one that it does not accept."""
    import pyarrow as pa

    if not numbers:
        return
    try:
        rows = convert([messages[at] for at in numbers])
    except (pa.ArrowInvalid, Unreadable):
        rows = None
    if rows is not None or len(numbers) == 1:
        yield numbers[0], rows
        return
    middle = len(numbers) // 2
    yield from _sifted(numbers[:middle], messages, convert)
    yield from _sifted(numbers[middle:], messages, convert)
