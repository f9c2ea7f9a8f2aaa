"""Values that say which schema they were written with, or that all have one: decoded with that schema, and then brought
to the columns of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.kafka.encodings.decoder import read_each, unfit_row
from flowctl.connectors.kafka.encodings.fitting import constant, fitted
from flowctl.connectors.kafka.registry import Registry
from flowctl.connectors.kafka.schema_ids import HEADER_BYTES, NamedValue, SchemaId, schema_id
from flowctl.connectors.kafka.unfit import (
    NO_SCHEMA_ID,
    Refused,
    Unfit,
    Unreadable,
    corrupt,
    other_schema,
    unknown_schema,
)
from flowctl.connectors.written_fields import Field, WriterSchema, array_of, lacking
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa


class Writers(Protocol):
    def of(self, value: bytes) -> tuple[SchemaId, WriterSchema, bytes]:
        """The id of the schema that ``value`` was written with (0: it has none), the schema, and what was written.
        Raises :class:`~flowctl.connectors.kafka.unfit.Unreadable`."""


@dataclass(frozen=True)
class OneWriter:
    """All values have the same schema, and no header."""

    schema: WriterSchema

    def of(self, value: bytes) -> tuple[SchemaId, WriterSchema, bytes]:
        return 0, self.schema, value


@dataclass(frozen=True)
class RegisteredWriters:
    """Values begin with the id of their schema, or a header has it. ``made`` makes a schema of what is registered.
    ``subject``, ``version`` and ``reader`` are those that the table was planned by. ``followed`` are the fields of a
    schema that the table has as columns: a later version with more of them needs another plan."""

    registry: Registry
    made: Callable[[SchemaId], WriterSchema | None]
    subject: str
    version: int
    reader: WriterSchema
    followed: Callable[[WriterSchema], Mapping[str, Field]]
    _known: dict[SchemaId, WriterSchema | Unfit] = field(default_factory=dict, compare=False, repr=False)

    def of(self, value: bytes) -> tuple[SchemaId, WriterSchema, bytes]:
        if isinstance(value, NamedValue):
            return value.schema, self._writer(value.schema), value
        id = schema_id(value)
        if id is None:
            raise Unreadable(NO_SCHEMA_ID)
        return id, self._writer(id), value[HEADER_BYTES:]

    def _writer(self, id: SchemaId) -> WriterSchema:
        known = self._known.get(id)
        if known is None:
            known = self._known[id] = self._asked(id)
        if isinstance(known, Unfit):
            raise Unreadable(known)
        return known

    def _asked(self, id: SchemaId) -> WriterSchema | Unfit:
        found = self.made(id)
        if found is None:
            return unknown_schema(id)
        if found.name != self.reader.name:
            return other_schema(id, found.name, self.reader.name)
        if new := lacking(self.followed(self.reader), self.followed(found)):
            version = self.registry.version_of(id, self.subject)
            if version is not None and version > self.version:
                raise StoppedByPolicy(
                    f"version {version} of {self.subject} was registered after the plan was made, and adds"
                    f" {', '.join(new)}",
                    hint="Plan again: the new plan has these columns",
                )
        return found


#: A value as it was parsed, with its schema; None for a tombstone.
Parsed = tuple[SchemaId, WriterSchema, Mapping[str, Any]]


@dataclass(frozen=True)
class WrittenDecoder:
    """``reader`` is the schema that the table was planned by: what a writer's schema lacks has its defaults."""

    writers: Writers
    reader: WriterSchema
    _kept: list[tuple[bytes | None, Parsed | None]] = field(default_factory=list, compare=False, repr=False)

    def decoded(self, values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
        import pyarrow as pa

        groups: dict[SchemaId, tuple[WriterSchema, list[int], list[Mapping[str, Any]]]] = {}
        for at, parsed in enumerate(self._parsed(values)):
            if parsed is not None:
                id, writer, row = parsed
                _, numbers, rows = groups.setdefault(id, (writer, [], []))
                numbers.append(at)
                rows.append(row)
        found = [(numbers, self._columns(writer, numbers, rows, columns)) for writer, numbers, rows in groups.values()]
        if len(found) == 1 and len(found[0][0]) == len(values):
            return found[0][1]
        places: list[int | None] = [None] * len(values)
        for place, at in enumerate(at for numbers, _ in found for at in numbers):
            places[at] = place
        order = pa.array(places, pa.int64())
        nothing = [pa.nulls(0, arrow_type(column.type)) for column in columns]
        parts = [arrays for _, arrays in found] or [nothing]
        return [pa.concat_arrays(list(of_column)).take(order) for of_column in zip(*parts, strict=True)]

    def unfit(
        self, value: bytes | None, columns: Sequence[Column], envelope: str = "", key: Sequence[str] = ()
    ) -> Unfit | None:
        if value is None:
            return None
        try:
            _, _, row = _parsed(*self.writers.of(value))
        except Unreadable as error:
            return error.why
        return unfit_row(row, columns, envelope, key)

    def _parsed(self, values: Sequence[bytes | None]) -> list[Parsed | None]:
        """After some values were refused, the others are usually asked for again: what was parsed of them is kept."""
        kept = [*self._kept]
        self._kept.clear()
        if len(kept) == len(values) and all(map(is_, values, (value for value, _ in kept))):
            return [parsed for _, parsed in kept]
        made, refused = read_each(values, lambda value: _parsed(*self.writers.of(value)))
        if refused:
            rest = (value for at, value in enumerate(values) if at not in refused)
            self._kept.extend(zip(rest, made, strict=True))
            raise Refused(refused)
        return made

    def _columns(
        self, writer: WriterSchema, numbers: Sequence[int], rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]
    ) -> list[pa.Array]:
        try:
            return [self._column(writer, rows, one) for one in columns]
        except Refused as error:
            raise Refused({numbers[at]: why for at, why in error.whys.items()}) from error

    def _column(self, writer: WriterSchema, rows: Sequence[Mapping[str, Any]], column: Column) -> pa.Array:
        reader = self.reader.fields.get(column.name)
        written = writer.fields.get(column.name)
        if written is None:
            return constant(reader, column.type, len(rows))
        values = array_of([row[column.name] for row in rows], written)
        return fitted(values, written, column.type, reader.fields if reader else {})


def _parsed(id: SchemaId, writer: WriterSchema, data: bytes) -> Parsed:
    try:
        return id, writer, writer.parsed(data)
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable(corrupt(id)) from error
