"""Record batches as the content of files, by format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.files.sink.text_rows import csv_header, csv_lines, json_lines
from flowctl.model.table_info import Column
from flowctl.spec.files_layout import FileFormat, FilesLayout

if TYPE_CHECKING:
    import pyarrow as pa

#: A row group, or a stripe, is written when it reaches this size (Arrow bytes).
_GROUP_BYTES = 64 * 2**20
_SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2"}


class Encoder(Protocol):
    """Writes one file. ``write`` takes batches with the schema of the columns."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None:
        """Writes what is left. The file itself stays open."""


def extension(layout: FilesLayout) -> str:
    is_text = layout.format in ("csv", "jsonl")
    return layout.format + (_SUFFIXES.get(layout.codec, "") if is_text else "")


def encoder(file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> Encoder:
    return _ENCODERS[layout.format](file, columns, layout)


class _Parquet:
    def __init__(self, file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> None:
        import pyarrow.parquet as pq

        self._schema = arrow_schema(columns)
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression=layout.codec.upper(),
            store_decimal_as_integer=True,  # as Spark does: vectorized readers need it
        )
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._waiting, self._bytes = [], 0


class _Orc:
    def __init__(self, file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> None:
        import pyarrow.orc

        codec = "uncompressed" if layout.codec == "none" else layout.codec
        self._writer = pyarrow.orc.ORCWriter(file, compression=codec)
        self._schema = arrow_schema(columns)
        self._is_empty = True

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        self._writer.write(pa.Table.from_batches([batch], self._schema))
        self._is_empty = False

    def close(self) -> None:
        self._writer.close()


class _Text:
    def __init__(self, file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> None:
        import pyarrow as pa

        self._columns, self._layout = columns, layout
        self._file: Any = file
        self._closes = layout.codec != "none"
        if self._closes:
            self._file = pa.CompressedOutputStream(_Open(file), layout.codec)
        if layout.format == "csv" and layout.header:
            self._file.write(csv_header(columns, layout))

    def write(self, batch: pa.RecordBatch) -> None:
        lines = csv_lines if self._layout.format == "csv" else json_lines
        self._file.write(lines(batch, self._columns, self._layout))

    def close(self) -> None:
        if self._closes:
            self._file.close()


def _Open(file: BinaryIO) -> Any:
    """``file`` for a stream whose end does not close it."""
    import pyarrow as pa

    return pa.PythonFile(cast(Any, _Unclosed(file)), "w")


class _Unclosed:
    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.write, self.flush, self.tell = file.write, file.flush, file.tell

    def close(self) -> None:
        """The owner of the file closes it."""


_ENCODERS: Mapping[FileFormat, Callable[[BinaryIO, Sequence[Column], FilesLayout], Encoder]] = {
    "parquet": _Parquet,
    "orc": _Orc,
    "csv": _Text,
    "jsonl": _Text,
}
