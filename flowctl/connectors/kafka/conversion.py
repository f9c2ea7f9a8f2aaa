"""Messages as rows: all of a batch at once, or those that fit and, apart, those that do not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.kafka.decoding import BATCH_BYTES, decoded, first_misfit
from flowctl.connectors.kafka.messages import PARTS, Message, native_types, parts
from flowctl.connectors.kafka.misfits import misfit
from flowctl.connectors.letters import ERROR_COLUMNS, LETTER_COLUMNS, MESSAGE_COLUMNS, landed
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa


#: Messages among which those that do not fit are looked for, which takes five times as long as decoding.
_SIFTED = 2_000


@dataclass(frozen=True)
class Unfit:
    """Why a message is not as declared, and what a user may do if it is to be read."""

    error: Literal["not_json", "wrong_type", "not_utf8"]
    reason: str
    hint: str


@dataclass(frozen=True)
class Conversion:
    """``declared`` are the columns of messages that are JSON objects; empty for others. ``columns`` are those of the
    rows."""

    topic: str
    declared: Sequence[Column]
    columns: Sequence[Column]

    def deliver(self, messages: Sequence[Message], sink: SegmentSink, rejected: SegmentSink | None) -> int:
        """Writes the rows of ``messages`` to ``sink``, and those that do not fit to ``rejected``; returns the number of
        rows. Without ``rejected``, raises ``TableError`` for the first that does not fit, and never shows a value."""
        return sum(self._deliver(part, sink, rejected) for part in parts(messages, BATCH_BYTES))

    def _deliver(self, messages: Sequence[Message], sink: SegmentSink, rejected: SegmentSink | None) -> int:
        import pyarrow as pa

        try:
            sink.write(self._rows(messages))
        except pa.ArrowInvalid:
            if len(messages) <= _SIFTED:
                return self._deliver_fitting(messages, sink, rejected)
            parts = (messages[at : at + _SIFTED] for at in range(0, len(messages), _SIFTED))
            return sum(self._deliver(part, sink, rejected) for part in parts)
        return len(messages)

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
        return len(messages) - len(letters)

    def _rows(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Raises ``pyarrow.ArrowInvalid`` if a message does not fit."""
        import pyarrow as pa

        fields = self._fields(messages, {column.name for column in self.columns})
        arrays = [_array(messages, column, fields.get(column.name)) for column in self.columns]
        return pa.record_batch(arrays, schema=arrow_schema(self.columns))

    def _fields(self, messages: Sequence[Message], names: Collection[str]) -> Mapping[str, pa.Array]:
        """Of messages that are JSON objects, those with these names, each in its declared type."""
        if not self.declared:
            return {}
        columns = [column for column in self.declared if column.name in names]
        arrays = decoded([message.value() for message in messages], columns)
        return {column.name: array for column, array in zip(columns, arrays, strict=True)}

    def _why_at_once(self, message: Message) -> Unfit | None:
        """None: it may fit."""
        match misfit(message.value(), self.declared) if self.declared else None:
            case "not_json":
                return _NOT_JSON
            case Column() as column:
                return _wrong_type(column)
            case _:
                return None

    def _why(self, message: Message) -> Unfit:
        import pyarrow as pa

        for column in self.columns:
            if column.name not in PARTS:
                continue
            try:
                _array([message], column, None)
            except pa.ArrowInvalid:
                return _not_utf8(column)
        found = first_misfit(message.value(), self.declared)
        return _wrong_type(found) if found else _NOT_JSON


_APART = "keep such messages apart with `dead_letters: {}`"
_NOT_JSON = Unfit("not_json", "not one JSON object", f"Read all as `format: {{type: text}}`, or {_APART}")


def _not_utf8(column: Column) -> Unfit:
    way = "Read the messages as bytes with `format: {type: raw}`"
    if column.name == "_key":
        way = "Leave it out with `columns: {exclude: [_key]}`, read the messages as bytes"
    return Unfit("not_utf8", f"the {column.name.removeprefix('_')} is not UTF-8", f"{way}, or {_APART}")


def _wrong_type(column: Column) -> Unfit:
    way = f"Declare another type in `format: {{schema: {{{column.name}: string}}}}`, leave the field out"
    return Unfit("wrong_type", f"{column.name} is not exactly {types.short(column.type)}", f"{way}, or {_APART}")


def _array(messages: Sequence[Message], column: Column, field: pa.Array | None) -> pa.Array:
    import pyarrow as pa

    if field is not None:
        return field.cast(arrow_type(column.type))
    of = PARTS.get(column.name)
    if of is None:
        raise TableError(f"a message has no {column.name}", hint="Plan again")
    return pa.array(list(map(of, messages)), native_types()[column.name]).cast(arrow_type(column.type))


def _letters(unfit: Sequence[tuple[Message, Unfit]]) -> pa.RecordBatch:
    import pyarrow as pa

    messages = [message for message, _ in unfit]
    arrays = [_array(messages, column, None) for column in landed(MESSAGE_COLUMNS)]
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
    except pa.ArrowInvalid:
        rows = None
    if rows is not None or len(numbers) == 1:
        yield numbers[0], rows
        return
    middle = len(numbers) // 2
    yield from _sifted(numbers[:middle], messages, convert)
    yield from _sifted(numbers[middle:], messages, convert)
