"""Captured rows of one table as typed changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.changes import decoded
from flowctl.changes.decoded import Changes
from flowctl.changes.segment import Op
from flowctl.changes.shape import Shape
from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.mysql.changes.rows import RowReader
from flowctl.connectors.mysql.changes.vectors import whole_column
from flowctl.connectors.mysql.changes.wire import Value, Wire, converter, why_unreadable
from flowctl.connectors.mysql.columns import converted
from flowctl.connectors.stream import Decoder
from flowctl.errors import TableError
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

#: The values of a column as they lie in the log.
_Raw = Sequence[bytes | None]
_ZEROFILL = re.compile(r"\w+\((\d+)(?:,(\d+))?\) unsigned zerofill")


@dataclass(frozen=True)
class MysqlDecoder(Decoder):
    """Decodes rows of ``shape``, all of them whole. Columns that it does not have are null: a later shape has added
    them."""

    shape: Shape

    def decode(self, rows: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str]) -> Changes:
        import numpy as np
        import pyarrow as pa

        places = {column.name: place for column in columns if (place := self.shape.at(column.name)) is not None}
        before, after = self._images(rows, list(places.values()), [places[name] for name in key if name in places])
        made: dict[str, Any] = {
            decoded.OP: rows["op"],
            decoded.LSN: rows["lsn"],
            decoded.ORDINAL: rows["ordinal"],
            decoded.COMMITTED_AT: rows["committed_at"],
            decoded.EVENT_AT: rows["event_at"],
            decoded.XID: rows["xid"],
        }
        old: dict[str, Any] = {}
        for column in columns:
            if column.name not in places:
                made[column.name] = pa.nulls(rows.num_rows, arrow_type(column.type))
                continue
            made[column.name] = self._typed(after[places[column.name]], column)
            if column.name in key:
                old[column.name] = self._typed(before[places[column.name]], column)
        has_old = np.asarray(rows["op"]) == Op.UPDATE
        if not has_old.any():
            return Changes(pa.table(made), {})
        return Changes(pa.table(made), {}, pa.table(old), has_old)

    def _images(
        self, rows: pa.RecordBatch, wanted: Sequence[int], key: Sequence[int]
    ) -> tuple[dict[int, _Raw], dict[int, _Raw]]:
        """By column the values of ``key`` before each change, and those of ``wanted`` in the row that it is about: the
        one after it, or the one that was deleted."""
        wires = self._wires
        for place in wanted if wires else ():
            if why := why_unreadable(wires[place]):
                name = self.shape.columns[place].name
                raise TableError(
                    f"column {name} of {self.shape.object} cannot be read from the log: {why}",
                    hint=f"Leave it out with columns.exclude: [{name}], or read the table with a cursor",
                )
        reader, key_reader = RowReader(wires, wanted), RowReader(wires, key)
        no_key, nothing = [None] * len(key), [None] * len(wanted)
        before: list[_Raw] = []
        after: list[_Raw] = []
        for op, data in zip(rows["op"].to_pylist(), rows["data"].to_pylist(), strict=True):
            if not data:  # all rows are gone
                before.append(no_key)
                after.append(nothing)
                continue
            first, end = key_reader.read(data, 0)
            before.append(first)
            after.append(reader.read(data, end if op == Op.UPDATE else 0)[0])
        return _by_column(before, key), _by_column(after, wanted)

    def _typed(self, values: _Raw, wanted: Column) -> pa.Array:
        place = self.shape.at(wanted.name)
        assert place is not None
        here = self.shape.columns[place]
        if not self._wires:
            return converted(values, here, wanted)
        wire = self._wires[place]
        if (found := whole_column(values, wire, here, wanted)) is not None:
            return found
        convert = converter(wire)
        try:
            texts = [None if value is None else convert(value) for value in values]
        except UnicodeDecodeError as error:
            raise TableError(
                f"column {wanted.name} of {self.shape.object} has bytes that mean nothing in its character set",
                hint="Correct them in the source, then resnapshot the table",
            ) from error
        return converted(_filled(texts, here.native), here, wanted)

    @cached_property
    def _wires(self) -> list[Wire]:
        """Empty for a table of which there are no rows."""
        return [Wire.from_text(text) for text in self.shape.private]


def _by_column(rows: Sequence[_Raw], places: Sequence[int]) -> dict[int, _Raw]:
    columns = zip(*rows, strict=True) if rows else [()] * len(places)
    return {place: list(values) for place, values in zip(places, columns, strict=True)}


def _filled(values: Sequence[Value], native: str) -> Sequence[Value]:
    """Numbers with the zeros that a query shows for ZEROFILL."""
    found = _ZEROFILL.fullmatch(native)
    if found is None:
        return values
    width = int(found[1]) + (1 if int(found[2] or 0) else 0)
    return [value.zfill(width) if isinstance(value, str) else value for value in values]
