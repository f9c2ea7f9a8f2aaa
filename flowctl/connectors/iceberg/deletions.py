"""Which rows of a data file are deleted: by position, or by equal values of some columns.

Source: Iceberg table spec, *Row-level deletes* and *Scan Planning*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.iceberg.file_reader import StoredFile, reading
from flowctl.connectors.iceberg.types import columns_of
from flowctl.connectors.iceberg.versions import LiveFile, TableVersion
from flowctl.connectors.lake.difference import MOST_BYTES, exact
from flowctl.errors import TableError
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyroaring import BitMap64

#: Rows read at a time.
ROWS = 1 << 16
#: The columns of a file of positions, by the ids that the format reserves for them.
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_AT = "_flowctl_at"
_COMPACT = "Rewrite its files with the engine that wrote them (compaction), then run again"


@dataclass(frozen=True)
class Deletions:
    """Those of one version. Positions of all files that were asked for are held, as bitmaps; keys of equal rows too."""

    version: TableVersion
    _positions: dict[str, dict[str, BitMap64]] = field(default_factory=dict)
    _keys: dict[tuple[str, ...], pa.Table] = field(default_factory=dict)

    def files_for(self, file: LiveFile) -> frozenset[str]:
        """The paths of those that may delete rows of ``file``."""
        return frozenset(one.path for one in (*self._by_position(file), *self._by_equality(file)))

    def hidden(self, file: LiveFile) -> BitMap64:
        """The numbers of the deleted rows of a data file."""
        from pyroaring import BitMap64

        hidden = BitMap64()
        for one in self._by_position(file):
            hidden |= self._positions_in(one).get(file.path, BitMap64())
        if hidden and hidden.max() >= file.file.record_count:  # as some writers leave behind; rows are counted by these
            hidden = BitMap64([number for number in hidden if number < file.file.record_count])
        by_columns: dict[tuple[int, ...], list[LiveFile]] = {}
        for one in self._by_equality(file):
            by_columns.setdefault(tuple(sorted(one.file.equality_ids or ())), []).append(one)
        for ids, files in by_columns.items():
            hidden |= self._equal(file, ids, files)
        return hidden

    @cached_property
    def _sorted(self) -> tuple[tuple[LiveFile, ...], tuple[LiveFile, ...]]:
        """Those by position, and those by equality."""
        from pyiceberg.manifest import DataFileContent

        all = self.version.deletions.values()
        return (
            tuple(one for one in all if one.file.content == DataFileContent.POSITION_DELETES),
            tuple(one for one in all if one.file.content == DataFileContent.EQUALITY_DELETES),
        )

    def _by_position(self, file: LiveFile) -> Iterable[LiveFile]:
        return (
            one
            for one in self._sorted[0]
            if one.sequence >= file.sequence and one.partition == file.partition and _may_name(one, file.path)
        )

    def _by_equality(self, file: LiveFile) -> Iterable[LiveFile]:
        """Without partitions, they apply to every partition."""
        specs = self.version.handle.metadata.specs()
        return (
            one
            for one in self._sorted[1]
            if one.sequence > file.sequence
            and (specs[one.file.spec_id].is_unpartitioned() or one.partition == file.partition)
        )

    def _positions_in(self, deletions: LiveFile) -> dict[str, BitMap64]:
        import pyarrow.compute as pc
        from pyiceberg.schema import Schema
        from pyiceberg.types import LongType, NestedField, StringType
        from pyroaring import BitMap64

        if (known := self._positions.get(deletions.path)) is not None:
            return known
        fields = NestedField(_PATH_ID, "file_path", StringType()), NestedField(_POSITION_ID, "pos", LongType())
        found: dict[str, BitMap64] = {}

        def add(batch: pa.RecordBatch) -> None:
            for path in pc.unique(batch.column("file_path")).to_pylist():
                chosen = batch.column("pos").filter(pc.equal(batch.column("file_path"), path))
                found.setdefault(path, BitMap64()).update(chosen.to_pylist())

        self._read(deletions, Schema(*fields), add)
        return self._positions.setdefault(deletions.path, found)

    def _equal(self, file: LiveFile, ids: tuple[int, ...], deletions: Sequence[LiveFile]) -> BitMap64:
        """The numbers of the rows whose values of the columns ``ids`` are those of a deleted row; null equals null."""
        import pyarrow as pa
        from pyroaring import BitMap64

        schema, hidden, start = self._schema_of(ids), BitMap64(), 0
        keys = self._keys_in(schema, ids, deletions)
        names = keys.column_names

        def match(batch: pa.RecordBatch) -> None:
            nonlocal start
            rows = _comparable(pa.Table.from_batches([batch])).append_column(
                _AT, pa.array(range(start, start + batch.num_rows), pa.int64())
            )
            start += batch.num_rows
            hidden.update(rows.join(keys, keys=names, join_type="left semi", use_threads=False)[_AT].to_pylist())

        self._read(file, schema, match)
        return hidden

    def _keys_in(self, schema: Schema, ids: tuple[int, ...], deletions: Sequence[LiveFile]) -> pa.Table:
        import pyarrow as pa

        name = (str(ids), *sorted(one.path for one in deletions))
        if (known := self._keys.get(name)) is not None:
            return known
        if sum(one.file.file_size_in_bytes for one in deletions) > MOST_BYTES:
            what = f"{self.version.place.shown} has more than 128 MiB of deletions by equal values"
            raise TableError(what, hint=_COMPACT)
        batches: list[pa.RecordBatch] = []
        for one in deletions:
            self._read(one, schema, batches.append)
        rows = pa.Table.from_batches(batches, arrow_schema(_columns(schema)))
        keys = _comparable(rows)
        return self._keys.setdefault(name, keys.group_by(keys.column_names, use_threads=False).aggregate([]))

    def _schema_of(self, ids: tuple[int, ...]) -> Schema:
        """The columns ``ids``, which the newest schema may have no longer, under their numbers as names."""
        from pyiceberg.schema import Schema
        from pyiceberg.types import NestedField

        metadata, fields = self.version.handle.metadata, []
        for id in ids:
            newest_first = sorted(metadata.schemas, key=lambda one: one.schema_id, reverse=True)
            found = next((one for schema in newest_first for one in schema.fields if one.field_id == id), None)
            if found is None:
                what = f"{self.version.place.shown} has deletions by values of field {id}, which is part of a column"
                raise TableError(what, hint=_COMPACT)
            fields.append(NestedField(id, str(id), found.field_type, required=False))
        schema = Schema(*fields)
        for column in columns_of(schema):
            if column.as_text and column.note:
                what = f"{self.version.place.shown} has deletions by values of field {column.name}: {column.note}"
                raise TableError(what, hint=_COMPACT)
        return schema

    def _read(self, file: LiveFile, schema: Schema, take: Callable[[pa.RecordBatch], object]) -> None:
        """Passes the rows of a file, with the columns of ``schema``, to ``take``."""
        from pyiceberg.table import FileScanTask

        stored = StoredFile(FileScanTask(file.file), self.version.handle.io)
        with reading(_with_schema(self.version.handle.metadata, schema), self.version.place.storage, stored) as reader:
            for batch in reader.batches(_columns(schema), ROWS):
                take(batch)


def _columns(schema: Schema) -> tuple[Column, ...]:
    return columns_of(schema)


def _with_schema(metadata: TableMetadata, schema: Schema) -> TableMetadata:
    return metadata.model_copy(update={"schemas": [schema], "current_schema_id": schema.schema_id})


def _may_name(deletions: LiveFile, path: str) -> bool:
    """Whether a file of positions may have some of ``path``, according to the bounds of the paths in it."""
    lower = (deletions.file.lower_bounds or {}).get(_PATH_ID)
    upper = (deletions.file.upper_bounds or {}).get(_PATH_ID)
    encoded = path.encode()
    # Writers may cut bounds off: an upper one that is a prefix of the path says nothing.
    return not (lower and encoded < lower) and not (upper and encoded > upper and not encoded.startswith(upper))


def _comparable(rows: pa.Table) -> pa.Table:
    """Two columns for each, without nulls: whether it is null, and its exact value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, pa.ChunkedArray] = {}
    for name in rows.column_names:
        values = exact(rows[name])
        columns[f"{name} is null"] = pc.is_null(values)
        columns[name] = pc.fill_null(values, _filling(values.type))
    return pa.table(columns)


def _filling(kind: pa.DataType) -> pa.Scalar:
    """Any value of the type."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    zero: Any = "" if pa.types.is_string(kind) else b"" if pa.types.is_binary(kind) else 0
    return pa.scalar(False) if pa.types.is_boolean(kind) else pa.scalar(zero, kind)
