"""Values that are one record of CSV each, with the rules of CSV files: fields by their position.

Messages are parsed together, as lines. This is exact for those without a line break: an open quote would join two of
them, and there would be fewer rows than messages. Those that have one are parsed alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.csv_dialect import Csv
from flowctl.connectors.exact import text_shape
from flowctl.connectors.kafka.encodings.decoder import read_each
from flowctl.connectors.kafka.unfit import Refused, Unfit, Unreadable, not_csv, not_encoded, wrong_type
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from flowctl.connectors.csv_text import CsvText

_UTF8 = "utf-8"


class CsvDecoder:
    """``declared`` are all fields of a record, in order."""

    def __init__(self, declared: Sequence[Column], dialect: Csv) -> None:
        self._declared = declared
        self._dialect = dialect
        self._delimiter, self._quote = dialect.delimiter.encode(), dialect.quote.encode()
        self._not_csv, self._not_encoded = not_csv(len(declared)), not_encoded(dialect.encoding)

    def decoded(self, values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
        import pyarrow as pa

        lines = self._lines(values)
        apart = [at for at, line in lines.items() if _has_break(line)]
        if apart and not self._dialect.multiline:
            raise Refused(dict.fromkeys(apart, self._not_csv))
        alone, text = set(apart), self._text(columns)
        together = [at for at in lines if at not in alone]
        parts = [self._rows(text, group, lines, columns) for group in (together, *([at] for at in apart)) if group]
        places: list[int | None] = [None] * len(values)
        for row, at in enumerate([*together, *apart]):
            places[at] = row
        found = pa.Table.from_batches(parts, _schema(text)).take(pa.array(places, pa.int64()))
        return [found.column(column.name).combine_chunks() for column in columns]

    def unfit(
        self, value: bytes | None, columns: Sequence[Column], envelope: str = "", key: Sequence[str] = ()
    ) -> Unfit | None:
        """By the shapes of the texts, which is never stricter than what converts them."""
        if value is None:
            return None
        try:
            return self._unfit(self._line(value), columns)
        except Unreadable as error:
            return error.why

    def _unfit(self, line: bytes, columns: Sequence[Column]) -> Unfit | None:
        texts = self._texts(line)
        if texts is None:
            return self._not_csv
        wanted = {column.name for column in columns}
        for column, shape, text in zip(self._declared, self._shapes, texts, strict=True):
            is_null = text is None or text in ("", self._dialect.null_value)
            if shape is not None and column.name in wanted and not is_null and not shape.search(text or ""):
                return wrong_type(column)
        return None

    def _lines(self, values: Sequence[bytes | None]) -> dict[int, bytes]:
        """The line of each value that is none by the value's number."""
        lines, refused = read_each(values, self._line)
        if refused:
            raise Refused(refused)
        return {at: line for at, line in enumerate(lines) if line is not None}

    def _line(self, value: bytes) -> bytes:
        """In UTF-8, without the line end. Raises :class:`~..unfit.Unreadable` if it is not in the encoding."""
        try:
            text = value.decode(self._dialect.encoding)
        except UnicodeError as error:
            raise Unreadable(self._not_encoded) from error
        line = value if self._dialect.encoding.lower() == _UTF8 else text.encode()
        return line.removesuffix(b"\n").removesuffix(b"\r")

    def _rows(
        self, text: CsvText, group: Sequence[int], lines: Mapping[int, bytes], columns: Sequence[Column]
    ) -> pa.RecordBatch:
        """One row for each line of the ``group``."""
        import pyarrow as pa

        from flowctl.connectors.csv_text import Misfit

        with suppress(Misfit):
            rows = text.parsed(b"\n".join([*(lines[at] for at in group), b""]))
            if rows.num_rows == len(group):
                return rows
        whys = {at: why for at in group if (why := self._unfit(lines[at], columns))}
        raise Refused(whys) if whys else pa.ArrowInvalid("some value has the shape of its type and does not fit it")

    def _texts(self, line: bytes) -> list[str | None] | None:
        """The fields of one record; None if it is not one."""
        if _has_break(line) and not self._dialect.multiline:
            return None
        if self._quote not in line and not _has_break(line):
            texts = line.decode().split(self._dialect.delimiter)
            return list(texts) if line and len(texts) == len(self._declared) else None
        found = self._text(()).texts(line)
        if not found.fits or found.table.num_rows != 1:
            return None
        return [column[0].as_py() for column in found.table.columns]

    def _text(self, columns: Sequence[Column]) -> CsvText:
        """Converts ``columns``; the other fields are whatever they are."""
        import pyarrow as pa

        from flowctl.connectors.csv_text import CsvText, Field

        wanted = {column.name for column in columns}
        fields = [
            Field(one.name, arrow_type(one.type), _shape(one), one.name)
            if one.name in wanted
            else Field(one.name, pa.string(), "", one.name)
            for one in self._declared
        ]
        of = self._dialect
        return CsvText(tuple(fields), of.delimiter, of.quote, of.null_value, of.multiline)

    @cached_property
    def _shapes(self) -> list[re.Pattern[str] | None]:
        return [re.compile(shape, re.ASCII) if (shape := _shape(column)) else None for column in self._declared]


def _shape(column: Column) -> str:
    return "" if column.type == types.STRING else text_shape(column.type)


def _has_break(line: bytes) -> bool:
    return b"\n" in line or b"\r" in line


def _schema(text: CsvText) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(field.name, field.type) for field in text.fields])
