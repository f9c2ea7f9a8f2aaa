"""What executors run to read CSV: blocks of whole lines, which :mod:`flowctl.connectors.csv_text` parses. A value that
is not exactly of its type is refused with its file and line.

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

from flowctl.connectors.csv_text import CsvText, Misfit
from flowctl.connectors.refusal import PREFIX


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
    text: CsvText
    has_header: bool
    encoding: str
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
        own = replace(self, text=replace(self.text, fields=tuple(self.text.fields[at] for at in part.header)))
        for rows in own._own_batches(part):
            yield self._arranged(rows)

    def _arranged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        found = dict(zip(rows.schema.names, rows.columns, strict=True))
        kinds = {column.name: column.type for column in self.text.fields}
        arrays = [found[name] if name in found else pa.nulls(rows.num_rows, kind) for name, kind in kinds.items()]
        names = [*kinds, *([_PLACE] if self.has_places else [])]
        return pa.RecordBatch.from_arrays([*arrays, *([found[_PLACE]] if self.has_places else [])], names=names)

    def _own_batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        is_first = part.start == 0
        for offset, block in self._blocks(part):
            try:
                rows = self._parsed(block, is_first)
            except Misfit as misfit:
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
                while not self.text.is_closed(block) and (rest := stream.read(more)):
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

    def _parsed(self, block: bytes, is_first: bool) -> pa.RecordBatch:
        try:
            return self.text.parsed(block, is_first=is_first, has_header=self.has_header)
        except pa.ArrowInvalid:
            raise Misfit(_NOT_TEXT.format(self.encoding)) from None

    def _where(self, part: Part, offset: int, block: bytes, misfit: Misfit, is_first: bool) -> str:
        """The file, and the line if it can be counted."""
        line = None if self.text.multiline else self._line(block, misfit, is_first and self.has_header)
        if line is None:
            return part.path
        with self._opened(part.path) as stream:
            left = offset
            while left > 0 and (piece := stream.read(min(left, _BLOCK_BYTES))):
                line += piece[:left].count(b"\n")
                left -= len(piece)
        return f"{part.path} line {line}"

    def _line(self, block: bytes, misfit: Misfit, after_header: bool) -> int | None:
        if b"\n" not in block:
            return None  # one line, or other line endings
        lines = block.split(b"\n")
        if misfit.row is None:
            for number, line in enumerate(lines, 1):
                try:
                    fits = self.text.texts(line).fits
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


def is_utf8(encoding: str) -> bool:
    return encoding.upper().replace("_", "-") in ("UTF-8", "UTF8")


def is_compressed(path: str) -> bool:
    """As fsspec infers it from the name."""
    from fsspec.utils import infer_compression

    return infer_compression(path) is not None


_BLOCK_BYTES = 4 << 20
_FILE_BITS = 40  # up to eight million files of 1 TiB each
_PLACE = "_flowctl_place"
_NOT_WHOLE = (
    " is not compressed as its name indicates, or is incomplete | Replace it, or leave it out of the pattern in `from`"
)
_NOT_TEXT = " is not {} text | Fix it, or set its encoding with `format.encoding`"
