"""Record batches as the content of files, by format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.files.sink.refusals import require_gregorian
from flowctl.connectors.files.sink.text_rows import csv_header, csv_lines, json_lines
from flowctl.model.table_info import Column
from flowctl.spec.files_layout import FileFormat, FilesLayout

if TYPE_CHECKING:
    import pyarrow as pa

#: A row group, or a stripe, is written when it reaches this size (Arrow bytes), or that of a whole file.
_GROUP_BYTES = 64 * 2**20
_SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2"}
#: Without this key in a file, Spark reads days before 1582 as its configuration says; with it, as they are.
_VERSION = b"org.apache.spark.version"


class Encoder(Protocol):
    """Writes one file. ``write`` takes batches with the schema of the columns."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None:
        """Writes what is left. The file itself stays open."""


def encoder(file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> Encoder:
    return _ENCODERS[layout.format](file, columns, layout)


class _Grouped:
    """Collects batches into groups, which its writer writes one at a time."""

    def __init__(self, columns: Sequence[Column], layout: FilesLayout) -> None:
        self._schema = arrow_schema(columns)
        self._group_bytes = min(_GROUP_BYTES, layout.file_bytes)
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._group_bytes:
            self._flush()

    def close(self) -> None:
        if self._waiting:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        self._write_group(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._bytes = [], 0

    def _write_group(self, group: pa.Table) -> None:
        self._writer.write(group)


class _Parquet(_Grouped):
    def __init__(self, file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> None:
        import pyarrow.parquet as pq
        import pyspark

        super().__init__(columns, layout)
        self._schema = self._schema.with_metadata({_VERSION: pyspark.__version__.encode()})
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression=layout.codec,
            store_decimal_as_integer=True,  # as Spark does: vectorized readers need it
            store_schema=False,
        )

    def _write_group(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))


class _Orc(_Grouped):
    def __init__(self, file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> None:
        from pyarrow import orc

        super().__init__(columns, layout)
        self._columns = columns
        codec = "uncompressed" if layout.codec == "none" else layout.codec
        self._writer = orc.ORCWriter(_unclosed(file), compression=codec)

    def write(self, batch: pa.RecordBatch) -> None:
        for column in self._columns:
            require_gregorian(batch.column(column.name), column.type, column.name)
        super().write(batch)


class _Text:
    def __init__(self, file: BinaryIO, columns: Sequence[Column], layout: FilesLayout) -> None:
        import pyarrow as pa

        self._columns, self._layout = columns, layout
        self._lines = csv_lines if layout.format == "csv" else json_lines
        self._is_compressed = layout.codec != "none"
        self._file: Any = pa.CompressedOutputStream(_unclosed(file), layout.codec) if self._is_compressed else file
        if layout.format == "csv" and layout.header:
            self._file.write(csv_header(columns, layout))

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write(self._lines(batch, self._columns, self._layout))

    def close(self) -> None:
        if self._is_compressed:
            self._file.close()


def _unclosed(file: BinaryIO) -> pa.PythonFile:
    """``file`` for a writer whose end must not close it."""
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
