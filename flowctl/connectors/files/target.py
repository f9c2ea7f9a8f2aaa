"""Files as a target: a table is a folder of data files, and a manifest says which of them are the table.

This process writes the files, wherever the rows were computed. A commit is the creation of the next manifest, which
has the commit's record; of racing writers one creates it, and the others look again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from flowctl import crashpoints
from flowctl.connectors.at_once import at_once
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.buffered import computed, record_batches
from flowctl.connectors.files.listing import FileRoot
from flowctl.connectors.files.sink.folder import TableFolder
from flowctl.connectors.files.sink.manifest import Manifest, dialect_of
from flowctl.connectors.files.sink.refusals import refuse_columns
from flowctl.connectors.files.sink.writing import NewFiles, new_files
from flowctl.connectors.preconditions import (
    already_committed,
    check_base,
    foreign_target,
    identified,
    verify_total,
)
from flowctl.connectors.target import CommitLookup, Staged, Target, WriteJob, WriteShape
from flowctl.engine.batch import Batch, OnEngine
from flowctl.errors import FlowctlError, StateConflict, StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import Layout
from flowctl.storage.blobs import BlobStore
from flowctl.storage.buffer import Buffer
from flowctl.storage.folders import why_unwritable
from flowctl.storage.options import open_store
from flowctl.storage.urls import path_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FilesTarget(Target):
    root: FileRoot
    context: OpenContext
    capabilities: Capabilities

    # Rules for plans

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        listed = ", ".join(f"{column.name} {types.short(column.type)}" for column in columns)
        return [f"CREATE FILES {object} ({listed}) AS {layout.files.format}"]

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """The columns are in the manifest, so each change is part of the commit."""
        return [_with_statement(info.object, change) for change in changes]

    def explain_create(self, columns: Sequence[Column], layout: Layout) -> str:
        files = layout.files
        return files.format if files.codec == "none" else f"{files.format}, {files.codec}"

    def confirm_write(self, object: ObjectName, write: WriteShape, written: Sequence[str]) -> str:
        """Looks into the folder: whether it is free, or has files like those that would be written."""
        refuse_columns(write.columns, write.layout.files)
        folder, replaces = self._folder(object), write.replaces or write.mode == "truncate"
        manifest = folder.newest()
        _require_fitting(folder, manifest, manifest.columns_with(write.columns), write.layout, replaces=replaces)
        return ""

    # Reading

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        return {object: _described(object, manifest) for object, manifest in self._newest(objects).items()}

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        return {object: path_place(self._folder(object).root.url, "") for object in objects}

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        found = self._newest([one.object for one in lookups])
        return {one.table: found[one.object].newest(one.lineage, one.table) for one in lookups}

    def described_and_committed(
        self, lookups: Sequence[CommitLookup]
    ) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
        found = self._newest([one.object for one in lookups])
        return {
            one.table: (_described(one.object, found[one.object]), found[one.object].newest(one.lineage, one.table))
            for one in lookups
        }

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        """For local folders: an object store reports it at the first write only."""
        return why_unwritable(self._folder(object).local("")) if self.root.is_local else None

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        from flowctl.connectors.files.sink.scanning import scan

        return scan(spark, self._folder(object), columns, lambda: self._buffer.folder(f"scan-{object}"))

    # Writing

    @contextmanager
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Iterator[Staged]:
        layout = job.layout.files
        refuse_columns(job.columns, layout)
        if isinstance(batch, OnEngine):
            batch = computed(batch.frame, batch, partial(self._buffer.folder, f"rows-{job.object}-{job.record.seq}"))
        folder = self._folder(job.object)
        columns = job.columns if job.replaces_content else folder.newest().columns_with(job.columns)
        with new_files(folder, job.record, record_batches(batch), columns, layout) as files:
            verify_total(job, files.rows)
            yield Staged(job, files)

    def commit(self, staged: Sequence[Staged]) -> list[Commit]:
        """One after the other."""
        return [self._commit(one.job, one.rows) for one in staged]

    def void(self, job: WriteJob) -> Commit:
        return self._commit(replace(job, record=replace(job.record, void=True)), None)

    def quarantine(
        self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int, through: int | None = None
    ) -> None:
        from flowctl.connectors.files.sink.sidecar import replace_rejected

        folder = self._buffer.folder(f"rejected-{job.object}-{job.record.seq}")
        replace_rejected(self._folder(job.object), frame, folder, job, since, through)

    def clean_up(self, object: ObjectName) -> tuple[str, ...]:
        folder = self._folder(object)
        return _cleaned(folder, folder.newest())

    def _commit(self, job: WriteJob, files: NewFiles | None) -> Commit:
        """``files`` None: a void, which changes nothing else."""
        folder, record = self._folder(job.object), job.record
        while True:
            manifest = folder.newest()
            newest = manifest.newest(record.lineage, record.table)
            if newest is not None and newest.seq >= record.seq:
                return already_committed(newest, record)
            check_base(record.table, newest.name if newest else "", job.base)
            next_one = _next(folder, manifest, job, files)
            job.before_commit()
            if files is not None:
                with folder.own_errors():
                    files.publish()
            crashpoints.reached("in_commit", record.table)
            if folder.create(next_one):
                break
        crashpoints.reached("before_clean", record.table)
        return self._confirmed(folder, next_one, manifest, job, files)

    def _confirmed(
        self, folder: TableFolder, made: Manifest, before: Manifest, job: WriteJob, files: NewFiles | None
    ) -> Commit:
        """The commit as it is read back: a version may be free only because it was removed long ago."""
        newest = folder.newest()
        found = newest.newest(job.record.lineage, job.record.table)
        if found is None:
            raise StateConflict(
                f"{job.object}: the commit just made no longer exists",
                hint="Find out who removes files here, and run again",
            )
        commit = already_committed(found, job.record)
        warnings = _cleaned(folder, newest)
        if files is None:
            return commit
        deleted = before.rows if job.replaces_content else None
        counts = RowCounts(read=files.rows, inserted=files.rows, deleted=deleted, bytes=files.bytes)
        return replace(commit, counts=counts, warnings=warnings)

    def _newest(self, objects: Sequence[ObjectName]) -> dict[ObjectName, Manifest]:
        folders = {object: self._folder(object) for object in objects}  # with one client, which is started here
        return at_once(TableFolder.newest, folders)

    def _folder(self, object: ObjectName) -> TableFolder:
        path = "/".join(object.parts)
        return TableFolder(replace(self.root, url=f"{self.root.url.rstrip('/')}/{path}"), path, self._blobs)

    @cached_property
    def _blobs(self) -> BlobStore:
        return open_store(self.root.url, self.context.storage, private=False)

    @property
    def _buffer(self) -> Buffer:
        if self.context.buffer is None:
            raise FlowctlError("files were opened as a target without a buffer", hint="Use `flowctl apply`")
        return self.context.buffer


def _cleaned(folder: TableFolder, manifest: Manifest) -> tuple[str, ...]:
    """Warnings: the commit stands."""
    try:
        folder.clean(manifest)
    except FlowctlError as error:
        return (f"{folder.path}: files that are no longer needed could not be removed: {error.message}",)
    return ()


def _next(folder: TableFolder, manifest: Manifest, job: WriteJob, files: NewFiles | None) -> Manifest:
    """What follows ``manifest`` by this commit. Raises :class:`FlowctlError` if it is not what the intent was for."""
    record = job.record
    if files is None:
        record = replace(record, target_id=record.target_id or manifest.id)
        return replace(manifest, version=manifest.version + 1, commits=manifest.with_commit(record))
    if manifest.id and not record.target_id:
        raise foreign_target(record, job.object)
    if not manifest.id and record.target_id:
        raise TableError(
            f"there are no files of {job.object}", hint="Plan again: they were removed since the plan was made"
        )
    _require_fitting(folder, manifest, files.columns, job.layout, replaces=job.replaces_content)
    columns = files.columns if job.replaces_content else manifest.columns_with(files.columns)
    record = identified(record, manifest.id or f"files:{uuid.uuid4()}")
    return Manifest(
        version=manifest.version + 1,
        id=record.target_id,
        dialect=dialect_of(job.layout.files),
        columns=tuple(Column(column.name, column.type) for column in columns),
        files=files.entries if job.replaces_content else (*manifest.files, *files.entries),
        commits=manifest.with_commit(record),
    )


def _require_fitting(
    folder: TableFolder, manifest: Manifest, columns: Sequence[Column], layout: Layout, *, replaces: bool
) -> None:
    """Raises :class:`StoppedByPolicy` for a folder with files of others, or with files that are written otherwise."""
    if not manifest.id and (name := folder.foreign_name()) is not None:
        raise StoppedByPolicy(
            f"{folder.root.url} holds {name}, which flowctl has not written",
            hint="Name another folder in `to`, or move away what is in it",
        )
    wanted = dialect_of(layout.files)
    if replaces or not manifest.files:
        return
    if not wanted.header and [column.name for column in columns] != [column.name for column in manifest.columns]:
        raise StoppedByPolicy(
            f"{folder.root.url} has files without a header, in which columns are found by their place",
            hint="Write all files again with --full-refresh, or leave the new column out with columns.exclude",
        )
    if manifest.dialect != wanted:
        is_other = manifest.dialect.format != wanted.format
        what = f"has files of type {manifest.dialect.format}" if is_other else "has files of another dialect of CSV"
        raise StoppedByPolicy(
            f"{folder.root.url} {what}", hint="Set `to.format` as it was, or write all files again with --full-refresh"
        )


def _described(object: ObjectName, manifest: Manifest) -> TableInfo | None:
    if not manifest.id:
        return None
    rows = RowEstimate(manifest.rows, "count", manifest.size)
    return TableInfo(object, manifest.columns, manifest.id, rows=rows)


def _with_statement(object: ObjectName, change: SchemaChange) -> SchemaChange:
    match change.action:
        case "add" | "text" if change.new is not None:
            return replace(change, statement=f"ADD COLUMN {change.column} {types.short(change.new)} TO {object}")
        case "retype" | "drop" | "relax":
            return replace(change, note="by the commit that replaces the content")
        case _:
            return change
