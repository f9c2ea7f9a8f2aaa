"""Reads a table's data files in this process, in the table's types: values are exact, or :class:`Unreadable`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from flowctl.connectors.arrow import arrow_schema, arrow_type, moment
from flowctl.connectors.delta import deletion_vectors
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.table import Unreadable
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

#: Keys in files with days or moments in a legacy calendar, which Spark converts when it reads them.
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")

_RESTORE = "Restore the file; a target of this flow can be written again with `--full-refresh`"


@dataclass(frozen=True)
class DataFile:
    """A file of the table, as its log has it. ``hidden`` returns the numbers of the rows that its deletion vector
    hides."""

    path: str
    hidden: Callable[[], BitMap64]
    partition_values: Mapping[str, str | None]


def data_file(location: TableLocation, file: Action, partition_by: Iterable[str]) -> DataFile:
    """The file of an ``add``, of a table partitioned by the columns that its files know as ``partition_by``."""
    values = {name: file["partitionValues"].get(name) for name in partition_by}
    return DataFile(file["path"], partial(read_hidden, location, file), values)


def read_hidden(location: TableLocation, file: Action) -> BitMap64:
    from pyroaring import BitMap64

    descriptor = file.get("deletionVector")
    return deletion_vectors.read(location, descriptor) if descriptor else BitMap64()


@dataclass(frozen=True)
class FileReader:
    """One open file. Columns are read in the table's types; a column that the file does not have is null."""

    parquet: pq.ParquetFile
    file: DataFile

    def has(self, column: Column) -> bool:
        return column.name in self.file.partition_values or column.name in self.parquet.schema_arrow.names

    def require_readable(self, columns: Sequence[Column]) -> None:
        if any(name in (self.parquet.metadata.metadata or {}) for name in _OTHER_CALENDAR):
            raise Unreadable("dates or timestamps of another calendar")
        names = set(self.parquet.schema_arrow.names)
        folded = {name.lower() for name in names}
        if other := [one.name for one in columns if one.name not in names and one.name.lower() in folded]:
            raise Unreadable(f"column {other[0]} has different capitalization in a file")

    def ids(self) -> dict[tuple[str, ...], int | None]:
        """The ids of the file's fields, None for one without, by their path of names. A list's items have its path."""
        return dict(_ids_of(self.parquet.schema_arrow, ()))

    def batches(self, columns: Sequence[Column], rows: int, group: int | None = None) -> Iterator[pa.RecordBatch]:
        """``columns`` in their order, up to ``rows`` rows at a time."""
        import pyarrow as pa

        schema, groups = arrow_schema(columns), None if group is None else [group]
        stored = [name for name in schema.names if name in self.parquet.schema_arrow.names]
        for batch in self.parquet.iter_batches(batch_size=rows, row_groups=groups, columns=stored, use_threads=False):
            values = [self._values(batch, column, field) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(values, schema=schema)

    def _values(self, batch: pa.RecordBatch, column: Column, field: pa.Field) -> pa.Array:
        import pyarrow as pa

        if column.name in self.file.partition_values:
            return pa.repeat(partition_value(self.file.partition_values[column.name], column.type), batch.num_rows)
        if field.name in batch.schema.names:
            return batch.column(field.name).cast(field.type)
        return pa.nulls(batch.num_rows, field.type)


def _ids_of(fields: Iterable[pa.Field], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int | None]]:
    import pyarrow as pa

    for field in fields:
        here, number = (*path, field.name), (field.metadata or {}).get(b"PARQUET:field_id")
        yield here, None if number is None else int(number)
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from _ids_of(kind, here)


def partition_value(text: str | None, kind: DataType) -> pa.Scalar:
    """Source: Delta protocol, *Partition Value Serialization*."""
    import pyarrow as pa

    if not text:
        return pa.scalar(None, arrow_type(kind))
    if kind == types.TIMESTAMP:
        return moment(text)
    return pa.scalar(text).cast(arrow_type(kind))


@contextmanager
def errors_of(location: TableLocation, file: DataFile, *, is_planned: bool = False) -> Iterator[None]:
    """``is_planned``: of the version that a plan names, so that no other one can be read instead."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise _missing(location, file, is_planned=is_planned) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Unreadable(f"{file.path}: {error}") from error


def _missing(location: TableLocation, file: DataFile, *, is_planned: bool) -> FlowctlError:
    """A file may be gone because newer versions do not need it; if the newest does, nobody can read the table."""
    from flowctl.connectors.delta.table import open_table

    newest = open_table(location)
    if newest is None or all(one["path"] != file.path for one in newest.files):
        if is_planned:
            what = f"{location.url} was rewritten since the plan was made, and {file.path}, which it needs, was deleted"
            return TableError(what, hint="Plan again")
        return TransientError(f"{location.url} was rewritten as it was read: {file.path} is gone", hint="Run again")
    return TableError(f"{location.url}: the table lists {file.path}, which is missing", hint=_RESTORE)


@contextmanager
def open_file(location: TableLocation, file: DataFile, metadata: pq.FileMetaData | None = None) -> Iterator[FileReader]:
    """``metadata``: the file's footer, if it was read before. A file without one cannot be read by Spark either."""
    import pyarrow as pa

    with ExitStack() as stack:
        try:
            parquet = stack.enter_context(location.open_parquet(unquote(file.path), metadata))
        except pa.ArrowInvalid as error:
            raise TableError(f"{location.url}: {file.path} is damaged: {error}", hint=_RESTORE) from error
        yield FileReader(parquet, file)


@contextmanager
def reading(location: TableLocation, file: DataFile, metadata: pq.FileMetaData | None = None) -> Iterator[FileReader]:
    """:func:`open_file`, with its :func:`errors_of`."""
    with errors_of(location, file), open_file(location, file, metadata) as reader:
        yield reader
