"""Writes rows as data files that no reader sees until a commit references them.

A file that is never committed is what Iceberg calls an orphan: `flowctl maintain` removes it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from flowctl.connectors.iceberg.file_io import split
from flowctl.errors import TableError
from flowctl.storage.durable import make_folder, sync_folder
from flowctl.storage.options import Storage
from flowctl.storage.urls import local_path, scheme

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Record as Partition

_TARGET, _TARGET_SIZE = "write.target-file-size-bytes", 512 * 2**20
#: Rows of one row group, at most.
_GROUP_ROWS = 1 << 17
#: Rows are written in slices of about this size: those of a few partitions are in memory at a time.
_SLICE_BYTES = 64 * 2**20
_COPY_BYTES = 2**20
#: Files that are open at a time, one for each partition; the one with the most rows is ended for another.
_OPEN_FILES = 64


def write(metadata: TableMetadata, storage: Storage, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Writes all rows with the schema and the partitions of ``metadata``; ``batches`` have its columns, in its
    order."""
    writer = _Writer(metadata, storage)
    with writer.stack:
        for rows in _slices(batches):
            writer.write(rows)
        return writer.end()


def target_size(metadata: TableMetadata) -> int:
    """Bytes at which a file is ended."""
    written = metadata.properties.get(_TARGET, "")
    return max(int(written), 1) if written.isdecimal() else _TARGET_SIZE


def copy(metadata: TableMetadata, storage: Storage, file: DataFile) -> DataFile:
    """A copy of a data file of the table, with the same rows and the same place among the partitions. A file that was
    removed is never referenced again: whoever expires the snapshot that removed it deletes it."""
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.locations import load_location_provider

    spec = metadata.specs()[file.spec_id]
    name = f"{uuid.uuid4().hex}.{file.file_path.rpartition('.')[2]}"
    folder = "" if spec.is_unpartitioned() else f"{spec.partition_to_path(file.partition, metadata.schema())}/"
    path = load_location_provider(metadata.location, metadata.properties).new_data_location(folder + name)
    (source, old), (place, new) = split(file.file_path, storage), split(path, storage)
    is_local = scheme(place.url) == "file"
    if is_local:
        make_folder(local_path(place.url))
    read, written = (
        source.file_system().open(f"{source.url}/{old}"),
        place.file_system().open(f"{place.url}/{new}", "wb"),
    )
    with read as from_file, written as to_file:
        shutil.copyfileobj(from_file, to_file, _COPY_BYTES)
        if is_local:
            to_file.flush()
            _sync(to_file)
    if is_local:
        sync_folder(local_path(place.url))
    made = DataFile(*(file[at] for at in range(len(file))))
    made[1], made.spec_id = path, file.spec_id
    return made


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _SLICE_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


@dataclass
class _OpenFile:
    path: str
    partition: Partition
    stream: IO[bytes]
    parquet: pq.ParquetWriter
    footers: list[pq.FileMetaData]
    close: Callable[[], None]
    rows: int = 0


@dataclass
class _Writer:
    metadata: TableMetadata
    storage: Storage
    stack: ExitStack = field(default_factory=ExitStack)
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    _open: dict[Partition, _OpenFile] = field(default_factory=dict)
    _done: list[DataFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.schema import sanitize_column_names

        self.schema: Schema = self.metadata.schema()
        self.stored: Schema = sanitize_column_names(self.schema)
        names = [one.name for one in self.stored.fields]
        if twice := next((one.name for one in self.schema.fields if names.count(_stored_name(one.name)) > 1), None):
            raise TableError(
                f"column {twice} has the name of another column once it is written as Iceberg writes names in files",
                hint="Rename it with columns.rename",
            )
        self.arrow: pa.Schema = schema_to_pyarrow(self.stored)
        self.target = target_size(self.metadata)

    def write(self, rows: pa.Table) -> None:
        from pyiceberg.io.pyarrow import _determine_partitions
        from pyiceberg.typedef import Record as Partition

        spec = self.metadata.spec()
        if spec.is_unpartitioned():
            self._write_to("", Partition(), rows)
            return
        for part in _determine_partitions(spec, self.schema, rows):
            key = part.partition_key
            self._write_to(key.to_path(), key.partition, part.arrow_table_partition)

    def _write_to(self, folder: str, partition: Partition, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        file = self._open.get(partition)  # the folders of a null and of the text `null` are the same
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._end(max(self._open, key=lambda one: self._open[one].rows))
            file = self._open[partition] = self._begin(folder, partition)
        file.parquet.write_table(rows.rename_columns(self.arrow.names).cast(self.arrow), row_group_size=_GROUP_ROWS)
        file.rows += rows.num_rows
        if file.stream.tell() >= self.target:
            self._end(partition)

    def end(self) -> list[DataFile]:
        for partition in list(self._open):
            self._end(partition)
        return self._done

    def _begin(self, folder: str, partition: Partition) -> _OpenFile:
        import pyarrow.parquet as pq
        from pyiceberg.table.locations import load_location_provider

        provider = load_location_provider(self.metadata.location, self.metadata.properties)
        name = f"{self.attempt}-{len(self._done) + len(self._open):05}.parquet"
        path = provider.new_data_location(f"{folder}/{name}" if folder else name)
        place, file_name = split(path, self.storage)
        url, is_local = f"{place.url}/{file_name}", scheme(place.url) == "file"
        if is_local:
            make_folder(local_path(place.url))
        opened: Any = place.file_system().open(url, "xb" if is_local else "wb")
        stream: IO[bytes] = self.stack.enter_context(opened)
        footers: list[pq.FileMetaData] = []
        codec = self.metadata.properties.get("write.parquet.compression-codec", "zstd")
        parquet = self.stack.enter_context(
            pq.ParquetWriter(
                stream, self.arrow, compression=codec, store_decimal_as_integer=True, metadata_collector=footers
            )
        )

        def close() -> None:
            if is_local:
                stream.flush()
                _sync(stream)
            stream.close()
            if is_local:
                sync_folder(local_path(place.url))

        return _OpenFile(path, partition, stream, parquet, footers, close)

    def _end(self, partition: Partition) -> None:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

        file = self._open.pop(partition)
        file.parquet.close()
        size = file.stream.tell()
        file.close()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.footers[0],
            stats_columns=compute_statistics_plan(self.schema, self.metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(self.stored),
        )
        self._done.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=file.path,
                file_format=FileFormat.PARQUET,
                partition=file.partition,
                file_size_in_bytes=size,
                sort_order_id=None,
                spec_id=self.metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )


def _stored_name(name: str) -> str:
    """As Iceberg writes a column's name in a file."""
    from pyiceberg.schema import make_compatible_name

    return str(make_compatible_name(name))


def _sync(stream: Any) -> None:
    import os

    os.fsync(stream.fileno())
