"""What executors run to read CSV: blocks of whole lines, parsed by pyarrow as text, then converted to the declared
types by Arrow's kernels, because pyarrow's own typed parsing accepts 0x1F as a number and more digits than a decimal
can hold. A value that is not exactly of its type is refused with its file and line.

Executors have pyarrow and fsspec but perhaps no flowctl: whoever ships these functions registers this module to be
pickled by value, so it may use only these two, the standard library and constants.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from flowctl.connectors.refusal import PREFIX


@dataclass(frozen=True)
class Field:
    """One column of the result. ``shape`` is what its texts must match, ``refusal`` the message after the location of
    one that does not."""

    name: str
    type: pa.DataType
    shape: str
    refusal: str


@dataclass(frozen=True)
class Part:
    """The lines of a file that begin at bytes ``start`` to ``end``; all of its lines if ``end`` is None. ``number`` is
    the file's index in the read. ``header``: the indexes of the file's columns among the reader's fields; None if the
    file has all of them in that order."""

    path: str
    start: int
    end: int | None
    number: int = 0
    header: tuple[int, ...] | None = None


@dataclass(frozen=True)
class CsvReader:
    """The format of the files of one read, and the columns they become. ``options`` hold the store's credentials. With
    ``has_places``, each row ends with its position among all rows."""

    url: str
    options: Mapping[str, Any] = field(repr=False)
    fields: tuple[Field, ...]
    has_header: bool
    delimiter: str
    quote: str
    null_value: str
    encoding: str
    multiline: bool
    has_places: bool = False

    def reader_of(self, tasks: Sequence[Sequence[Part]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """The function for `mapInArrow` over the indexes of ``tasks``; misfits are ``RuntimeError``s."""

        def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for part in tasks[number]:
                        try:
                            yield from self.batches(part)
                        except (EOFError, OSError, zlib.error) as error:
                            if getattr(error, "errno", None) is not None or not is_compressed(part.path):
                                raise
                            raise RuntimeError(f"{PREFIX}{part.path}{_NOT_WHOLE}") from None

        return read

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The rows of a part with all fields; those that its file does not have are null."""
        if part.header is None:
            yield from self._own_batches(part)
            return
        own = replace(self, fields=tuple(self.fields[at] for at in part.header))
        for rows in own._own_batches(part):
            yield self._arranged(rows)

    def _arranged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        found = dict(zip(rows.schema.names, rows.columns, strict=True))
        kinds = {column.name: column.type for column in self.fields}
        arrays = [found[name] if name in found else pa.nulls(rows.num_rows, kind) for name, kind in kinds.items()]
        names = [*kinds, *([_PLACE] if self.has_places else [])]
        return pa.RecordBatch.from_arrays([*arrays, *([found[_PLACE]] if self.has_places else [])], names=names)

    def _own_batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        is_first = part.start == 0
        for offset, block in self._blocks(part):
            try:
                rows = self._parsed(block, is_first)
            except _Misfit as misfit:
                where = self._where(part, offset, block, misfit, is_first)
                raise RuntimeError(f"{PREFIX}{where}{misfit.message}") from None  # Arrow's own message has the value
            yield _placed(rows, part.number, offset) if self.has_places else rows
            is_first = False

    def _blocks(self, part: Part) -> Iterator[tuple[int, bytes]]:
        """Blocks of whole lines in UTF-8, a few MiB each, with the byte at which each block begins. With ``multiline``
        a line ends only where no quote is open."""
        with self._opened(part.path) as stream:
            if part.start:
                stream.seek(part.start - 1)
                stream.readline()
            at = part.start if part.end is None else stream.tell()
            end = part.end
            while end is None or at < end:
                block = stream.read(_BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - at))
                if not block:
                    return
                block += _rest_of_line(stream, block)
                more = _BLOCK_BYTES // 16 + 1
                while not self._is_closed(block) and (rest := stream.read(more)):
                    block += rest + _rest_of_line(stream, rest)
                    more *= 2
                yield at, block
                at += len(block)

    def _opened(self, path: str) -> Any:
        """The file's text in UTF-8; only files that need no conversion can be read from the middle."""
        import fsspec

        system, base = fsspec.core.url_to_fs(self.url, use_listings_cache=False, **self.options)
        whole = f"{str(base).rstrip('/')}/{path}"
        if is_utf8(self.encoding) and not is_compressed(path):
            return system.open(whole, "rb")
        raw = io.BufferedReader(system.open(whole, "rb", compression="infer"))
        return raw if is_utf8(self.encoding) else _Recoded(raw, self.encoding, path)

    def _is_closed(self, block: bytes) -> bool:
        if not self.multiline or self.quote.encode() not in block:
            return True
        try:
            return self._table(block).is_closed
        except pa.ArrowInvalid:
            return True  # the error is reported when the block is parsed

    def _table(self, block: bytes, is_first: bool = False) -> _Texts:
        """All values as text. ``ArrowInvalid`` for bytes that are not UTF-8."""
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
                skip_rows_after_names=int(is_first and self.has_header),
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
        return _Texts(table.slice(0, last) if is_closed else table, is_closed, is_even)

    def _parsed(self, block: bytes, is_first: bool) -> pa.RecordBatch:
        try:
            found = self._table(block, is_first)
        except pa.ArrowInvalid:
            raise _Misfit(_NOT_TEXT.format(self.encoding)) from None
        if not found.fits:
            raise _Misfit(_UNEVEN)
        texts = [column.combine_chunks() for column in found.table.columns]
        if not self.multiline and self.quote.encode() in block:
            for values in texts:
                _require(pc.invert(pc.match_substring_regex(values, r"[\r\n]")), _UNEVEN)
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

    def _where(self, part: Part, offset: int, block: bytes, misfit: _Misfit, is_first: bool) -> str:
        """The file, and the line if it can be counted."""
        line = None if self.multiline else self._line(block, misfit, is_first and self.has_header)
        if line is None:
            return part.path
        with self._opened(part.path) as stream:
            left = offset
            while left > 0 and (piece := stream.read(min(left, _BLOCK_BYTES))):
                line += piece[:left].count(b"\n")
                left -= len(piece)
        return f"{part.path} line {line}"

    def _line(self, block: bytes, misfit: _Misfit, after_header: bool) -> int | None:
        if b"\n" not in block:
            return None  # one line, or other line endings
        lines = block.split(b"\n")
        if misfit.row is None:
            for number, line in enumerate(lines, 1):
                try:
                    fits = self._table(line).fits
                except pa.ArrowInvalid:
                    fits = False
                if not fits:
                    return number
            return None
        filled = (number for number, line in enumerate(lines, 1) if line.strip())
        for row, number in enumerate(filled, -1 if after_header else 0):
            if row == misfit.row:
                return number
        return None


@dataclass(frozen=True)
class _Texts:
    """``is_closed``: the block ends where a row does. A marker line at its end shows this: an open quote swallows it.
    ``is_even``: each row has as many values as there are columns; rows that do not are not in ``table``."""

    table: pa.Table
    is_closed: bool
    is_even: bool

    @property
    def fits(self) -> bool:
        return self.is_closed and self.is_even


class _Misfit(Exception):
    """``message`` follows the location of the first row that does not fit; ``row`` is its number in the block, if
    known."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.message, self.row = message, row


class _Recoded(io.RawIOBase):
    """Converts text in another encoding to UTF-8."""

    def __init__(self, raw: Any, encoding: str, path: str) -> None:
        self._text = io.TextIOWrapper(raw, encoding=encoding, newline="")
        self._encoding, self._path = encoding, path

    def read(self, size: int = -1) -> bytes:
        return self._encoded(lambda: self._text.read(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._encoded(self._text.readline)

    def close(self) -> None:
        self._text.close()
        super().close()

    def _encoded(self, read: Callable[[], str]) -> bytes:
        try:
            return read().encode()
        except UnicodeError:
            raise RuntimeError(f"{PREFIX}{self._path}{_NOT_TEXT.format(self._encoding)}") from None


def _placed(rows: pa.RecordBatch, file: int, offset: int) -> pa.RecordBatch:
    """Adds each row's position. A row has at least one byte, so positions never overlap those of a later block."""
    first = (file << _FILE_BITS) + offset
    places = pc.add(pa.array(range(rows.num_rows), pa.int64()), first)
    return pa.RecordBatch.from_arrays([*rows.columns, places], names=[*rows.schema.names, _PLACE])


def _rest_of_line(stream: Any, block: bytes) -> bytes:
    line: bytes = b"" if block.endswith(b"\n") else stream.readline()
    return line


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
            raise _Misfit(column.refusal, row) from None


def _require(fits: pa.Array, message: str) -> None:
    """Raises a misfit at the first False; null fits."""
    row = pc.index(fits, False).as_py()
    if row >= 0:
        raise _Misfit(message, row)


def _without(texts: pa.Array, text: str) -> pa.Array:
    found = pc.equal(texts, text)
    return pc.if_else(found, pa.scalar(None, pa.string()), texts) if pc.any(found).as_py() else texts


def is_utf8(encoding: str) -> bool:
    return encoding.upper().replace("_", "-") in ("UTF-8", "UTF8")


def is_compressed(path: str) -> bool:
    """As fsspec infers it from the name."""
    from fsspec.utils import infer_compression

    return infer_compression(path) is not None


_BLOCK_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"
_FILE_BITS = 40  # up to eight million files of 1 TiB each
_PLACE = "_flowctl_place"
_MARK = "\x01flowctl\x01"
_TRUE = ("true", "t", "yes", "y", "1")
_ZONE = r"[ T].*(Z|[+-]\d{2}(:?\d{2})?)$"
_UNEVEN = (
    " holds a row that does not fit its columns | "
    "Fix the row, or correct delimiter, quote, escape, header or multiline in `format`"
)
_NOT_WHOLE = (
    " is not compressed as its name indicates, or is incomplete | Replace it, or leave it out of the pattern in `from`"
)
_NOT_TEXT = " is not {} text | Fix it, or set its encoding with `format.encoding`"
