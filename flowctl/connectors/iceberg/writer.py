"""Commits to an Iceberg table: new files, removed files, changed columns and the record become visible in one commit of
the catalog.

- The new rows are in files that no reader sees yet; files with removed rows are written again without them.
- The commit requires that the table's newest snapshot is still the one from which everything was computed, or that the
  table does not exist yet. PyIceberg would repeat a refused commit by itself, on top of whatever has come in between:
  its transaction is only filled, and flowctl hands its content to the catalog.
- Whether a number is free is read from the opened table, and the snapshot requirement holds for the same table: so a
  number is committed once or never, whichever process is killed or late.

An append only adds rows, so it may follow another snapshot, if the table, once opened again, shows that the number is
still free. Nothing else may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from flowctl import crashpoints, delays
from flowctl.connectors.buffered import computed, record_batches
from flowctl.connectors.iceberg import data_files
from flowctl.connectors.iceberg import record as records
from flowctl.connectors.iceberg.errors import errors_of
from flowctl.connectors.iceberg.schema_evolution import evolve
from flowctl.connectors.iceberg.table import OpenTable, TablePlace, new_table, open_table
from flowctl.connectors.iceberg.types import columns_of
from flowctl.connectors.lake import rows
from flowctl.connectors.lake.changes import Change, ChangeBuilder
from flowctl.connectors.lake.conditions import Condition
from flowctl.connectors.lake.record import Record, data_commit
from flowctl.connectors.lake.table import Removal
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch, OnEngine
from flowctl.errors import StateConflict, TransientError, WriteConflict
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column
from flowctl.storage.access import in_one_line
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Transaction
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyspark.sql import DataFrame, SparkSession

_TRIES = 10


@dataclass(frozen=True)
class IcebergWriter:
    """Implements :class:`flowctl.connectors.lake.writer.Writer`, on any engine."""

    spark: SparkSession
    buffer: Buffer

    def prepare(self, place: TablePlace, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """The table that ``job`` targets, or one that its commit makes."""
        table = table or new_table(place, job.columns, job.layout.partition_by)
        table.check_intent(job.record)
        return table

    def open_sidecar(self, place: TablePlace, side: WriteJob) -> tuple[OpenTable, IcebergWriter]:
        """The commit makes it, and adds its columns."""
        return open_table(place) or new_table(place, side.columns), self

    def put(self, table: OpenTable, record: Record, batch: Batch, job: WriteJob) -> Record:
        def build(changes: ChangeBuilder) -> Change:
            if job.replaces_content:
                return changes.overwrite(batch)
            return changes.append(batch) if job.mode == "append" else changes.merge(batch)

        return self._commit(table, record, job, build)

    def rows_with_keys(self, table: OpenTable, job: WriteJob, batch: Batch, frame: DataFrame) -> Batch:
        return ChangeBuilder(self.spark, self.buffer, table, table.columns, job).candidates(batch).rows

    def apply_versions(self, table: OpenTable, record: Record, versions: Batch, job: WriteJob) -> Record:
        return self._commit(table, record, job, lambda changes: changes.apply_versions(versions))

    def replace_where(
        self, table: OpenTable, record: Record, going: Condition, coming: Condition, batch: Batch, side: WriteJob
    ) -> Record:
        return self._commit(table, record, side, lambda changes: changes.replace_where(going, batch))

    def _commit(
        self, table: OpenTable, record: Record, job: WriteJob, build: Callable[[ChangeBuilder], Change]
    ) -> Record:
        """Commits the change that ``build`` computes for ``table``. ``job`` has the table's columns after it."""
        if done := table.standing(record, job.base):
            return done
        draft = Draft.begin(table, job)
        change = build(ChangeBuilder(self.spark, self.buffer, table, draft.columns, job))
        added = draft.write(self._batches(change, draft.columns, job))
        removed = [task.file for task in change.removal.removed]
        metrics = _metrics(table, change, added, job)
        job.before_commit()
        crashpoints.reached("in_commit", job.record.table)
        for _ in range(_TRIES if change.is_blind else 1):
            if done := draft.commit(record, added.all, removed, metrics):
                return done
            again = open_table(table.place)
            if again is None:
                break
            if done := again.standing(record, job.base):
                return done
            if again.identity != table.identity or again.metadata.schema() != table.metadata.schema():
                break
            if again.metadata.spec() != table.metadata.spec():
                break
            draft = Draft.begin(again, job)
        raise WriteConflict(f"another writer committed to {table.place.shown} at the same moment")

    def _batches(self, change: Change, columns: Sequence[Column], job: WriteJob) -> _Rows:
        new: Iterator[pa.RecordBatch] = iter(())
        if change.new is not None:
            batch = rows.refuse(change.new, rows.nulls_refused(columns))
            if isinstance(batch, OnEngine) and batch.folder is None:
                name = f"{job.record.table}-{job.record.seq}-new"
                batch = computed(batch.frame, batch, partial(self.buffer.folder, name))
            new = record_batches(batch)
        return _Rows(new, change.removal)


@dataclass(frozen=True)
class _Rows:
    new: Iterator[pa.RecordBatch]
    removal: Removal


@dataclass(frozen=True)
class _Added:
    """The files of new rows, and those of rows that stay while others of their files are removed."""

    new: list[DataFile]
    kept: list[DataFile]

    @property
    def all(self) -> list[DataFile]:
        return [*self.new, *self.kept]


def _metrics(table: OpenTable, change: Change, added: _Added, job: WriteJob) -> dict[str, int]:
    """With the names that :func:`flowctl.connectors.lake.record.counts` knows."""
    metrics = {"numOutputRows": sum(file.record_count for file in added.new), **(change.metrics or {})}
    metrics["numOutputBytes"] = sum(file.file_size_in_bytes for file in added.all)
    if job.replaces_content and (before := table.row_count) is not None:
        metrics["numTargetRowsDeleted"] = before
    if change.marked:
        metrics["numTargetRowsUpdated"] -= change.marked
        metrics["numTargetRowsDeleted"] = change.marked
    return metrics


@dataclass(frozen=True)
class Draft:
    """A transaction on top of ``table`` that has the columns of the commit already."""

    table: OpenTable
    transaction: Transaction

    @classmethod
    def begin(cls, table: OpenTable, job: WriteJob) -> Draft:
        transaction = table.transaction()
        if table.creation is None:
            evolve(transaction, job.columns, replaces=job.replaces_content)
        return cls(table, transaction)

    @property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.transaction.table_metadata.schema())

    def write(self, found: _Rows) -> _Added:
        metadata, storage = self.transaction.table_metadata, self.table.place.storage
        new = data_files.write(metadata, storage, found.new)
        kept: list[DataFile] = []
        for search, at, gone in found.removal.kept:
            others = (table.to_batches() for table in search.other_rows(at, gone))
            kept += data_files.write(metadata, storage, chain.from_iterable(others))
        return _Added(new, kept)

    def commit(
        self,
        record: Record,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        metrics: Mapping[str, int],
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Record | None:
        """Commits, with further ``properties`` of the snapshot. Returns the commit, read back; None if it was refused,
        or if the table shows, after an error, that the number was committed nevertheless."""
        place = self.table.place
        own = records.snapshot_properties(record, metrics)
        snapshot_id = self.replace_files(added, removed, {**own, **properties})
        with errors_of(place.shown):
            self.transaction.set_properties(records.table_properties(record, snapshot_id, self.table.version + 1))
        try:
            is_committed = self.hand_over()
        except TransientError as error:
            with suppress(TransientError):  # the first error is more informative
                there = open_table(place)
                if there is not None and there.standing(record) is not None:
                    return None
            raise TransientError(f"{place.shown}: the commit may have failed: {error}") from error
        return self._read_back(record) if is_committed else None

    def replace_files(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        properties: Mapping[str, str] = MappingProxyType({}),
        *,
        same_rows: bool = False,
    ) -> int:
        """Fills the transaction with a snapshot, and returns its id. ``same_rows``: the files that are added have the
        rows of those that are removed."""
        from flowctl.connectors.iceberg.snapshots import FilesReplaced

        place = self.table.place
        with errors_of(place.shown):
            producer = FilesReplaced(self.transaction, properties, removes=bool(removed), same_rows=same_rows)
            for file in added:
                producer.append_data_file(file)
            for file in removed:
                producer.delete_data_file(file)
            producer.commit()
        return int(producer.snapshot_id)

    def apply(self, update: TableUpdate, requirement: TableRequirement) -> None:
        with errors_of(self.table.place.shown):
            cast("Any", self.transaction)._apply((update,), (requirement,))

    def hand_over(self) -> bool:
        """Commits what the transaction was filled with; False if the table has another version by now.
        :class:`TransientError` if nobody knows."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError
        from pyiceberg.table.update import AssertCreate, AssertTableUUID

        table, filled = self.table, cast("Any", self.transaction)
        requirements = (*filled._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
        if table.creation is not None:
            requirements = (AssertCreate(),)
        delays.pause()
        try:
            with errors_of(table.place.shown):
                table.place.catalog.commit_table(table.handle, requirements, filled._updates)
        except (CommitFailedException, TableAlreadyExistsError):
            return False
        except CommitStateUnknownException as error:
            raise TransientError(in_one_line(error)) from error
        delays.pause()
        return True

    def _read_back(self, record: Record) -> Record:
        there = open_table(self.table.place)
        done = there.standing(record) if there is not None else None
        if done is None:
            raise StateConflict(
                f"{self.table.place.shown}: the commit just made no longer exists",
                hint="Find out who changes this table, and run again",
            )
        return done


def void(place: TablePlace, job: WriteJob) -> Record | None:
    """Gives up a number: commits ``job.record`` as a snapshot without changes, or returns an earlier commit of that
    number. A table that does not exist yet is made, empty: a stale writer then finds the name taken, and in the table
    the number. Without columns there can be no table: None. :class:`TransientError` if other writers keep winning."""
    wanted = Record(job.record)
    for _ in range(_TRIES):
        table = open_table(place)
        if table is not None and (done := table.standing(wanted)):
            return done
        if table is None and not job.columns:
            return None
        table = table or new_table(place, job.columns, job.layout.partition_by)
        last = data_commit(table.newest(wanted.app_id))
        commit: Commit = replace(job.record, target_id=table.identity)
        job.before_commit()
        given_up = Record(commit, attempt=last.attempt, data_seq=last.number)
        if done := Draft(table, table.transaction()).commit(given_up, (), (), {}):
            return done
    raise TransientError(f"{place.shown} is written by others too fast to commit number {job.record.seq} as void")
