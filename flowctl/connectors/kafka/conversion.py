"""Messages as rows: all of a batch at once, or those that fit and, apart, those that do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.kafka.encodings.decoder import Decoder
from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.envelopes import TRUNCATE, Rows, operations_of, rows_of
from flowctl.connectors.kafka.messages import PARTS, Message, keys_of, named_values, native_types, parts, values_of
from flowctl.connectors.kafka.schema_ids import Role
from flowctl.connectors.kafka.unfit import (
    NO_KEY,
    NO_TIME,
    NOT_JSON,
    Refused,
    Unfit,
    not_change,
    not_utf8,
    wrong_type,
)
from flowctl.connectors.letters import ERROR_COLUMNS, LETTER_COLUMNS, MESSAGE_COLUMNS, landed
from flowctl.connectors.source import DELETED_COLUMN, SOURCE_ORDER_COLUMN, TIME_COLUMN, TRUNCATED_COLUMN
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa


#: Column of messages in an envelope: what they say of the row.
OPERATION = "_op"
#: Bytes of messages that are decoded at once.
BATCH_BYTES = 16 << 20
#: Messages among which those that do not fit are looked for.
_SIFTED = 1_000
#: By the numbers of messages, why they do not fit.
Whys = dict[int, Unfit]


@dataclass(frozen=True)
class Payload:
    """What messages are, beside the message itself. ``declared`` are the columns of values that have fields, or of the
    rows in their ``envelope``; empty for other messages. ``of_key`` are those of keys that have fields. ``values`` and
    ``keys`` decode the two. ``key``: what is read are changes of rows with this key; the names of its columns.
    ``is_ordered``: the topic has one partition, so all messages are in order. ``registered`` are those whose schemas
    are in a registry: a header may tell which one. ``has_source_order``: each must tell its order
    in the source, whatever its partition. ``needs_times``: each change must have a time. ``on_truncate`` as in the
    spec; empty: no message tells of one."""

    declared: Sequence[Column] = ()
    of_key: Sequence[Column] = ()
    envelope: str = ""
    key: Sequence[str] = ()
    is_ordered: bool = True
    has_source_order: bool = False
    needs_times: bool = False
    on_truncate: str = ""
    values: Decoder = field(default_factory=JsonDecoder, compare=False)
    keys: Decoder = field(default_factory=JsonDecoder, compare=False)
    registered: Collection[Role] = ()

    def values_of(self, messages: Sequence[Message]) -> list[bytes | None]:
        """For :attr:`values`."""
        return named_values(messages, "value") if "value" in self.registered else values_of(messages)

    def keys_of(self, messages: Sequence[Message]) -> list[bytes | None]:
        """For :attr:`keys`."""
        return named_values(messages, "key") if "key" in self.registered else keys_of(messages)

    @property
    def applies_truncates(self) -> bool:
        """Whether a truncate deletes rows; in mode append it is a row."""
        return bool(self.key) and self.on_truncate == "apply"


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

        fitting, unfit = self._sorted_out(messages)
        letters = [(messages[at], unfit[at]) for at in sorted(unfit)]
        if letters and rejected is None:
            message, why = letters[0]
            raise TableError(f"{self._place(message)}: {why.reason}", hint=why.hint)
        if letters and rejected is not None:
            rejected.write(_letters(letters))
        if fitting:
            sink.write(pa.concat_batches(fitting))
        return sum(rows.num_rows for rows in fitting)

    def _sorted_out(self, messages: Sequence[Message], *, seen: bool = False) -> tuple[list[pa.RecordBatch], Whys]:
        """The rows of the messages that fit, in order, and why the others do not. ``seen``: each was looked at."""
        import pyarrow as pa

        if not messages:
            return [], {}
        try:
            return [self._rows(messages)], {}
        except Refused as error:
            unfit = {at: why or self._why(messages[at]) for at, why in error.whys.items()}
            return self._without(messages, unfit, seen)
        except pa.ArrowInvalid:  # it does not tell which message it is
            if len(messages) == 1:
                return [], {0: self._why(messages[0])}
        if len(messages) <= _SIFTED and not seen:
            found = {at: self._why_at_once(message) for at, message in enumerate(messages)}
            return self._without(messages, {at: why for at, why in found.items() if why is not None}, seen=True)
        middle = len(messages) // 2
        fitting, unfit = self._sorted_out(messages[:middle], seen=seen)
        second, more = self._sorted_out(messages[middle:], seen=seen)
        return fitting + second, unfit | {middle + at: why for at, why in more.items()}

    def _without(self, messages: Sequence[Message], unfit: Whys, seen: bool) -> tuple[list[pa.RecordBatch], Whys]:
        rest = [at for at in range(len(messages)) if at not in unfit]
        fitting, more = self._sorted_out([messages[at] for at in rest], seen=seen)
        return fitting, unfit | {rest[at]: why for at, why in more.items()}

    def _rows(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Raises ``pyarrow.ArrowInvalid`` or ``Refused`` if a message does not fit."""
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
        is_truncate = pc.equal(found.operations, TRUNCATE)
        without_key = [known[name] for name in self.payload.key if name in known and known[name].null_count]
        if any(values.filter(pc.invert(is_truncate)).null_count for values in without_key):
            raise pa.ArrowInvalid("a row has no key")
        known |= {OPERATION: found.operations, DELETED_COLUMN: pc.equal(found.operations, "D")}
        known |= {TRUNCATED_COLUMN: is_truncate}
        known |= {SOURCE_ORDER_COLUMN: found.orders} if found.orders is not None else {}
        arrays = []
        for column in self.columns:
            if column.name in known:
                arrays.append(known[column.name].cast(arrow_type(column.type)))
                continue
            of_messages = self._part(messages, column)
            arrays.append(of_messages if found.numbers is None else of_messages.take(found.numbers))
        return pa.record_batch(arrays, schema=arrow_schema(self.columns))

    def _part(self, messages: Sequence[Message], column: Column) -> pa.Array:
        """One of :attr:`_parts`. Raises as :meth:`_rows`."""
        import pyarrow.compute as pc

        made = _array(messages, column)
        if column.name == TIME_COLUMN and self.payload.needs_times and made.null_count:
            raise Refused(dict.fromkeys(pc.indices_nonzero(made.is_null()).to_pylist(), NO_TIME))
        return made

    def _found(self, messages: Sequence[Message], columns: Sequence[Column]) -> Rows:
        """The rows of these messages, with the fields of ``columns``."""
        values = self.payload.values_of(messages)
        if self.payload.declared:
            payload = self.payload
            found = rows_of(
                values,
                columns,
                payload.values.decoded,
                payload.envelope,
                payload.key,
                ordered=payload.has_source_order,
                truncates=not (payload.key and payload.on_truncate == "ignore"),
            )
            self._refuse_truncates(messages, found)
            if found.moves and not (payload.is_ordered or payload.has_source_order):
                raise TableError(
                    f"topic {self.topic} has several partitions, and a message changes the key of a row: whether other "
                    "messages about that row come before or after it is not known",
                    hint="Let Maxwell partition by table (`producer_partition_by: table`), and read the new topic",
                )
            return found
        return Rows((), operations_of(values))

    def _refuse_truncates(self, messages: Sequence[Message], found: Rows) -> None:
        """Never as a dead letter: the rows that the truncate has removed would stay."""
        import pyarrow.compute as pc

        payload = self.payload
        is_unordered = payload.applies_truncates and not (payload.is_ordered or payload.has_source_order)
        if not (is_unordered or payload.on_truncate == "fail"):
            return
        at = pc.index(found.operations, TRUNCATE).as_py()
        if at < 0:
            return
        message = messages[at if found.numbers is None else found.numbers[at].as_py()]
        what = f"{self._place(message)}: its source table was truncated"
        if payload.on_truncate == "fail":
            way = "Set `format.on_truncate: apply` to remove its rows too, or `ignore` to keep them"
            raise StoppedByPolicy(f"{what} (on_truncate: fail)", hint=way)
        raise StoppedByPolicy(
            f"{what}, and which messages of the other partitions come before that is not known",
            hint="Set `format.source_order: true`, or `format.on_truncate: ignore`; or read a topic with one partition",
        )

    def _place(self, message: Message) -> str:
        return f"message {message.offset()} of partition {message.partition()} of topic {self.topic}"

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
            if found := NO_KEY if key is None else payload.keys.unfit(key, self._of_key):
                return found
        for column, value in ((one, PARTS[one.name]([message])[0]) for one in self._texts):
            if value is not None and not _is_utf8(value):
                return not_utf8(column)
        if not payload.declared:
            return None
        [value] = payload.values_of([message])
        return payload.values.unfit(value, self._declared, payload.envelope, payload.key)

    def _why(self, message: Message) -> Unfit:
        """Of a message that does not fit."""
        import pyarrow as pa

        if found := self._why_at_once(message):
            return found
        for column in self._parts:
            try:
                self._part([message], column)
            except (pa.ArrowInvalid, Refused):
                return NO_TIME if column.type == types.TIMESTAMP else not_utf8(column)
        for column in self._of_key:
            try:
                self.payload.keys.decoded(self.payload.keys_of([message]), [column])
            except (pa.ArrowInvalid, Refused):
                return wrong_type(column, "key.schema")
        for columns in ([], *([column] for column in self._declared)):
            try:
                self._found([message], columns)
            except (pa.ArrowInvalid, Refused) as error:
                if isinstance(error, Refused) and (why := error.whys.get(0)):
                    return why
                if columns:
                    return wrong_type(columns[0])
                return not_change(self.payload.envelope) if self.payload.envelope else NOT_JSON
        return NO_KEY if self.payload.key else NOT_JSON

    @cached_property
    def _texts(self) -> Sequence[Column]:
        """The columns that are a message's key or value as text."""
        return [column for column in self._parts if column.name in ("_key", "value") and column.type == types.STRING]

    @cached_property
    def _parts(self) -> Sequence[Column]:
        """The columns that are parts of messages. A field may have the name of one."""
        fields = {column.name for column in (*self.payload.declared, *self.payload.of_key)}
        return [column for column in self.columns if column.name in PARTS and column.name not in fields]


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
    return pa.array(of(messages), native_types()[column.name]).cast(arrow_type(column.type))


def _letters(unfit: Sequence[tuple[Message, Unfit]]) -> pa.RecordBatch:
    import pyarrow as pa

    messages = [message for message, _ in unfit]
    arrays = [_array(messages, column) for column in landed(MESSAGE_COLUMNS)]
    arrays += [pa.array([getattr(why, column.name[1:]) for _, why in unfit], pa.string()) for column in ERROR_COLUMNS]
    return pa.record_batch(arrays, schema=arrow_schema(landed(LETTER_COLUMNS)))
