"""Reads a table's data files in this process. Columns are found by their ids, so their names in a file do not
matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.iceberg.file_io import split
from flowctl.errors import TableError, TransientError
from flowctl.model.table_info import Column
from flowctl.storage.options import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata
    from pyroaring import BitMap64

_HINT = "Write the table again with the engine that made it, then run again"


@dataclass(frozen=True)
class StoredFile:
    """A data file with what is deleted in it, as :class:`flowctl.connectors.lake.table.SearchedFile`."""

    task: FileScanTask
    io: FileIO

    @property
    def path(self) -> str:
        return self.task.file.file_path

    @property
    def partition_values(self) -> Mapping[str, Any]:
        """None: what a file of another table format leaves out is filled in by :class:`FileReader`."""
        return {}

    def hidden(self) -> BitMap64:
        from pyiceberg.io.pyarrow import _read_deletes
        from pyroaring import BitMap64

        hidden = BitMap64()
        for deletes in self.task.delete_files:
            positions = _read_deletes(self.io, deletes).get(self.path)
            if positions is not None:
                hidden |= BitMap64(positions.to_pylist())
        return hidden


@dataclass(frozen=True)
class FileReader:
    """One open file, as :class:`flowctl.connectors.lake.table.RowReader`."""

    metadata: TableMetadata
    file: StoredFile
    parquet: pq.ParquetFile

    @cached_property
    def stored(self) -> Schema:
        """The file's columns, with their ids."""
        from pyiceberg.io.pyarrow import pyarrow_to_schema

        try:
            return pyarrow_to_schema(
                self.parquet.schema_arrow, self.metadata.name_mapping(), downcast_ns_timestamp_to_us=False
            )
        except (ValueError, TypeError) as error:
            raise TableError(f"{self.file.path} cannot be read exactly: {error}", hint=_HINT) from error

    def has(self, column: Column) -> bool:
        field = self._field(column.name)
        return field is not None and (field in self._stored_ids or field in self._constants)

    def require_readable(self, columns: Sequence[Column]) -> None:
        assert self.stored is not None

    def batches(self, columns: Sequence[Column], rows: int, group: int | None = None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyiceberg.schema import prune_columns

        from flowctl.connectors.iceberg.projection import project

        ids = {column.name: self._field(column.name) for column in columns}
        known = {field for field in ids.values() if field is not None}
        requested = prune_columns(self.metadata.schema(), known)
        present = [field for field in self.stored.fields if field.field_id in known]
        schema, groups = arrow_schema(columns), None if group is None else [group]
        names = [self.parquet.schema_arrow.names[self.stored.fields.index(field)] for field in present]
        found = prune_columns(self.stored, known & self._stored_ids)
        for batch in self.parquet.iter_batches(batch_size=rows, row_groups=groups, columns=names, use_threads=False):
            shaped = project(batch.select(names), found, requested, self._constants)
            values = [
                shaped.column(column.name).cast(field.type)
                if ids[column.name] is not None
                else pa.nulls(batch.num_rows, field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(values, schema=schema)

    def _field(self, name: str) -> int | None:
        """The id of a column; None for one that the table does not have yet."""
        return next((field.field_id for field in self.metadata.schema().fields if field.name == name), None)

    @cached_property
    def _stored_ids(self) -> set[int]:
        return {field.field_id for field in self.stored.fields}

    @cached_property
    def _constants(self) -> Mapping[int, Any]:
        """Values of columns that the file leaves out because they are its partition (a migrated Hive table's)."""
        from pyiceberg.transforms import IdentityTransform

        spec = self.metadata.specs()[self.file.task.file.spec_id]
        return {
            field.source_id: self.file.task.file.partition[at]
            for at, field in enumerate(spec.fields)
            if isinstance(field.transform, IdentityTransform) and field.source_id not in self._stored_ids
        }


@contextmanager
def reading(
    metadata: TableMetadata, storage: Storage, file: StoredFile, footer: pq.FileMetaData | None = None
) -> Iterator[FileReader]:
    """Opens a data file of a table with ``metadata``."""
    import pyarrow as pa
    from pyiceberg.manifest import FileFormat

    if file.task.file.file_format != FileFormat.PARQUET:
        raise TableError(f"{file.path} is no Parquet file, the only format that flowctl reads here", hint=_HINT)
    folder, name = split(file.path, storage)
    try:
        with folder.open_parquet(name, footer) as parquet:
            yield FileReader(metadata, file, parquet)
    except FileNotFoundError as error:
        hint = "Run again; if it is still missing, restore it, or write a target of this flow again by `--full-refresh`"
        raise TransientError(f"the table was rewritten as it was read: {file.path} is gone", hint=hint) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise TableError(f"{file.path} cannot be read exactly: {error}", hint=_HINT) from error
