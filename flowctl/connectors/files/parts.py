"""What executors run to read files in Python: parts of files as Arrow batches with the columns of the table.

Executors have pyarrow and fsspec but perhaps no flowctl: whoever ships these functions registers their modules to be
pickled by value, so they may use only these two, the standard library and constants.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowctl.connectors.csv_text import UNEVEN, Field, converted
from flowctl.connectors.files.compressed import is_compressed
from flowctl.connectors.refusal import PREFIX


@dataclass(frozen=True)
class Part:
    """The lines of a file that begin at bytes ``start`` to ``end``; all of the file if ``end`` is None. ``number`` is
    the file's index in the read. ``header``: the indexes of the file's columns among the reader's fields; None if the
    file has all of them in that order. ``given`` are the texts of the columns that the path has."""

    path: str
    start: int = 0
    end: int | None = None
    number: int = 0
    header: tuple[int, ...] | None = None
    given: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class BadRow:
    """Why a row is rejected, the line of the file that it begins in, and its text."""

    reason: str
    line: int
    text: str


@dataclass(frozen=True)
class Piece:
    """Rows of a part with its file's own columns, and the places of all of them in the file: those after ``offset``, or
    those in ``offsets``. Rows that are ``bad``, by their number, are null."""

    offset: int
    rows: pa.RecordBatch
    offsets: Sequence[int] = ()
    bad: Mapping[int, BadRow] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PartReader(ABC):
    """Of the files of one read: ``url`` is their root, ``options`` hold the store's credentials, ``given`` are the
    columns that the paths have. Batches have the columns ``order``; with ``has_places``, then each row's position among
    all rows; with ``rejects``, then those of bad rows."""

    url: str
    options: Mapping[str, Any] = field(repr=False)
    given: tuple[Field, ...] = ()
    order: tuple[str, ...] = ()
    has_places: bool = False
    rejects: bool = False

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The columns that the files have."""

    @abstractmethod
    def pieces(self, part: Part, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """The rows of a part, whose file has ``fields``. Raises ``RuntimeError`` for one that does not fit, unless
        such rows are rejected."""

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
        """The rows of a part with all columns; those that its file does not have are null."""
        own = self.fields if part.header is None else tuple(self.fields[at] for at in part.header)
        is_whole = part.header is None and not (self.given or self.has_places or self.rejects)
        texts = [pa.array([text], pa.string()) for text in part.given]
        constants = [converted(text, of) for text, of in zip(texts, self.given, strict=True)]
        for piece in self.pieces(part, own):
            yield piece.rows if is_whole else self._arranged(part, piece, constants)

    def _arranged(self, part: Part, piece: Piece, constants: Sequence[pa.Array]) -> pa.RecordBatch:
        rows, count = piece.rows, piece.rows.num_rows
        found = dict(zip(rows.schema.names, rows.columns, strict=True))
        for column, constant in zip(self.given, constants, strict=True):
            found[column.name] = pa.repeat(constant[0], count)
        kinds = {column.name: column.type for column in (*self.fields, *self.given)}
        names = [*(self.order or kinds)]
        arrays = [found[name] if name in found else pa.nulls(count, kinds[name]) for name in names]
        if self.has_places:  # a row has at least one byte, so places never overlap those of a later piece
            offsets = piece.offsets or range(piece.offset, piece.offset + count)
            arrays.append(pc.add(pa.array(offsets, pa.int64()), part.number << _FILE_BITS))
            names.append(_PLACE)
        if self.rejects:
            about: list[tuple[Any, ...]] = [(None,) * len(_BAD_ROW_TYPES)] * count
            for at, bad in piece.bad.items():
                about[at] = (_in_words(bad.reason), part.path, bad.line, bad.text)
            for at, (name, kind) in enumerate(_BAD_ROW_TYPES.items()):
                arrays.append(pa.array([row[at] for row in about], kind) if piece.bad else pa.nulls(count, kind))
                names.append(name)
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _in_words(message: str) -> str:
    """Without its hint: nobody can follow it for a row that is kept apart."""
    return message.partition(" | ")[0].lstrip(": ").removeprefix(UNEVEN.partition(":")[0].strip()).lstrip(": ")


_FILE_BITS = 40  # up to eight million files of 1 TiB each
_PLACE = "_flowctl_place"
#: :data:`flowctl.connectors.letters.BAD_ROW_COLUMNS`.
_BAD_ROW_TYPES = {
    "_flowctl_reason": pa.string(),
    "_flowctl_source_file": pa.string(),
    "_flowctl_line": pa.int64(),
    "_flowctl_raw": pa.string(),
}
_NOT_WHOLE = (
    " is not compressed as its name indicates, or is incomplete | Replace it, or leave it out of the pattern in `from`"
)
