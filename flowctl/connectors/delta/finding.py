"""The rows of a table's files that have a batch's keys, each with its place, found by this process.

An engine needs a query for it, and in Spark's first seconds every query is slow; Sail has no column that says where a
row is. The key columns of a file are read first, the others only where some of its rows are wanted.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.landing import SegmentSink
from flowctl.errors import TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Decimal
from flowctl.storage.urls import local_path, scheme

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

#: Names of the columns that say a row's place: its file, and its number in it.
FILE, ROW = "_flowctl_file", "_flowctl_row"
#: Types whose values are the same key in Arrow and in Spark. Floats are not: Spark takes -0.0 for 0.0.
_KEYS = (
    *(types.INT8, types.INT16, types.INT32, types.INT64),
    *(types.STRING, types.BINARY, types.BOOL, types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ),
)
#: Rows of key columns at a time, and rows of all columns.
_KEY_ROWS, _ROWS = 1 << 20, 1 << 16
#: Spark wrote days or moments of another calendar, which it turns into ours when it reads them.
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class Unreadable(Exception):
    """A file is not what this module reads exactly; an engine may."""


@dataclass(frozen=True)
class DataFile:
    """A file of the table, as its log has it: ``path`` in the log, ``hidden`` the numbers of rows that are gone."""

    name: str
    path: str
    hidden: Callable[[], BitMap64]


def can_be_keys(columns: Sequence[Column]) -> bool:
    return all(column.type in _KEYS or isinstance(column.type, Decimal) for column in columns)


def found(
    location: TableLocation, files: Sequence[DataFile], columns: Sequence[Column], keys: pa.Table, sink: SegmentSink
) -> pa.Table:
    """Puts the live rows of ``files`` whose key is one of ``keys`` into ``sink``, all ``columns`` with :data:`FILE` and
    :data:`ROW`; returns their keys and places. :class:`Unreadable` when a file is none of ours."""
    import pyarrow as pa

    search = _Search(location, tuple(columns), keys.schema.names, _typed(keys, columns))
    places: list[pa.RecordBatch] = []
    at_once = os.cpu_count() or 1
    with ThreadPoolExecutor(at_once) as pool:
        for start in range(0, len(files), at_once):  # so many files' rows are held at a time
            for batches in pool.map(search.rows, files[start : start + at_once]):
                for batch in batches:
                    sink.write(batch)
                    places.append(batch.select([*search.key, FILE, ROW]))
    return pa.Table.from_batches(places, search.schema_of_places)


def _typed(keys: pa.Table, columns: Sequence[Column]) -> pa.Table:
    import pyarrow as pa

    by_name = {column.name: column for column in columns}
    try:
        return keys.cast(arrow_schema([by_name[name] for name in keys.schema.names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unreadable(f"the batch's keys: {error}") from error


def row_schema(columns: Sequence[Column]) -> pa.Schema:
    """What :func:`found` puts into its sink."""
    import pyarrow as pa

    return pa.schema([*arrow_schema(columns), (FILE, pa.string()), (ROW, pa.int64())])


@dataclass(frozen=True)
class _Search:
    location: TableLocation
    columns: tuple[Column, ...]
    key: list[str]
    keys: pa.Table

    @property
    def schema_of_places(self) -> pa.Schema:
        import pyarrow as pa

        whole = row_schema(self.columns)
        return pa.schema([whole.field(name) for name in (*self.key, FILE, ROW)])

    def rows(self, file: DataFile) -> list[pa.RecordBatch]:
        import pyarrow as pa

        try:
            with _opened(self.location, file.path) as parquet:
                _require_ours(parquet, self.columns)
                return list(self._rows(parquet, file))
        except FileNotFoundError as error:
            raise TransientError(f"{self.location.url} was rewritten as it was read: {file.path} is gone") from error
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise Unreadable(f"{file.path}: {error}") from error

    def _rows(self, parquet: pq.ParquetFile, file: DataFile) -> Iterator[pa.RecordBatch]:
        numbers = self._numbers(parquet)
        if numbers and (hidden := file.hidden()):
            numbers = [number for number in numbers if number not in hidden]
        start = 0
        for group in range(parquet.num_row_groups):
            end = start + parquet.metadata.row_group(group).num_rows
            if wanted := _within(numbers, start, end):
                yield self._of_group(parquet, group, start, wanted, file.name)
            start = end

    def _numbers(self, parquet: pq.ParquetFile) -> list[int]:
        """Of the rows with one of the keys, in order."""
        import pyarrow as pa

        fields, start, numbers = [column for column in self.columns if column.name in self.key], 0, []
        if not all(_has(parquet, column) for column in fields):  # they came later, with no value in these rows
            return []
        for batch in _batches(parquet, fields, _KEY_ROWS):
            end = start + batch.num_rows
            placed = pa.Table.from_batches([batch]).append_column(ROW, pa.arange(start, end))
            with_key = placed.join(self.keys, keys=self.key, join_type="left semi", use_threads=False)
            numbers += with_key[ROW].to_pylist()
            start = end
        return sorted(numbers)

    def _of_group(
        self, parquet: pq.ParquetFile, group: int, start: int, numbers: list[int], name: str
    ) -> pa.RecordBatch:
        """Column by column: what is in memory at a time is then little, and the same little again and again."""
        import pyarrow as pa

        columns = [_taken(parquet, column, group, [number - start for number in numbers]) for column in self.columns]
        places = (pa.repeat(pa.scalar(name, pa.string()), len(numbers)), pa.array(numbers, pa.int64()))
        return pa.RecordBatch.from_arrays([*columns, *places], schema=row_schema(self.columns))


def _taken(parquet: pq.ParquetFile, column: Column, group: int, numbers: list[int]) -> pa.Array:
    """The values of one column in some rows of a row group; null where the file is older than the column."""
    import pyarrow as pa

    if not _has(parquet, column):
        return pa.nulls(len(numbers), arrow_type(column.type))
    found, start = [], 0
    for batch in _batches(parquet, [column], _ROWS, group):
        wanted = _within(numbers, start, start + batch.num_rows)
        found.append(batch.column(0).take(pa.array([number - start for number in wanted], pa.int64())))
        start += batch.num_rows
    return pa.concat_arrays(found)


def _within(numbers: list[int], start: int, end: int) -> list[int]:
    """``numbers`` are sorted."""
    return numbers[bisect_left(numbers, start) : bisect_left(numbers, end)]


@contextmanager
def _opened(location: TableLocation, path: str) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq

    url = f"{location.url}/{unquote(path)}"
    if scheme(location.url) == "file":
        with pq.ParquetFile(local_path(url), pre_buffer=False, coerce_int96_timestamp_unit="us") as parquet:
            yield parquet
        return
    with (
        location.file_system().open(url, "rb") as file,
        pq.ParquetFile(file, pre_buffer=True, coerce_int96_timestamp_unit="us") as parquet,
    ):
        yield parquet


def _require_ours(parquet: pq.ParquetFile, columns: Sequence[Column]) -> None:
    told = parquet.metadata.metadata or {}
    if any(name in told for name in _OTHER_CALENDAR):
        raise Unreadable("days and moments of another calendar")
    names = set(parquet.schema_arrow.names)
    folded = {name.lower() for name in names}
    if other := [column.name for column in columns if column.name not in names and column.name.lower() in folded]:
        raise Unreadable(f"{other[0]} is written in another way")


def _has(parquet: pq.ParquetFile, column: Column) -> bool:
    return column.name in parquet.schema_arrow.names


def _batches(
    parquet: pq.ParquetFile, columns: Sequence[Column], rows: int, group: int | None = None
) -> Iterator[pa.RecordBatch]:
    """``columns`` in their order and types."""
    import pyarrow as pa

    schema, groups = arrow_schema(columns), None if group is None else [group]
    for batch in parquet.iter_batches(batch_size=rows, row_groups=groups, columns=schema.names, use_threads=False):
        values = [batch.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(values, schema=schema)
