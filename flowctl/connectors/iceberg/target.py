"""Iceberg as a target: describes tables, finds what was committed, and commits once per number, in flowctl's own
process on every engine.

**The target's id** is the table's UUID. An intent for a table that does not exist yet has an empty ``target_id``: *the
table this number will create*. The first commit makes the table together with its rows, so an empty table of a dead
attempt never exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from flowctl.connectors.at_once import at_once
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.iceberg.table import OpenTable, TablePlace, open_table
from flowctl.connectors.iceberg.tables import Tables
from flowctl.connectors.iceberg.types import shown
from flowctl.connectors.lake.conditions import quoted
from flowctl.connectors.lake.record import Record, app_id, data_commit
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.connectors.restoration import Restorable, Restoration
from flowctl.connectors.target import CommitLookup, Staged, Target, WriteJob
from flowctl.engine.batch import Batch, OnEngine
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model import types
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout
from flowctl.sql import dialects
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class IcebergTarget(Target, Restorable):
    tables: Tables
    context: OpenContext
    capabilities: Capabilities

    # Rules for plans

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        listed = ", ".join(f"{quoted(column.name)} {shown(column.type)}" for column in columns)
        by = ", ".join(map(quoted, layout.partition_by))
        return [f"CREATE TABLE {self._shown(object)} ({listed}) USING iceberg{f' PARTITIONED BY ({by})' if by else ''}"]

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """The commit changes the schema together with the rows; the statements show what it does."""
        return [_with_statement(self._shown(info.object), change) for change in changes]

    def partition_columns(self, there: TableInfo | None, layout: Layout, *, rebuilds: bool) -> tuple[str, ...]:
        return tuple(there.extra["partition_by"]) if there is not None else layout.partition_by

    def refuse_partitions(self, partitioned: Sequence[Column], columns: Sequence[Column]) -> tuple[str, str] | None:
        for column in partitioned:
            if column.type in (types.FLOAT, types.DOUBLE) or isinstance(column.type, types.Array | types.Struct):
                what = f"an Iceberg table cannot be partitioned by {column.name}, which is {types.short(column.type)}"
                return what, "Name another column under layout.partition_by"
        return None

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        """PyIceberg does not list the files of a table with equality deletes; append needs no list."""
        if (mode == "append" and not replaces) or not info.extra.get("has_equality_deletes"):
            return None
        return StoppedByPolicy(
            f"{info.object} has rows that others deleted by their values (equality deletes), which flowctl cannot read",
            hint="Let the engine that wrote it compact the table, then plan again",
        )

    def nested_keys(self, engine: str, conf: Mapping[str, str]) -> bool:
        return False

    # Reading

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        return at_once(self._info, {object: object for object in objects})

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        return {object: self.tables.address.place(object) for object in objects}

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        return {table: commit for table, (_, commit) in self.described_and_committed(lookups).items()}

    def described_and_committed(
        self, lookups: Sequence[CommitLookup]
    ) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
        return at_once(self._both, {lookup.table: lookup for lookup in lookups})

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        from flowctl.connectors.iceberg.scanning import scan

        return scan(spark, self.tables.open_existing(object), columns, self._buffer.folder(f"scan-{object}"))

    def scan_observed(self, spark: SparkSession, lookup: CommitLookup) -> DataFrame | None:
        """Without the observations of attempts that were never committed."""
        from flowctl.connectors.lake import conditions, history

        observed, table = super().scan_observed(spark, lookup), open_table(self._place(lookup.object))
        if observed is None or table is None:
            return observed
        last = data_commit(table.newest(app_id(lookup.lineage, lookup.table)))
        return observed.where(f"NOT {conditions.sql(history.lost_observations_of(lookup.lineage, last))}")

    def maintenance_due(self, info: TableInfo) -> str:
        from flowctl.connectors.iceberg.maintain import note_for_plan

        return note_for_plan(info)

    def maintenance(self, objects: Sequence[ObjectName], engine: str) -> Mapping[ObjectName, Maintenance]:
        from flowctl.connectors.iceberg.maintain import find_due

        def ask(object: ObjectName) -> Maintenance | None:
            table = open_table(self._place(object))
            return find_due(table, object) if table is not None else None

        found = at_once(ask, {object: object for object in objects})
        return {object: due for object, due in found.items() if due is not None}

    def maintain(
        self, due: Maintenance, session: Callable[[], SparkSession], before_commit: Callable[[], None]
    ) -> Iterator[Task]:
        from flowctl.connectors.iceberg.maintain import carry_out

        return carry_out(self._place(due.object), due, before_commit)

    def find_restoration(self, record: Commit, object: ObjectName, seq: int) -> Restoration:
        from flowctl.connectors.iceberg import restore

        return restore.find(self._place(object), record, object, seq)

    def restore(self, restoration: Restoration, before_commit: Callable[[], None]) -> None:
        from flowctl.connectors.iceberg import restore

        restore.carry_out(self._place(restoration.object), restoration, before_commit)

    # Writing

    def lease_folder(self, object: ObjectName) -> str | None:
        return self.tables.lease_folder(object)

    @contextmanager
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Iterator[Staged]:
        """Writes nothing: which files the commit writes depends on the table as it is then."""
        yield Staged(job, (spark, batch))

    def commit(self, staged: Sequence[Staged]) -> list[Commit]:
        return [self._commit(one) for one in staged]

    def void(self, job: WriteJob) -> Commit | None:
        from flowctl.connectors.iceberg.writer import void

        done = void(self._place(job.object), replace(job, record=replace(job.record, void=True)))
        return _as_commit(done, job) if done is not None else None

    def quarantine(
        self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int, through: int | None = None
    ) -> None:
        from flowctl.connectors.iceberg.writer import IcebergWriter
        from flowctl.connectors.lake import history

        side = history.side_job(job, job.columns)
        table, writer = IcebergWriter(spark, self._buffer).open_sidecar(self._place(job.object), side)
        history.quarantine(writer, table, OnEngine(frame), side, since, through)

    def _commit(self, staged: Staged) -> Commit:
        from flowctl.connectors.iceberg.writer import IcebergWriter

        (spark, rows), job = staged.rows, staged.job
        place, writer = self._place(job.object), IcebergWriter(spark, self._buffer)
        table = open_table(place)
        done = table.standing(Record(job.record), job.base) if table is not None else None
        if done is None:
            table = writer.prepare(place, table, job)
            job = replace(job, record=replace(job.record, target_id=table.identity))
            if job.mode == "scd2":
                from flowctl.connectors.lake import history

                open_sidecar = partial(writer.open_sidecar, place.beside(OBSERVED))
                done = history.commit(spark, writer, table, rows, job, self._buffer, open_sidecar)
            else:
                done = writer.put(table, Record(job.record), rows, job)
        return _as_commit(done, job)

    @property
    def _buffer(self) -> Buffer:
        if self.context.buffer is None:
            raise FlowctlError("an Iceberg target was opened without a buffer", hint="Use `flowctl apply`")
        return self.context.buffer

    def _place(self, object: ObjectName) -> TablePlace:
        return self.tables.place(object)

    def _shown(self, object: ObjectName) -> str:
        return dialects.table(self.tables.address.identifier(object), "spark")

    def _info(self, object: ObjectName) -> TableInfo | None:
        table = open_table(self._place(object))
        return table.info(object) if table is not None else None

    def _both(self, lookup: CommitLookup) -> tuple[TableInfo | None, Commit | None]:
        table = open_table(self._place(lookup.object))
        if table is None:
            return None, None
        return table.info(lookup.object), _newest_in(table, lookup)


def _newest_in(table: OpenTable, lookup: CommitLookup) -> Commit | None:
    newest = table.newest(app_id(lookup.lineage, lookup.table))
    return replace(newest.commit, counts=RowCounts()) if newest is not None else None


def _as_commit(committed: Record, job: WriteJob) -> Commit:
    commit, counts = committed.commit, committed.commit.counts
    if job.is_ordered and job.mode == "merge" and counts.read is not None:
        written = (counts.inserted or 0) + (counts.updated or 0) + (counts.deleted or 0)
        counts = replace(counts, ignored=max(0, counts.read - written))  # a key that exists twice is updated twice
    return replace(commit, counts=counts)


def _with_statement(table: str, change: SchemaChange) -> SchemaChange:
    new, name = change.new, quoted(change.column)
    match change.action:
        case "add" | "text" if new is not None:
            return replace(change, statement=f"ALTER TABLE {table} ADD COLUMN {name} {shown(new)}")
        case "widen" if new is not None:
            return replace(change, statement=f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {shown(new)}")
        case "relax":
            return replace(change, statement=f"ALTER TABLE {table} ALTER COLUMN {name} DROP NOT NULL")
        case "retype" | "drop":
            return replace(change, note="by the commit that replaces the content")
        case _:
            return change
