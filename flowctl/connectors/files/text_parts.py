"""What executors run to read text files: blocks of whole rows in UTF-8, and which row of a block does not fit.

Pickled by value, as :mod:`flowctl.connectors.files.parts` is.
"""

from __future__ import annotations

import codecs
import io
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from flowctl.connectors.csv_text import Field, Misfit
from flowctl.connectors.files.compressed import open_bytes
from flowctl.connectors.files.parts import BadRow, Part, PartReader, Piece
from flowctl.connectors.refusal import PREFIX


@dataclass(frozen=True, kw_only=True)
class TextReader(PartReader):
    """Of text files in one ``encoding``, as Python names it."""

    encoding: str = "UTF-8"

    @abstractmethod
    def is_closed(self, block: bytes) -> bool:
        """Whether ``block``, which ends with a line, ends with a row, too."""

    @abstractmethod
    def records(self, block: bytes) -> list[bytes]:
        """The rows of a block, as they are written."""

    @abstractmethod
    def is_blank(self, record: bytes, fields: tuple[Field, ...]) -> bool:
        """Whether this is no row at all."""

    @property
    def begins_with_header(self) -> bool:
        return False

    @abstractmethod
    def parsed(self, block: bytes, fields: tuple[Field, ...], *, is_first: bool) -> pa.RecordBatch:
        """The rows of a block. Raises :class:`~flowctl.connectors.csv_text.Misfit` for what does not fit, and
        ``ArrowInvalid`` or ``UnicodeError`` for bytes that are not UTF-8. ``is_first``: the file begins with it."""

    def pieces(self, part: Part, fields: tuple[Field, ...]) -> Iterator[Piece]:
        lines = 0  # before the block; counted only if bad rows are kept, whose files are read from their beginning
        for offset, block in self._blocks(part):
            try:
                yield Piece(offset, self._parsed(block, fields, is_first=offset == 0))
            except Misfit as misfit:
                found = self._separated(block, fields, offset, lines)
                if not self.rejects:
                    bad = min(found.bad.items(), default=None)
                    where, message = "", misfit.message
                    if bad is not None:
                        where, message = f" line {self._lines_before(part, offset) + bad[1].line}", bad[1].reason
                    raise RuntimeError(f"{PREFIX}{part.path}{where}{message}") from None  # Arrow's has the value
                yield found
            lines += line_breaks(block) if self.rejects else 0

    def _parsed(self, block: bytes, fields: tuple[Field, ...], *, is_first: bool) -> pa.RecordBatch:
        try:
            return self.parsed(block, fields, is_first=is_first)
        except (pa.ArrowInvalid, UnicodeError):
            raise Misfit(NOT_TEXT.format(self.encoding)) from None

    def _separated(self, block: bytes, fields: tuple[Field, ...], offset: int, lines: int) -> Piece:
        """The rows of a block that has some that do not fit. ``lines`` are before it."""
        texts = self.records(block)
        places = list(accumulate(map(len, texts), initial=offset))
        numbers = list(accumulate(map(line_breaks, texts), initial=lines + 1))
        good: list[int] = []
        fitting: list[pa.RecordBatch] = []
        refused: dict[int, str] = {}

        def look(chosen: list[int]) -> None:
            while chosen:
                is_first = offset == 0 and chosen[0] == 0
                try:
                    rows = self._parsed(b"".join(texts[at] for at in chosen), fields, is_first=is_first)
                except Misfit as misfit:
                    apart = self._named(misfit, texts, chosen, fields, is_first=is_first)
                    if not apart and len(chosen) > 1:
                        look(chosen[: len(chosen) // 2])
                        look(chosen[len(chosen) // 2 :])
                        return
                    refused.update(apart or {chosen[0]: misfit.message})
                    chosen = [at for at in chosen if at not in refused]
                else:
                    among = self._rows_among(texts, chosen, fields, is_first=is_first)
                    if len(among) != rows.num_rows:
                        raise ValueError("a block has other rows than were parsed")
                    good.extend(among)
                    fitting.append(rows)
                    return

        look(list(range(len(texts))))
        order = sorted((*good, *refused))
        place = {at: row for row, at in enumerate(good)}
        bad = {row: at for row, at in enumerate(order) if at in refused}
        return Piece(
            offset,
            self._in_order(fitting, [place.get(at) for at in order], fields),
            [places[at] for at in order],
            {row: BadRow(refused[at], numbers[at], self._shown(texts[at])) for row, at in bad.items()},
        )

    def _in_order(
        self, fitting: Sequence[pa.RecordBatch], order: Sequence[int | None], fields: tuple[Field, ...]
    ) -> pa.RecordBatch:
        """The rows by their numbers, and one of nulls for None."""
        whole = pa.Table.from_batches([*fitting, _nulls(fields)])
        nothing = whole.num_rows - 1
        chosen = whole.take(pa.array([nothing if at is None else at for at in order], pa.int64()))
        return pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in chosen.columns], names=[field.name for field in fields]
        )

    def _named(
        self,
        misfit: Misfit,
        texts: Sequence[bytes],
        chosen: Sequence[int],
        fields: tuple[Field, ...],
        *,
        is_first: bool,
    ) -> dict[int, str]:
        """The messages of those of the ``chosen`` rows that ``misfit`` names; empty if it names none."""
        if misfit.rows:
            rows = self._rows_among(texts, chosen, fields, is_first=is_first)
            return {rows[row]: message for row, message in misfit.rows.items()}
        if not misfit.texts:
            return {}
        written = {text.strip("\r\n"): message for text, message in misfit.texts.items()}
        found = ((at, written.get(texts[at].decode().strip("\r\n"))) for at in chosen)
        return {at: message for at, message in found if message is not None}

    def _rows_among(
        self, texts: Sequence[bytes], chosen: Sequence[int], fields: tuple[Field, ...], *, is_first: bool
    ) -> list[int]:
        """Those of ``chosen`` that are rows: neither blank nor the header."""
        mark = codecs.BOM_UTF8 if is_first else b""
        rows = [at for at in chosen if not self.is_blank(texts[at].removeprefix(b"" if at else mark), fields)]
        return rows[1:] if is_first and self.begins_with_header else rows

    def _lines_before(self, part: Part, offset: int) -> int:
        lines, last = 0, b""
        with self._opened(part.path) as stream:
            left = offset
            while left > 0 and (piece := stream.read(min(left, _BLOCK_BYTES))):
                piece = piece[:left]
                lines += line_breaks(piece) - (last == b"\r" and piece.startswith(b"\n"))
                left, last = left - len(piece), piece[-1:]
        return lines

    def _blocks(self, part: Part) -> Iterator[tuple[int, bytes]]:
        """Blocks of whole rows in UTF-8, a few MiB each, with the byte at which each block begins."""
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
                while not self.is_closed(block) and (rest := stream.read(more)):
                    block += rest + _rest_of_line(stream, rest)
                    more *= 2
                yield at, block
                at += len(block)

    def _opened(self, path: str) -> Any:
        """The file's text in UTF-8; only files that need no conversion can be read from the middle."""
        import fsspec

        system, base = fsspec.core.url_to_fs(self.url, use_listings_cache=False, **self.options)
        whole = f"{str(base).rstrip('/')}/{path}"
        raw = open_bytes(system, whole, _BLOCK_BYTES)
        return raw if is_utf8(self.encoding) else _Recoded(raw, self.encoding)

    def _shown(self, row: bytes) -> str:
        """The text of a row, without its line ending; bytes that are no text as ``\\xff``, NUL as ``\\x00``."""
        if is_utf8(self.encoding):
            text = row.decode("utf-8", "backslashreplace")
        else:
            found = row.decode("utf-8", "surrogatepass")
            text = re.sub("[\udc00-\udcff]", lambda sign: f"\\x{ord(sign[0]) - 0xDC00:02x}", found)
            text = text.encode("utf-8", "backslashreplace").decode()
        for ending in ("\n", "\r"):
            text = text.removesuffix(ending)
        return text.replace("\0", "\\x00")


class _Recoded(io.RawIOBase):
    """Converts text in another encoding to UTF-8. Bytes that are no text in it become what is no text in UTF-8, so that
    they are found in their row."""

    def __init__(self, raw: Any, encoding: str) -> None:
        self._text = io.TextIOWrapper(raw, encoding=encoding, errors=lenient(), newline="")

    def read(self, size: int = -1) -> bytes:
        return self._text.read(size).encode("utf-8", "surrogatepass")

    def readline(self, size: int | None = -1) -> bytes:
        return self._text.readline().encode("utf-8", "surrogatepass")

    def close(self) -> None:
        self._text.close()
        super().close()


def _nulls(fields: tuple[Field, ...]) -> pa.RecordBatch:
    """One row."""
    return pa.RecordBatch.from_arrays([pa.nulls(1, one.type) for one in fields], names=[one.name for one in fields])


def lenient() -> str:
    """The name of an error handler for decoding: bytes that are no text become lone surrogates, as with Python's own
    `surrogateescape`, which does not take those below 128."""

    def escaped(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeDecodeError):
            raise error
        return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end

    codecs.register_error(_LENIENT, escaped)
    return _LENIENT


def line_breaks(text: bytes) -> int:
    """The number of line endings: line feeds, carriage returns, or both."""
    count = text.count(b"\n")
    return count + text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else count


def lines_of(block: bytes) -> Sequence[bytes]:
    """With their endings."""
    return re.findall(rb"[^\r\n]*+(?:\r\n|\r|\n)|[^\r\n]++\Z", block)


def is_utf8(encoding: str) -> bool:
    return encoding.upper().replace("_", "-") in ("UTF-8", "UTF8", "UTF-8-SIG")


def _rest_of_line(stream: Any, block: bytes) -> bytes:
    line: bytes = b"" if block.endswith(b"\n") else stream.readline()
    return line


_BLOCK_BYTES = 4 << 20
_LENIENT = "flowctl_lenient"
#: The encoding is filled in.
NOT_TEXT = " is not {} text | Fix it, or set its encoding with `format.encoding`"
