"""Messages as rows: all of a batch at once, or those that fit and, apart, those that do not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.kafka.decoding import BATCH_BYTES, decoded, first_misfit, is_object
from flowctl.connectors.kafka.messages import PARTS, Message, native_types, parts
from flowctl.connectors.letters import ERROR_COLUMNS, LETTER_COLUMNS, MESSAGE_COLUMNS, landed
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa


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
            return self._deliver_fitting(messages, sink, rejected)
        return len(messages)

    def _deliver_fitting(self, messages: Sequence[Message], sink: SegmentSink, rejected: SegmentSink | None) -> int:
        import pyarrow as pa

        fitting, unfit = [], []
        for found in _sifted(messages, self._rows, self._is_suspect):
            if isinstance(found, pa.RecordBatch):
                fitting.append(found)
                continue
            why = self._why(found)
            if rejected is None:
                place = f"message {found.offset()} of partition {found.partition()} of topic {self.topic}"
                raise TableError(f"{place}: {why.reason}", hint=why.hint)
            unfit.append((found, why))
        if fitting:
            sink.write(pa.concat_batches(fitting))
        if unfit and rejected is not None:
            rejected.write(_letters(unfit))
        return sum(rows.num_rows for rows in fitting)

    def _is_suspect(self, message: Message) -> bool:
        return bool(self.declared) and not is_object(message.value())

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

    def _why(self, message: Message) -> Unfit:
        import pyarrow as pa

        for column in self.columns:
            if column.name not in PARTS:
                continue
            try:
                _array([message], column, None)
            except pa.ArrowInvalid:
                raw = "Read the messages as bytes with `format: {type: raw}`"
                without = "Leave it out with `columns: {exclude: [_key]}`, or read the messages as bytes"
                what = f"the {column.name.removeprefix('_')} is not UTF-8"
                return Unfit("not_utf8", what, without if column.name == "_key" else raw)
        misfit = first_misfit(message.value(), self.declared)
        if misfit is None:
            hint = "Keep such messages apart with `dead_letters: {}`, or read all as `format: {type: text}`"
            return Unfit("not_json", "not one JSON object", hint)
        return Unfit(
            "wrong_type",
            f"{misfit.name} is not exactly {types.short(misfit.type)}",
            f"Declare another type in `format: {{schema: {{{misfit.name}: string}}}}`, leave the field out, or keep "
            "such messages apart with `dead_letters: {}`",
        )


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


Convert = Callable[[Sequence[Message]], "pa.RecordBatch"]


def _sifted(
    messages: Sequence[Message], convert: Convert, is_suspect: Callable[[Message], bool]
) -> Iterator[pa.RecordBatch | Message]:
    """In order: the rows of the messages that ``convert`` accepts, and each that it does not. Suspects are tried one by
    one, the others together, as long as they fit."""
    start = 0
    for at, message in enumerate(messages):
        if is_suspect(message):
            yield from _halved(messages[start:at], convert)
            yield from _halved([message], convert)
            start = at + 1
    yield from _halved(messages[start:], convert)


def _halved(messages: Sequence[Message], convert: Convert) -> Iterator[pa.RecordBatch | Message]:
    import pyarrow as pa

    if not messages:
        return
    try:
        rows = convert(messages)
    except pa.ArrowInvalid:
        rows = None
    if rows is not None:
        yield rows
    elif len(messages) == 1:
        yield messages[0]
    else:
        middle = len(messages) // 2
        yield from _halved(messages[:middle], convert)
        yield from _halved(messages[middle:], convert)
