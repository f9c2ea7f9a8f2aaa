"""Brings an Iceberg table back to the content of an earlier sequence number, in one snapshot.

The snapshot removes the files that the earlier one did not have, adds copies of those that it had, and makes its schema
the current one. Unlike a rollback it has a sequence number and a record: it is the flow's own commit, without data of
its own and with the position of the earlier one. Copies, because a file that a snapshot has removed is deleted when
that snapshot expires, even if a later one has it again. For others it is an ordinary overwrite: they read what changed.

A history's sidecar is restored after its table. In between, the later observations do not count, because the record
names the last number whose observations do (:func:`flowctl.connectors.lake.history.lost_observations_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from flowctl import crashpoints, text
from flowctl.connectors.iceberg import data_files
from flowctl.connectors.iceberg import record as records
from flowctl.connectors.iceberg.errors import errors_of
from flowctl.connectors.iceberg.table import OpenTable, TablePlace, open_table
from flowctl.connectors.iceberg.versions import TableVersion, version_of
from flowctl.connectors.iceberg.writer import Draft
from flowctl.connectors.lake.past import Past, PastCommit, read_past, version_of_observations
from flowctl.connectors.lake.record import OBSERVATIONS, Record, app_id, data_commit, sidecar_record
from flowctl.connectors.restoration import Restoration, VersionChange
from flowctl.errors import StoppedByPolicy, WriteConflict
from flowctl.model.commit import Commit
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import ObjectName

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.snapshots import Snapshot

#: A property of the snapshot that restores a version: its number.
_RESTORES = "flowctl.restores"
#: Files that are looked for, or copied, at the same time.
_AT_ONCE = 16


def find(place: TablePlace, record: Commit, object: ObjectName, seq: int) -> Restoration:
    """As :meth:`flowctl.connectors.restoration.Restorable.find_restoration`."""
    table = open_table(place)
    if table is None:
        raise StoppedByPolicy(f"{place.shown} does not exist", hint="Run `flowctl apply`: it creates the table")
    commits = _commits(table, app_id(record.lineage, record.table))
    past = read_past(commits, seq, place.shown, f"the history of {place.shown}")
    change = _Change.to_version(table, past.version)
    newest = table.newest(past.wanted.app_id)
    sidecar, origins = tuple(_sidecar_changes(place, past)), tuple(one.commit for one in past.origins)
    if newest is not None and newest.restores == seq and change.is_empty:
        done = replace(newest.commit, restored=seq)
        now = table.info(object)
        return Restoration(done, object, now, now, origins, None, sidecar, at=past.at)
    change.require_possible()
    return Restoration(
        replace(record, position=past.wanted.commit.position, target_id=table.identity, restored=seq),
        object,
        before=table.info(object),
        after=replace(change.restored.info(object), version=table.version + 1),
        table=change.shown,
        origins=origins,
        sidecars=sidecar,
        undone=past.undone,
        others=past.others,
        at=past.at,
    )


def carry_out(place: TablePlace, restoration: Restoration, before_commit: Callable[[], None]) -> None:
    """As :meth:`flowctl.connectors.restoration.Restorable.restore`."""
    for one in restoration.changes:
        is_own = one is restoration.table
        there = place if is_own else place.beside(OBSERVED)
        table = open_table(there)
        if table is None or table.version != one.newest:
            raise _conflict(there)
        change = _Change.to_version(table, one.version)
        draft = change.begin()
        added = change.copy_files()
        before_commit()
        crashpoints.reached("in_commit", there.identifier[-1])
        if is_own:
            record = _record(change, restoration)
        else:
            record = sidecar_record(restoration.commit, table.version, table.identity, OBSERVATIONS)
        if draft.commit(record, added, change.removed, {}, change.properties) is None:
            raise _conflict(there)
        crashpoints.reached("after_commit", there.identifier[-1])


@dataclass(frozen=True)
class _Change:
    """From ``table`` to its own earlier snapshot ``past``."""

    table: OpenTable
    past: Snapshot

    @classmethod
    def to_version(cls, table: OpenTable, version: int) -> _Change:
        found = (one for one in records.ancestors(table.metadata) if version_of(one) == version)
        past = next(found, None)
        if past is None:
            raise _lost(table.place, version, "its snapshot has expired")
        return cls(table, past)

    @cached_property
    def old(self) -> TableVersion:
        schemas = self.table.metadata.schemas
        schema = next((one for one in schemas if one.schema_id == self.past.schema_id), None)
        if schema is None:
            raise _lost(self.table.place, self.version, "its schema was removed")
        return TableVersion(self.table.place, self.table.handle, self.past, schema)

    @cached_property
    def new(self) -> TableVersion:
        return TableVersion(self.table.place, self.table.handle, self.table.snapshot, self.table.metadata.schema())

    @property
    def removed(self) -> list[DataFile]:
        kept = self.old.data
        return [one.file for path, one in self.new.data.items() if path not in kept]

    @property
    def added(self) -> list[DataFile]:
        """Files of the earlier snapshot, to be copied."""
        there = self.new.data
        return [one.file for path, one in self.old.data.items() if path not in there]

    @property
    def is_empty(self) -> bool:
        """Whether the table has that content, in the same files or in the copies of a restoration."""
        if self.old.schema.schema_id != self.new.schema.schema_id:
            return False
        return self._is_restored or (not self.removed and not self.added)

    @property
    def _is_restored(self) -> bool:
        """Whether the newest snapshot that changed rows restored this version."""
        changing = (one for one in records.ancestors(self.table.metadata) if _changes_rows(one))
        newest = next(changing, None)
        return newest is not None and _restored_by(newest) == str(self.version)

    @property
    def version(self) -> int:
        return version_of(self.past)

    @property
    def properties(self) -> dict[str, str]:
        """Of the snapshot."""
        return {_RESTORES: str(self.version)}

    @property
    def shown(self) -> VersionChange:
        return VersionChange(self.table.url, self.table.version, self.version, (_rows(self.new), _rows(self.old)))

    @property
    def restored(self) -> OpenTable:
        """The table as it was then."""
        from pyiceberg.table import Table
        from pyiceberg.table.refs import SnapshotRef

        handle, past = self.table.handle, self.past
        changed = {
            "current_schema_id": self.old.schema.schema_id,
            "current_snapshot_id": past.snapshot_id,
            "refs": {"main": SnapshotRef.model_validate({"snapshot-id": past.snapshot_id, "type": "branch"})},
        }
        metadata = handle.metadata.model_copy(update=changed)
        same_place = (handle.metadata_location, handle.io, handle.catalog)
        return OpenTable(self.table.place, Table(handle.name(), metadata, *same_place))

    def begin(self) -> Draft:
        """A commit on top of the table, with the earlier schema."""
        from pyiceberg.table.update import AssertCurrentSchemaId, SetCurrentSchemaUpdate

        draft, now, then = Draft(self.table, self.table.transaction()), self.new.schema, self.old.schema
        if now.schema_id != then.schema_id:
            draft.apply(
                SetCurrentSchemaUpdate.model_validate({"schema-id": then.schema_id}),
                AssertCurrentSchemaId.model_validate({"current-schema-id": now.schema_id}),
            )
        return draft

    def copy_files(self) -> list[DataFile]:
        metadata, storage = self.table.metadata, self.table.place.storage
        with errors_of(self.table.place.shown), ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda file: data_files.copy(metadata, storage, file), self.added))

    def require_possible(self) -> None:
        """:class:`StoppedByPolicy` if the table has what flowctl does not write, or files are missing."""
        place, metadata = self.table.place, self.table.metadata
        by_hand = "Roll back with the engine that wrote it (system.rollback_to_snapshot); then `flowctl state adopt`"
        if self.new.has_deletions or self.old.has_deletions:
            raise StoppedByPolicy(
                f"{place.shown} has deletions in files of their own, which flowctl does not restore", hint=by_hand
            )
        if any(file.spec_id != metadata.default_spec_id for file in self.added):
            raise StoppedByPolicy(f"{place.shown} was partitioned in another way then", hint=by_hand)
        for field in metadata.spec().fields:
            if self.old.schema.find_column_name(field.source_id) is None:
                raise StoppedByPolicy(f"{place.shown} is partitioned by {field.name}, which is newer", hint=by_hand)
        if missing := self._missing_files():
            deleted = f"{'was' if len(missing) == 1 else 'were'} deleted"
            why = f"{text.counted(len(missing), 'file')} of it, such as {missing[0]}, {deleted}"
            raise _lost(place, self.version, why)

    def _missing_files(self) -> list[str]:
        io, paths = self.table.handle.io, sorted(self.old.data)
        with errors_of(self.table.place.shown), ThreadPoolExecutor(_AT_ONCE) as pool:
            there = pool.map(lambda path: io.new_input(path).exists(), paths)
            return [path for path, is_there in zip(paths, there, strict=True) if not is_there]


def _commits(table: OpenTable, app: str) -> Iterator[PastCommit]:
    """Newest first, as far as snapshots are kept."""
    for one in records.ancestors(table.metadata):
        record, is_restored = records.record_of(one, app), _restored_by(one) is not None
        yield PastCommit(version_of(one), record, _changes_rows(one), one.timestamp_ms, is_restored)


def _restored_by(snapshot: Snapshot) -> str | None:
    """The version that the snapshot has restored, if it has."""
    return snapshot.summary[_RESTORES] if snapshot.summary is not None else None


def _changes_rows(snapshot: Snapshot) -> bool:
    from pyiceberg.table.snapshots import Operation

    return snapshot.summary is None or snapshot.summary.operation != Operation.REPLACE


def _sidecar_changes(place: TablePlace, past: Past) -> Iterator[VersionChange]:
    """That of a history's sidecar, if it has other observations now."""
    sidecar = open_table(place.beside(OBSERVED))
    if sidecar is None:
        return
    app = app_id(past.wanted.commit.lineage, past.wanted.commit.table, OBSERVATIONS)
    version = version_of_observations(_commits(sidecar, app), past, f"the history of {sidecar.place.shown}")
    if version is None:
        return
    change = _Change.to_version(sidecar, version)
    if not change.is_empty:
        change.require_possible()
        yield change.shown


def _rows(version: TableVersion) -> int:
    return sum(one.file.record_count for one in version.data.values())


def _record(change: _Change, restoration: Restoration) -> Record:
    """The record of the commit that restores the earlier snapshot."""
    seq, app = restoration.commit.restored, app_id(restoration.commit.lineage, restoration.commit.table)
    assert seq is not None, "as found"
    last = data_commit(records.record_of(change.past, app))
    return Record(restoration.commit, attempt=last.attempt, data_seq=last.number, restores=seq)


def _lost(place: TablePlace, version: int, why: str) -> StoppedByPolicy:
    return StoppedByPolicy(
        f"version {version} of {place.shown} cannot be read any more: {why}", hint="Choose a later number"
    )


def _conflict(place: TablePlace) -> WriteConflict:
    return WriteConflict(f"another writer committed to {place.shown} at the same moment")
