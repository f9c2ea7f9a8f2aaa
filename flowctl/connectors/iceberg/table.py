"""A table as one version of its metadata: all that a commit depends on is read from one opened table, never from two.

Its version is the sequence number of the last snapshot, which grows with each commit of data, and through rollbacks.
A table that does not exist yet is opened as well: it is made by its first commit, together with the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from flowctl import delays
from flowctl.connectors.iceberg import record as records
from flowctl.connectors.iceberg.ancestry import read_earlier
from flowctl.connectors.iceberg.catalogs import TableCatalog
from flowctl.connectors.iceberg.errors import errors_of
from flowctl.connectors.iceberg.types import columns_of
from flowctl.connectors.lake import conditions
from flowctl.connectors.lake.conditions import Condition
from flowctl.connectors.lake.record import Record
from flowctl.connectors.lake.table import Removal, find_standing
from flowctl.connectors.preconditions import check_base, foreign_target
from flowctl.errors import StateConflict, TableError
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.storage.options import Storage

if TYPE_CHECKING:
    from pyiceberg.table import CreateTableTransaction, FileScanTask, Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyroaring import BitMap64

    from flowctl.connectors.lake.row_search import Search

Identifier = tuple[str, ...]


@dataclass(frozen=True)
class TablePlace:
    """Where one table is: its name in a catalog."""

    catalog: TableCatalog
    identifier: Identifier
    storage: Storage

    @property
    def shown(self) -> str:
        return ".".join(self.identifier)

    def beside(self, suffix: str) -> TablePlace:
        """The table of the same name with ``suffix``, in the same namespace."""
        return TablePlace(self.catalog, (*self.identifier[:-1], self.identifier[-1] + suffix), self.storage)


@dataclass(frozen=True)
class OpenTable:
    """All of it describes one version of the metadata, whatever has been committed since. ``creation`` is the
    transaction that makes it, if it does not exist yet."""

    place: TablePlace
    handle: Table
    creation: CreateTableTransaction | None = None

    @property
    def metadata(self) -> TableMetadata:
        return self.creation.table_metadata if self.creation is not None else self.handle.metadata

    @property
    def url(self) -> str:
        return self.metadata.location

    @property
    def version(self) -> int:
        return int(getattr(self.metadata, "last_sequence_number", 0))  # tables of version 1 have none

    @property
    def identity(self) -> str:
        return str(self.metadata.table_uuid)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.metadata.schema())

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns whose values, or something computed from them, are partitions."""
        schema = self.metadata.schema()
        names = (schema.find_column_name(field.source_id) for field in self.metadata.spec().fields)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @cached_property
    def snapshot(self) -> Snapshot | None:
        return self.metadata.snapshot_by_name("main")

    @cached_property
    def files(self) -> tuple[FileScanTask, ...]:
        """The data files of its newest snapshot, each with what is deleted in it."""
        if self.creation is not None or self.snapshot is None:
            return ()
        try:
            with errors_of(self.place.shown):
                return tuple(self.handle.scan(snapshot_id=self.snapshot.snapshot_id).plan_files())
        except ValueError as error:  # equality deletes, which only an engine can apply
            what = f"{self.place.shown} has deletions that flowctl cannot read: {error}"
            raise TableError(what, hint="Let the engine that wrote it compact the table, then run again") from error

    @property
    def is_empty(self) -> bool:
        return self.snapshot is None or self._total("total-data-files") == 0 or not self.files

    @property
    def row_count(self) -> int | None:
        """The number of rows, if the newest snapshot says so: a file of deletions by value has any number of them."""
        if self.snapshot is None:
            return 0
        rows = self._total("total-records")
        if rows is None or self._total("total-equality-deletes"):
            return None
        return rows - (self._total("total-position-deletes") or 0)

    def _total(self, name: str) -> int | None:
        """A total of the snapshot's summary, which writers may leave out."""
        summary = self.snapshot.summary if self.snapshot is not None else None
        text = summary[name] if summary is not None else None
        return int(text) if text is not None and text.isdigit() else None

    def transaction(self) -> Transaction:
        return self.creation if self.creation is not None else self.handle.transaction()

    def info(self, object: ObjectName) -> TableInfo:
        """``identity`` is the table's UUID. ``extra`` has ``partition_by``, ``files`` (how many), ``target_size``
        (bytes at which one is ended), and ``has_equality_deletes`` if the newest snapshot has some."""
        from flowctl.connectors.iceberg.data_files import target_size

        rows = self.row_count
        size = self._total("total-files-size") if self.snapshot is not None else 0
        estimate = RowEstimate(bytes=size) if rows is None else RowEstimate(rows, "stats", size)
        extra = {
            "partition_by": list(self.partition_by),
            "files": self._total("total-data-files") or 0,
            "target_size": target_size(self.metadata),
            **({"has_equality_deletes": True} if self._total("total-equality-deletes") else {}),
        }
        return TableInfo(object, self.columns, self.identity, version=self.version, rows=estimate, extra=extra)

    def newest(self, app: str) -> Record | None:
        with errors_of(self.place.shown):
            return records.newest(self.metadata, app, read_earlier(self.metadata, self.handle.io))

    def standing(self, record: Record, base: str | None = None) -> Record | None:
        """The commit of exactly this intent, or None while its number is free. :class:`StateConflict` if the number
        belongs to another intent, or was given up (a void matches only another void); or if it is free, and the newest
        commit is not ``base``."""
        newest = self.newest(record.app_id)
        done = find_standing(self.place.shown, newest, record)
        if done is None:
            check_base(self.place.shown, newest.commit.name if newest else "", base)
        return done

    def check_intent(self, record: Commit) -> None:
        """Checks that the table is the intent's own: the one it was planned for, or the one that it makes."""
        if record.target_id and record.target_id != self.identity:
            raise StateConflict(
                f"{self.place.shown} is table {self.identity} now, the plan was made for {record.target_id}",
                hint="Plan again: it was dropped and created again",
            )
        if not record.target_id and self.creation is None and self.standing(Record(record)) is None:
            raise foreign_target(record, self.place.shown)  # else another attempt at this number was faster

    def may_match(self, condition: Condition, file: FileScanTask) -> bool:
        from flowctl.connectors.iceberg.statistics import bounds_of

        return conditions.may_match(condition, *bounds_of(self.metadata.schema(), file.file))

    def search(self, columns: tuple[Column, ...], files: Sequence[FileScanTask]) -> Search:
        """``columns`` that the table does not have yet are null in all of its files."""
        from flowctl.connectors.iceberg.file_reader import StoredFile, reading
        from flowctl.connectors.lake.row_search import Search

        found = [StoredFile(task, self.handle.io) for task in files]
        return Search(partial(reading, self.metadata, self.place.storage), found, columns)

    def remove_rows(self, search: Search, files: Sequence[FileScanTask], gone: Mapping[int, BitMap64]) -> Removal:
        """Names the rows; whoever commits writes their files again without them, with the schema of the commit."""
        return Removal(tuple(files[at] for at in gone), tuple((search, at, rows) for at, rows in gone.items()))


def open_table(place: TablePlace) -> OpenTable | None:
    """The table's newest version, or None if the catalog has none."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    delays.pause()
    with suppress(NoSuchTableError, NoSuchNamespaceError), errors_of(place.shown):
        handle = place.catalog.load_table(place.identifier)
        version = handle.metadata.format_version
        if version != 2:
            raise TableError(
                f"{place.shown} has format version {version}; flowctl writes tables of version 2",
                hint="Write to another table, or upgrade one of version 1: SET TBLPROPERTIES ('format-version' = '2')",
            )
        return OpenTable(place, handle)
    return None


def open_existing(place: TablePlace) -> OpenTable:
    table = open_table(place)
    if table is None:
        raise TableError(f"there is no table {place.shown}", hint="Plan again: it was dropped since the plan was made")
    return table


def new_table(place: TablePlace, columns: Sequence[Column], partition_by: Sequence[str] = ()) -> OpenTable:
    """A table that its first commit makes."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    from flowctl.connectors.iceberg.types import schema_of

    schema = schema_of(columns)
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + at, IdentityTransform(), name)
        for at, name in enumerate(partition_by)
    ]
    with errors_of(place.shown):
        place.catalog.create_namespace_if_not_exists(place.identifier[:-1])
        creation = place.catalog.create_table_transaction(
            place.identifier, schema, partition_spec=PartitionSpec(*fields), properties={"format-version": "2"}
        )
    return OpenTable(place, cast("Any", creation)._table, creation)
