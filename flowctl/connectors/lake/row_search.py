"""Finds the rows of a table's files that a commit affects, each with its file and row number, in this process.

An engine needs a query for this, and in Spark's first seconds every query is slow; Sail has no column with a row's
location. The columns that decide are read first, the others only where some of the rows are wanted. Rows that a
deletion vector hides are read too and dropped afterwards.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.lake.table import OpenFile, RowReader, SearchedFile, Unreadable
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Struct
from flowctl.storage.buffer import SegmentSink

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

#: Names of the columns that locate a row: the index of the searched file, and the row's number in it.
FILE, ROW = "_flowctl_file", "_flowctl_row"
#: Rows read at a time: of the deciding columns, of all columns, and of a file to rewrite, as a row group.
_KEY_ROWS, _ROWS, _GROUP_ROWS = 1 << 20, 1 << 16, 1 << 17
#: A row group with this many wanted rows is read piece by piece.
_MANY = 1 << 17


@dataclass(frozen=True)
class Search:
    """A search in ``files``, which ``open`` opens, of a table with ``columns``."""

    open: OpenFile
    files: Sequence[SearchedFile]
    columns: tuple[Column, ...]

    def collect_rows(self, keys: pa.Table, sink: SegmentSink) -> int:
        """Writes the live rows whose key is one of ``keys`` to ``sink``, as :func:`row_schema`; returns their bytes.
        :class:`Unreadable` if a file or the keys cannot be read exactly."""
        names, size = keys.schema.names, 0
        wanted = comparable(self._typed(keys))

        def with_key(rows: pa.Table) -> pa.Table:
            return comparable(rows).join(wanted, keys=names, join_type="left semi", use_threads=False)

        matches = self._find(names, with_key)
        groups = [_Group(at, one.metadata, *group) for at, one in enumerate(matches) for group in one.groups()]
        with ThreadPoolExecutor(_workers()) as pool:
            for start in range(0, len(groups), _workers()):  # limits how many row groups are in memory
                some = groups[start : start + _workers()]
                small = [pool.submit(self._rows, group) if len(group.rows) < _MANY else None for group in some]
                for batch in chain.from_iterable(
                    [rows.result()] if rows is not None else self._pieces(group)
                    for group, rows in zip(some, small, strict=True)
                ):
                    sink.write(batch)
                    size += batch.nbytes
        return size

    def matching(self, names: Sequence[str], condition: pc.Expression) -> dict[int, BitMap64]:
        """The numbers of the live rows that meet ``condition`` (over ``names``), by the file's index in ``files``."""
        matches = self._find(names, lambda rows: rows.filter(condition))
        return {at: one.rows for at, one in enumerate(matches) if one.rows}

    def other_rows(self, at: int, gone: BitMap64) -> Iterator[pa.Table]:
        """The live rows of a file except ``gone``, without its partition columns."""
        import pyarrow as pa
        import pyarrow.compute as pc

        file, start = self.files[at], 0
        columns = [column for column in self.columns if column.name not in file.partition_values]
        dead = pa.array(list(gone | file.hidden()), pa.int64())
        with self.open(file) as reader:
            reader.require_readable(columns)
            for batch in reader.batches(columns, _GROUP_ROWS):
                end = start + batch.num_rows
                live = pc.invert(pc.is_in(pa.arange(start, end), dead))
                yield pa.Table.from_batches([batch.filter(live)] if len(dead) else [batch])
                start = end

    def _typed(self, keys: pa.Table) -> pa.Table:
        import pyarrow as pa

        by_name = {column.name: column for column in self.columns}
        key = [by_name[name] for name in keys.schema.names]
        if nested := [column.name for column in key if isinstance(column.type, Array | Struct)]:
            raise Unreadable(f"key column {nested[0]} has parts")
        try:
            return keys.cast(arrow_schema(key))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Unreadable(f"the batch's keys: {error}") from error

    def _find(self, names: Sequence[str], choose: Callable[[pa.Table], pa.Table]) -> list[_Matches]:
        """For each file, the numbers of the live rows that ``choose`` keeps, given columns ``names`` and
        :data:`ROW`."""
        columns = [column for column in self.columns if column.name in names]

        def find_in(file: SearchedFile) -> _Matches:
            import pyarrow as pa
            from pyroaring import BitMap64

            rows, start = BitMap64(), 0
            with self.open(file) as reader:
                reader.require_readable(self.columns)
                if all(map(reader.has, columns)):  # otherwise one was added later and has no values here
                    for batch in reader.batches(columns, _KEY_ROWS):
                        end = start + batch.num_rows
                        placed = pa.Table.from_batches([batch]).append_column(ROW, pa.arange(start, end))
                        rows |= BitMap64(choose(placed)[ROW].to_pylist())
                        start = end
                return _Matches(rows - file.hidden() if rows else rows, reader.parquet.metadata)

        with ThreadPoolExecutor(_workers()) as pool:
            return list(pool.map(find_in, self.files))

    def _rows(self, group: _Group) -> pa.RecordBatch:
        """Reads column by column, so that little is in memory at a time, and that memory is used again."""
        import pyarrow as pa

        file = self.files[group.file]
        with self.open(file, group.metadata) as reader:
            columns = [
                pa.concat_arrays([piece.column(0) for piece, _ in _pieces_of(reader, [column], group)])
                for column in self.columns
            ]
        return self._placed(columns, group, group.rows)

    def _pieces(self, group: _Group) -> Iterator[pa.RecordBatch]:
        file = self.files[group.file]
        with self.open(file, group.metadata) as reader:
            for piece, rows in _pieces_of(reader, self.columns, group):
                yield self._placed(piece.columns, group, rows)

    def _placed(self, columns: list[pa.Array], group: _Group, rows: list[int]) -> pa.RecordBatch:
        import pyarrow as pa

        file = pa.repeat(pa.scalar(group.file, pa.int32()), len(rows))
        numbers = pa.array([group.start + row for row in rows], pa.int64())
        return pa.RecordBatch.from_arrays([*columns, file, numbers], schema=row_schema(self.columns))


@dataclass(frozen=True)
class _Group:
    """Some ``rows`` of a row group, counted from its ``start``, the number of its first row in the file."""

    file: int
    metadata: pq.FileMetaData
    number: int
    start: int
    rows: list[int]


@dataclass(frozen=True)
class _Matches:
    """The numbers of the matching rows of a file."""

    rows: BitMap64
    metadata: pq.FileMetaData

    def groups(self) -> Iterator[tuple[int, int, list[int]]]:
        """Of each row group with matching rows: its number, the number of its first row in the file, and these rows."""
        numbers, start = list(self.rows), 0
        for group in range(self.metadata.num_row_groups if numbers else 0):
            end = start + self.metadata.row_group(group).num_rows
            if wanted := _within(numbers, start, end):
                yield group, start, [number - start for number in wanted]
            start = end


def rows_by_file(places: pa.Table) -> dict[int, BitMap64]:
    """Row numbers by file, from rows with :data:`FILE` and :data:`ROW`."""
    import pyarrow.compute as pc
    from pyroaring import BitMap64

    return {
        at: BitMap64(places.filter(pc.equal(places[FILE], at))[ROW].to_pylist())
        for at in places[FILE].unique().to_pylist()
    }


def row_schema(columns: Sequence[Column]) -> pa.Schema:
    """A table's columns, and those that locate each row."""
    import pyarrow as pa

    return pa.schema([*arrow_schema(columns), (FILE, pa.int32()), (ROW, pa.int64())])


def _workers() -> int:
    return os.cpu_count() or 1


def _within(numbers: list[int], start: int, end: int) -> list[int]:
    """The numbers from ``start`` to before ``end``; ``numbers`` are sorted."""
    return numbers[bisect_left(numbers, start) : bisect_left(numbers, end)]


def comparable(rows: pa.Table) -> pa.Table:
    """With floats normalised so that equal keys have equal bits, as for an engine: one zero, one NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            values = pc.add(rows[field.name], pa.scalar(0, field.type))
            values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), field.type), values)
            rows = rows.set_column(at, field, values)
    return rows


def _pieces_of(
    reader: RowReader, columns: Sequence[Column], group: _Group
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """The group's rows, piece by piece, each with its rows' numbers in the row group."""
    import pyarrow as pa

    start = 0
    for batch in reader.batches(columns, _ROWS, group.number):
        rows = _within(group.rows, start, start + batch.num_rows)
        yield batch.take(pa.array([row - start for row in rows], pa.int64())), rows
        start += batch.num_rows
