"""CSV as Arrow: text parsed by pyarrow, then converted to the declared types by Arrow's kernels, because pyarrow's own
typed parsing accepts 0x1F as a number and more digits than a decimal can hold. A value that is not exactly of its type
is refused.

Executors run this without flowctl: whoever ships it registers this module to be pickled by value, so it may use only
pyarrow, the standard library and constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv


@dataclass(frozen=True)
class Field:
    """One column of the result. ``shape`` is what its texts must match, ``refusal`` the message after the location of
    one that does not."""

    name: str
    type: pa.DataType
    shape: str
    refusal: str


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
        except pa.ArrowInvalid:
            return True  # the error is reported when the block is parsed

    def texts(self, block: bytes, *, is_first: bool = False, has_header: bool = False) -> Texts:
        """All values as text. ``is_first``: a byte order mark at the start is none of them, nor is a header.
        ``ArrowInvalid`` for bytes that are not UTF-8."""
        names = [str(at) for at in range(len(self.fields))]
        mark = self.delimiter.join(_MARK for _ in names).encode()
        start = _BOM if block.startswith(_BOM) and not is_first else b""  # pyarrow strips one
        line_end = b"" if block.endswith((b"\n", b"\r")) else b"\n"
        whole = b"".join((start, block, line_end, mark, b"\n"))
        is_even = True

        def skip(row: Any) -> str:
            nonlocal is_even
            is_even = is_even and not row.text.strip()
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
        return Texts(table.slice(0, last) if is_closed else table, is_closed, is_even)

    def parsed(self, block: bytes, *, is_first: bool = False, has_header: bool = False) -> pa.RecordBatch:
        """The rows of ``block``. Raises :class:`Misfit` for what does not fit, and ``ArrowInvalid`` for bytes that are
        not UTF-8."""
        found = self.texts(block, is_first=is_first, has_header=has_header)
        if not found.fits:
            raise Misfit(UNEVEN)
        texts = [column.combine_chunks() for column in found.table.columns]
        if not self.multiline and self.quote.encode() in block:
            for values in texts:
                _require(pc.invert(pc.match_substring_regex(values, r"[\r\n]")), UNEVEN)
        arrays = [self._typed(values, column) for values, column in zip(texts, self.fields, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.fields])

    def _typed(self, texts: pa.Array, column: Field) -> pa.Array:
        """``null_value`` is null with and without quotes; an empty quoted value is null unless the column is text."""
        if self.null_value:
            texts = _without(texts, self.null_value)
        if pa.types.is_string(column.type):
            return texts
        texts = _without(texts, "")
        _require(pc.match_substring_regex(texts, column.shape), column.refusal)
        trimmed = pc.ascii_trim_whitespace(texts)
        try:
            return _converted(trimmed, column)
        except pa.ArrowInvalid:
            _find(trimmed, column)
            raise


@dataclass(frozen=True)
class Texts:
    """``is_closed``: the block ends where a row does. A marker line at its end shows this: an open quote swallows it.
    ``is_even``: each row has as many values as there are columns; rows that do not are not in ``table``."""

    table: pa.Table
    is_closed: bool
    is_even: bool

    @property
    def fits(self) -> bool:
        return self.is_closed and self.is_even


class Misfit(Exception):
    """``message`` follows the location of the first row that does not fit; ``row`` is its number in the block, if
    known."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.message, self.row = message, row


def _converted(texts: pa.Array, column: Field) -> pa.Array:
    kind, nothing = column.type, pa.scalar(None, pa.string())
    if pa.types.is_integer(kind):
        return pc.cast(pc.ascii_ltrim(texts, "+"), kind)
    if pa.types.is_boolean(kind):
        is_true = pc.is_in(pc.ascii_lower(texts), pa.array(_TRUE))
        return pc.if_else(pc.is_valid(texts), is_true, pa.scalar(None, kind))
    if pa.types.is_timestamp(kind) and kind.tz:
        zoned = pc.match_substring_regex(texts, _ZONE)
        with_zone = pc.cast(pc.if_else(zoned, texts, nothing), kind)
        without = pc.cast(pc.if_else(zoned, nothing, texts), pa.timestamp("us"))
        return pc.coalesce(with_zone, pc.assume_timezone(without, "UTC"))
    values = pc.cast(texts, kind)
    if pa.types.is_floating(kind):
        is_given = pc.match_substring(texts, "Infinity")
        _require(pc.or_(pc.invert(pc.is_inf(values)), is_given), column.refusal)
    return values


def _find(texts: pa.Array, column: Field) -> None:
    """Raises the misfit for the first text that has the shape of the type but does not fit into it."""
    for row in range(len(texts)):
        try:
            _converted(texts.slice(row, 1), column)
        except pa.ArrowInvalid:
            raise Misfit(column.refusal, row) from None


def _require(fits: pa.Array, message: str) -> None:
    """Raises a misfit at the first False; null fits."""
    row = pc.index(fits, False).as_py()
    if row >= 0:
        raise Misfit(message, row)


def _without(texts: pa.Array, text: str) -> pa.Array:
    found = pc.equal(texts, text)
    return pc.if_else(found, pa.scalar(None, pa.string()), texts) if pc.any(found).as_py() else texts


_BOM = b"\xef\xbb\xbf"
_MARK = "\x01flowctl\x01"
_TRUE = ("true", "t", "yes", "y", "1")
_ZONE = r"[ T].*(Z|[+-]\d{2}(:?\d{2})?)$"
UNEVEN = (
    " holds a row that does not fit its columns | "
    "Fix the row, or correct delimiter, quote, escape, header or multiline in `format`"
)
