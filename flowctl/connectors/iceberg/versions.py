"""One version of a table as a source reads it: a snapshot, the schema under which its rows are read, and its files.

A version's number is the sequence number of its snapshot, which grows with each commit and stays when the table is
rolled back. Snapshots that were made while a table had format version 1 have none: their time takes its place, so that
the upgraded table's numbers are lower, which a plan takes for a rollback. Zero is a table that nobody has written yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flowctl import delays
from flowctl.connectors.iceberg.errors import errors_of
from flowctl.connectors.iceberg.table import TablePlace
from flowctl.connectors.iceberg.types import columns_of
from flowctl.errors import TableError
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_FORMATS = (1, 2)


@dataclass(frozen=True)
class LiveFile:
    """A data file, or a file of deletions. ``sequence`` decides which deletions apply to which data; ``version`` is
    that which added the file."""

    file: DataFile
    sequence: int
    version: int

    @property
    def path(self) -> str:
        return self.file.file_path

    @property
    def partition(self) -> tuple[int, tuple[object, ...]]:
        """Equal for files of the same partition: also of that of NaN, which does not equal itself."""
        values = (self.file.partition[at] for at in range(len(self.file.partition)))
        return self.file.spec_id, tuple("NaN" if value != value else value for value in values)


@dataclass(frozen=True)
class TableVersion:
    """``snapshot``: None for a table that nobody has written yet."""

    place: TablePlace
    handle: Table
    snapshot: Snapshot | None
    schema: Schema

    @property
    def identity(self) -> str:
        return str(self.handle.metadata.table_uuid)

    @property
    def version(self) -> int:
        return version_of(self.snapshot) if self.snapshot is not None else 0

    def stamp_of(self, version: int) -> str:
        """Tells this version of the table from another one of its number: the id of its snapshot; empty if it has
        expired."""
        ids = [one.snapshot_id for one in self.handle.metadata.snapshots if version_of(one) == version]
        return str(ids[0]) if len(ids) == 1 else ""

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.schema)

    @cached_property
    def metadata(self) -> TableMetadata:
        """With :attr:`schema` as the current one."""
        return self.handle.metadata.model_copy(update={"current_schema_id": self.schema.schema_id})

    @cached_property
    def manifests(self) -> tuple[ManifestFile, ...]:
        if self.snapshot is None:
            return ()
        with errors_of(self.place.shown):
            return tuple(self.snapshot.manifests(self.handle.io))

    @cached_property
    def data(self) -> Mapping[str, LiveFile]:
        """Its data files by path, oldest first."""
        return self._files(is_data=True)

    @cached_property
    def deletions(self) -> Mapping[str, LiveFile]:
        """Its files of deletions by path."""
        return self._files(is_data=False)

    @property
    def has_deletions(self) -> bool:
        return any(not _is_data(manifest) for manifest in self.manifests)

    @property
    def stored_rows(self) -> int | None:
        """The rows of its data files, deleted ones included; None if a manifest list does not have it (version 1)."""
        counts = [
            count
            for manifest in self.manifests
            if _is_data(manifest)
            for count in (manifest.existing_rows_count, manifest.added_rows_count)
        ]
        return None if None in counts else sum(count for count in counts if count is not None)

    def added_by(self, snapshot: Snapshot) -> Iterator[LiveFile]:
        """The data files that this snapshot added."""
        from pyiceberg.manifest import ManifestEntryStatus

        with errors_of(self.place.shown):
            for manifest in snapshot.manifests(self.handle.io):
                if not _is_data(manifest) or manifest.added_snapshot_id != snapshot.snapshot_id:
                    continue
                for entry in manifest.fetch_manifest_entry(self.handle.io):
                    if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                        yield self._live(entry)

    def _files(self, *, is_data: bool) -> Mapping[str, LiveFile]:
        with errors_of(self.place.shown):
            found = [
                self._live(entry)
                for manifest in self.manifests
                if _is_data(manifest) is is_data
                for entry in manifest.fetch_manifest_entry(self.handle.io)
            ]
        return {one.path: one for one in sorted(found, key=lambda one: (one.version, one.path))}

    def _live(self, entry: ManifestEntry) -> LiveFile:
        sequence = entry.sequence_number or 0
        by = self.handle.metadata.snapshot_by_id(entry.snapshot_id) if entry.snapshot_id is not None else None
        return LiveFile(entry.data_file, sequence, sequence or (version_of(by) if by is not None else 0))


def version_of(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or snapshot.timestamp_ms


def newest_version(place: TablePlace) -> TableVersion | None:
    """The newest version under the newest schema, or None if the catalog has no such table."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    delays.pause()
    with suppress(NoSuchTableError, NoSuchNamespaceError), errors_of(place.shown):
        handle = place.catalog.load_table(place.identifier)
        if handle.metadata.format_version not in _FORMATS:
            raise TableError(
                f"{place.shown} has format version {handle.metadata.format_version}, which flowctl cannot read",
                hint="Read a copy of the table with `'format-version' = '2'`",
            )
        return TableVersion(place, handle, handle.metadata.snapshot_by_name("main"), handle.metadata.schema())
    return None


def older_version(newest: TableVersion, version: int, schema_id: int | None = None) -> TableVersion:
    """The version of this number, under the schema ``schema_id`` or the one that it was written with.
    :class:`TableError` if it has expired."""
    metadata = newest.handle.metadata
    snapshot = None
    if version:
        found = [one for one in metadata.snapshots if version_of(one) == version]
        if len(found) != 1:
            what = "has expired" if not found else "is the number of several snapshots"
            raise TableError(
                f"version {version} of {newest.place.shown} {what}",
                hint="Choose a version that still exists, or plan again; keep snapshots for longer than runs are apart",
            )
        snapshot = found[0]
    wanted = schema_id if schema_id is not None else snapshot.schema_id if snapshot is not None else None
    schema = next((one for one in metadata.schemas if one.schema_id == wanted), None)
    if schema is None and schema_id is not None:
        raise TableError(f"the schema of {newest.place.shown} was changed since the plan was made", hint="Plan again")
    return TableVersion(newest.place, newest.handle, snapshot, schema if schema is not None else metadata.schema())


def version_at(newest: TableVersion, position: VersionPosition) -> TableVersion:
    """The version of a position, under the schema with which it was read, as far as the table still has that."""
    known = {str(one.schema_id): one.schema_id for one in newest.handle.metadata.schemas}
    return older_version(newest, position.version, known.get(position.schema))


def _is_data(manifest: ManifestFile) -> bool:
    from pyiceberg.manifest import ManifestContent

    return manifest.content == ManifestContent.DATA
