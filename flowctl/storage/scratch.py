"""The contract of the buffer, for those who use it: folders of Parquet segments, gone when the run ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class SegmentSink(Protocol):
    """Takes Arrow record batches into the buffer; one call per batch."""

    def write(self, batch: pa.RecordBatch) -> None: ...


class ScratchFolder(Protocol):
    """One folder of Parquet segments in the buffer. ``url`` is as Spark reads and writes it."""

    url: str

    def sink(self, schema: pa.Schema) -> AbstractContextManager[SegmentSink]:
        """Written segments appear when the context ends without an error, and not before."""

    def rows(self) -> int:
        """How many there are; reads no row."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Streams what this process or Spark's executors wrote there, in file order, all columns or just some; memory
        of one batch."""


class Scratch(Protocol):
    """The buffer of one run; :mod:`flowctl.storage.buffer` implements it."""

    def folder(self, name: str) -> ScratchFolder:
        """A new, empty folder; ``name`` says what for. Removed when the run ends."""
