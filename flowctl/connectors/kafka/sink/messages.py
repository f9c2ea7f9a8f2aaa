"""Rows as messages: a key, a value, headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.connectors import json_text
from flowctl.connectors.target import OP_COLUMN
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that are serialized at once, and about how many bytes.
_ROWS, _BYTES = 20_000, 16 << 20

#: Rows of these columns as text or bytes, one for each row.
Serializer = Callable[["pa.RecordBatch", Sequence[Column]], "pa.Array"]

Headers = Sequence[tuple[str, bytes | str | None]]


@dataclass(frozen=True)
class Messages:
    """One list entry for each message. ``values`` None: a tombstone. ``partitions`` None: the client chooses them
    by the keys."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None = None
    partitions: Sequence[int] | None = None

    @property
    def tombstones(self) -> int:
        return sum(value is None for value in self.values)


@dataclass(frozen=True)
class Form:
    """How rows become messages. ``columns`` are those of a value; without ``key``, messages have no key. ``values`` and
    ``keys`` serialize the two. ``same`` are headers that all messages have. ``key_schema``: the id that keys begin with
    (None: they have no registered schema). ``partitions``: the number of partitions, the first ones, that keys are
    distributed over (None: all of them)."""

    columns: Sequence[Column]
    key: Sequence[Column] = ()
    headers: Sequence[Column] = ()
    values: Serializer = json_text.objects
    keys: Serializer = json_text.objects
    same: Headers = ()
    key_schema: int | None = None
    partitions: int | None = None

    def messages(self, rows: pa.RecordBatch) -> Iterator[Messages]:
        """In the order of the rows, which may have :data:`OP_COLUMN`: a deleted row is a tombstone."""
        per_row = max(1, rows.nbytes // max(1, rows.num_rows))
        step = max(1, min(_ROWS, _BYTES // per_row))
        for start in range(0, rows.num_rows, step):
            yield self._messages(rows.slice(start, step))

    def _messages(self, rows: pa.RecordBatch) -> Messages:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self.values(rows, self.columns).cast(pa.binary())
        if OP_COLUMN in rows.schema.names:
            nothing = pa.scalar(None, pa.binary())
            values = pc.if_else(pc.equal(rows.column(OP_COLUMN), "D"), nothing, values)
        keys = self.keys(rows, self.key).cast(pa.binary()).to_pylist() if self.key else [None] * rows.num_rows
        headers = self._headers(rows) if self.headers or self.same else None
        return Messages(keys, values.to_pylist(), headers, self._partitions(keys))

    def _partitions(self, keys: Sequence[bytes | None]) -> Sequence[int] | None:
        """Those that the client would choose if the topic had no others."""
        if self.partitions is None:
            return None
        from confluent_kafka import murmur2

        return [murmur2(key or b"", self.partitions) for key in keys]

    def _headers(self, rows: pa.RecordBatch) -> Sequence[Headers]:
        """A null has no header."""
        if not self.headers:
            return [self.same] * rows.num_rows
        names = [column.name for column in self.headers]
        found = [json_text.texts(rows.column(column.name), column).to_pylist() for column in self.headers]
        return [
            [*((name, value) for name, value in zip(names, of_row, strict=True) if value is not None), *self.same]
            for of_row in zip(*found, strict=True)
        ]
