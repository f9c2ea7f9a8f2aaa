"""CSV as Arrow: text parsed by pyarrow, then converted to the declared types by Arrow's kernels, because pyarrow's own
typed parsing accepts 0x1F as a number and more digits than a decimal can hold. A value that is not exactly of its type
is refused.

Executors run this without flowctl: whoever ships it registers this module and those that it imports to be pickled by
value, so it may use only pyarrow, the standard library and constants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from flowctl.connectors.arrow import CALENDAR_MICROSECONDS
from flowctl.connectors.decimal_text import decimals


@dataclass(frozen=True)
class Field:
    """One column of the result. ``shape`` is what its texts must match, ``refusal`` the message after the location of
    one that does not. ``parts``: of a list, its items; of a struct, its fields."""

    name: str
    type: pa.DataType
    shape: str
    refusal: str
    parts: tuple[Field, ...] = ()


@dataclass(frozen=True)
class CsvText:
    """The dialect of lines of CSV, and the columns they become. Values may have line breaks only with
    ``multiline``."""

    fields: tuple[Field, ...]
    delimiter: str
    quote: str
    null_value: str
    multiline: bool

    def is_closed(self, block: bytes) -> bool:
        """Whether ``block``, which ends with a line, ends with a row, too: no quote is open."""
        if not self.multiline or self.quote.encode() not in block:
            return True
        try:
            return self.texts(block).is_closed
        except pa.ArrowInvalid:  # bytes that are no text have a row, too
            return self.texts(block.translate(_WITHOUT_TEXT)).is_closed

    def texts(self, block: bytes, *, is_first: bool = False, has_header: bool = False) -> Texts:
        """All values as text. ``is_first``: a byte order mark at the start is none of them, nor is a header.
        ``ArrowInvalid`` for bytes that are not UTF-8."""
        names = [str(at) for at in range(len(self.fields))]
        mark = self.delimiter.join(_MARK for _ in names).encode()
        start = _BOM if block.startswith(_BOM) and not is_first else b""  # pyarrow strips one
        line_end = b"" if block.endswith((b"\n", b"\r")) else b"\n"
        whole = b"".join((start, block, line_end, mark, b"\n"))
        uneven: list[tuple[str, int]] = []

        def skip(row: Any) -> str:
            if row.text.strip() or self.delimiter in row.text:  # else a blank line: spaces that separate nothing
                uneven.append((row.text, row.actual_columns))
            return "skip"

        table = csv.read_csv(
            pa.py_buffer(whole),
            csv.ReadOptions(
                column_names=names,
                skip_rows_after_names=int(is_first and has_header),
                use_threads=False,
                block_size=len(whole) + 1,
            ),
            csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote,
                newlines_in_values=True,
                invalid_row_handler=skip,
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        last = table.num_rows - 1
        is_closed = last >= 0 and table.column(0)[last].as_py() == _MARK
        return Texts(table.slice(0, last) if is_closed else table, is_closed, uneven)

    def parsed(self, block: bytes, *, is_first: bool = False, has_header: bool = False) -> pa.RecordBatch:
        """The rows of ``block``. Raises :class:`Misfit` for what does not fit, and ``ArrowInvalid`` for bytes that are
        not UTF-8."""
        found = self.texts(block, is_first=is_first, has_header=has_header)
        if not found.is_closed:
            raise Misfit(UNEVEN.format("a quote is not closed"))
        if found.uneven:
            wanted = f"values, not {len(self.fields)}"
            texts = {text: UNEVEN.format(f"it has {count} {wanted}") for text, count in found.uneven}
            raise Misfit(next(iter(texts.values())), texts=texts)
        columns = [column.combine_chunks() for column in found.table.columns]
        if not self.multiline and self.quote.encode() in block:
            for values in columns:
                if _may_have_breaks(values):
                    _require(pc.invert(pc.match_substring_regex(values, r"[\r\n]")), _BROKEN)
        arrays = [self._typed(values, column) for values, column in zip(columns, self.fields, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.fields])

    def _typed(self, texts: pa.Array, column: Field) -> pa.Array:
        """``null_value`` is null with and without quotes; an empty quoted value is null unless the column is text."""
        if self.null_value:
            texts = _without(texts, self.null_value)
        return texts if pa.types.is_string(column.type) else converted(_without(texts, ""), column)

    def records(self, block: bytes) -> list[bytes]:
        """The rows of ``block``, as they are written. Where a quote is open to its end, that is one line, or with
        ``multiline`` all of the rest."""
        record, found, at = _record(self.delimiter, self.quote), [], 0
        while at < len(block):
            mark = len(_BOM) if at == 0 and block.startswith(_BOM) else 0
            row = record.match(block, at + mark)
            end = len(block) if row is None else row.end()
            if (row is None or row.lastindex) and not self.multiline:
                line = _LINE.match(block, at)
                end = end if line is None else line.end()
            found.append(block[at:end])
            at = end
        return found


@dataclass(frozen=True)
class Texts:
    """``is_closed``: the block ends where a row does. A marker line at its end shows this: an open quote swallows it.
    ``uneven`` are the rows that have more or fewer values than there are columns, with their number; such rows are not
    in ``table``."""

    table: pa.Table
    is_closed: bool
    uneven: list[tuple[str, int]]

    @property
    def fits(self) -> bool:
        return self.is_closed and not self.uneven


class Misfit(Exception):
    """``message`` follows the location of a row that does not fit. ``rows`` has the messages by the numbers of all rows
    that do not, if these are known; ``texts`` by what is written there."""

    def __init__(
        self, message: str, rows: Mapping[int, str] | None = None, texts: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.rows, self.texts = message, rows or {}, texts or {}


def converted(texts: pa.Array, column: Field) -> pa.Array:
    """Texts as the column's type. Raises :class:`Misfit` for the first that is not exactly of it."""
    if pa.types.is_string(column.type):
        return texts
    _require(pc.match_substring_regex(texts, column.shape), column.refusal)
    trimmed = pc.ascii_trim_whitespace(texts)
    try:
        return _converted(trimmed, column)
    except pa.ArrowInvalid:
        rows = _misfits(trimmed, column, 0)
        raise Misfit(column.refusal, dict.fromkeys(rows, column.refusal)) from None


def _misfits(texts: pa.Array, column: Field, first: int) -> list[int]:
    """The numbers, from ``first``, of texts that have the shape of the type and do not fit into it."""
    try:
        _converted(texts, column)
    except (pa.ArrowInvalid, Misfit):
        if len(texts) == 1:
            return [first]
        middle = len(texts) // 2
        second = _misfits(texts.slice(middle), column, first + middle)
        return [*_misfits(texts.slice(0, middle), column, first), *second]
    return []


def _record(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """One row with its line ending; a group matches if its last quote is not closed. As pyarrow reads it: a quote
    counts only at the beginning of a value."""
    d, q = re.escape(delimiter), re.escape(quote)
    inside = rf"[^{q}]*+(?:{q}{q}[^{q}]*+)*+"
    value = rf"(?:{q}{inside}(?:{q}[^{d}\r\n]*+|(\Z))|[^{q}{d}\r\n][^{d}\r\n]*+|)"
    return re.compile(rf"{value}(?:{d}{value})*+(?:\r\n|\r|\n|\Z)".encode())


def _converted(texts: pa.Array, column: Field) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind):
        return pc.cast(pc.ascii_ltrim(texts, "+"), kind)
    if pa.types.is_boolean(kind):
        is_true = pc.is_in(pc.ascii_lower(texts), pa.array(_TRUE))
        return pc.if_else(pc.is_valid(texts), is_true, pa.scalar(None, kind))
    if pa.types.is_timestamp(kind) and kind.tz:
        return instants(texts)
    if pa.types.is_decimal(kind):
        return decimals(texts, kind)
    values = pc.cast(texts, kind)
    if pa.types.is_floating(kind):
        is_given = pc.match_substring(texts, "Infinity")
        _require(pc.or_(pc.invert(pc.is_inf(values)), is_given), column.refusal)
    return values


def instants(texts: pa.Array) -> pa.Array:
    """Moments in UTC; without a zone, they are in UTC. Raises ``ArrowInvalid`` for one that a calendar does not have
    (its zone may take it out of the years 1 to 9999)."""
    nothing, zoned = pa.scalar(None, pa.string()), pc.match_substring_regex(texts, _ZONE)
    with_zone = pc.cast(pc.if_else(zoned, texts, nothing), pa.timestamp("us", "UTC"))
    without = pc.cast(pc.if_else(zoned, nothing, texts), pa.timestamp("us"))
    found = pc.coalesce(with_zone, pc.assume_timezone(without, "UTC"))
    bounds = pc.min_max(found.cast(pa.int64())).as_py()
    if bounds["min"] is not None and not (
        CALENDAR_MICROSECONDS[0] <= bounds["min"] and bounds["max"] <= CALENDAR_MICROSECONDS[1]
    ):
        raise pa.ArrowInvalid("a moment before the year 1 or after 9999")
    return found


def _require(fits: pa.Array, message: str) -> None:
    """Raises a misfit if any is False; null fits."""
    if pc.index(fits, False).as_py() >= 0:
        rows = pc.indices_nonzero(pc.invert(pc.fill_null(fits, True))).to_pylist()
        raise Misfit(message, dict.fromkeys(rows, message))


def _may_have_breaks(texts: pa.Array) -> bool:
    """Whether its bytes hold a line break, perhaps in a value that is not in the slice: faster than to ask of each."""
    content = texts.buffers()[2]
    found = b"" if content is None else content.to_pybytes()
    return b"\n" in found or b"\r" in found


def _without(texts: pa.Array, text: str) -> pa.Array:
    found = pc.equal(texts, text)
    return pc.if_else(found, pa.scalar(None, pa.string()), texts) if pc.any(found).as_py() else texts


_WITHOUT_TEXT = bytes(range(128)) + b"?" * 128
_BOM = b"\xef\xbb\xbf"
_MARK = "\x01flowctl\x01"
_TRUE = ("true", "t", "yes", "y", "1")
_ZONE = r"[ T].*(Z|[+-]\d{2}(:?\d{2})?)$"
_LINE = re.compile(rb"[^\r\n]*+(?:\r\n|\r|\n|\Z)")
#: The reason is filled in.
UNEVEN = (
    " holds a row that does not fit its columns: {} | "
    "Fix the row, or correct delimiter, quote, escape, header or multiline in `format`"
)
_BROKEN = UNEVEN.format("a value has a line break, for which `multiline` is not set")
