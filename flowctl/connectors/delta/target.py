"""Delta as a target: describes tables, finds what was committed, and commits once per number.

**The target's id** is Delta's own table id. It is random, so an intent for a table that does not exist yet has an empty
``target_id``: *the table this number will create*. Its CREATE names the intent (:func:`.record.created_for`), which
distinguishes the table from a foreign one. The commit's record has the real id, read after CREATE, and state takes it
from there. An intent with an id commits into exactly that table or not at all.

Modules that only a write needs are imported by it: most runs have nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flowctl.connectors.at_once import at_once
from flowctl.connectors.base import Capabilities
from flowctl.connectors.delta import features, gaps, maintenance, partitions, record, statements
from flowctl.connectors.delta.choice import EngineTraits, Way, choose, planned_traits
from flowctl.connectors.delta.location import TableLocation, location_of
from flowctl.connectors.delta.table import OpenTable, open_table
from flowctl.connectors.gaps import Gap
from flowctl.connectors.lake.conditions import quoted
from flowctl.connectors.lake.record import Record, app_id, data_commit
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.connectors.restoration import Restorable, Restoration
from flowctl.connectors.target import CommitLookup, Staged, Target, WriteJob, WriteShape
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.errors import FlowctlError, TableError
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from flowctl.storage.folders import why_unwritable
from flowctl.storage.options import Storage
from flowctl.storage.urls import local_path, path_place, scheme

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flowctl.connectors.delta.writer import Writer


class DeltaTarget(Target, Restorable):
    """``buffer`` is None while planning; only writes need it."""

    def __init__(self, root: str, storage: Storage, buffer: Buffer | None, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._root = root
        self._storage = storage
        self._buffer = buffer

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        return at_once(self._info, {object: object for object in objects})

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        return {object: path_place(self._location(object).url, "") for object in objects}

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        return at_once(self._newest, {lookup.table: lookup for lookup in lookups})

    def described_and_committed(
        self, lookups: Sequence[CommitLookup]
    ) -> Mapping[str, tuple[TableInfo | None, Commit | None]]:
        return at_once(self._both, {lookup.table: lookup for lookup in lookups})

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        return [statements.create_table(self._location(object).shown_identifier, columns, layout)]

    def partition_columns(self, there: TableInfo | None, layout: Layout, *, rebuilds: bool) -> tuple[str, ...]:
        return (*partitions.names(there, layout), *(layout.partition_by if rebuilds else ()))

    def refuse_partitions(self, partitioned: Sequence[Column], columns: Sequence[Column]) -> tuple[str, str] | None:
        return partitions.refuse(partitioned, columns)

    def nested_keys(self, engine: str, conf: Mapping[str, str]) -> bool:
        """By Spark's MERGE only."""
        return planned_traits(engine, conf).has_jvm

    def explain_create(self, columns: Sequence[Column], layout: Layout) -> str:
        listed = statements.statistics_columns(columns, layout)
        return f"statistics for {', '.join(listed)}" if listed else ""

    def explain_write(
        self,
        object: ObjectName,
        there: TableInfo | None,
        write: WriteShape,
        engine: str,
        conf: Mapping[str, str],
    ) -> str:
        choice = choose(self._location(object).url, there, write, planned_traits(engine, conf))
        return f"written by Spark's own statements: {choice.reason}" if choice.way is Way.STATEMENTS else ""

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        table = self._location(info.object).shown_identifier
        needed, relaxed = features.find_missing(info, changes), statements.columns_to_relax(info, changes)
        return [statements.with_statement(table, change) for change in (*needed, *changes, *relaxed)]

    def gap(
        self,
        engine: str,
        there: TableInfo | None,
        columns: Sequence[Column],
        changes: Sequence[SchemaChange],
        layout: Layout,
        *,
        rebuilds: bool,
    ) -> Gap | None:
        names = self.partition_columns(there, layout, rebuilds=rebuilds)
        partitioned = [column for column in columns if column.name in names]
        return gaps.of_write(engine, there, partitioned, changes, rebuilds=rebuilds)

    def maintenance_due(self, info: TableInfo) -> str:
        return maintenance.due(info)

    def maintenance(self, objects: Sequence[ObjectName], engine: str) -> Mapping[ObjectName, Maintenance]:
        from flowctl.connectors.delta.maintain import find_due

        def ask(object: ObjectName) -> Maintenance | None:
            table = open_table(self._location(object))
            return find_due(table, object, with_spark=planned_traits(engine, {}).has_jvm) if table is not None else None

        found = at_once(ask, {object: object for object in objects})
        return {object: due for object, due in found.items() if due is not None}

    def maintain(
        self, due: Maintenance, session: Callable[[], SparkSession], before_commit: Callable[[], None]
    ) -> Iterator[Task]:
        from flowctl.connectors.delta.maintain import carry_out

        return carry_out(self._location(due.object), due, session, before_commit)

    def find_restoration(self, record: Commit, object: ObjectName, seq: int) -> Restoration:
        from flowctl.connectors.delta import restore

        return restore.find(self._location(object), record, object, seq)

    def restore(self, restoration: Restoration, before_commit: Callable[[], None]) -> None:
        from flowctl.connectors.delta import restore

        restore.carry_out(self._location(restoration.object), restoration, before_commit)

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        names = [quoted(column.name) for column in columns]
        return spark.read.format("delta").load(self._location(object).spark_path).select(*names)

    def scan_observed(self, spark: SparkSession, lookup: CommitLookup) -> DataFrame | None:
        """Without the observations of attempts that were never committed."""
        from flowctl.connectors.lake import conditions, history

        observed, table = super().scan_observed(spark, lookup), open_table(self._location(lookup.object))
        if observed is None or table is None:
            return observed
        last = data_commit(table.newest(app_id(lookup.lineage, lookup.table)))
        return observed.where(f"NOT {conditions.sql(history.lost_observations_of(lookup.lineage, last))}")

    @contextmanager
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Iterator[Staged]:
        """Writes nothing: the commit writes the files, in a way that depends on the table as it is then."""
        yield Staged(job, (spark, batch))

    def commit(self, staged: Sequence[Staged]) -> list[Commit]:
        return [self._commit_one(one) for one in staged]

    def _commit_one(self, staged: Staged) -> Commit:
        (spark, rows), job = staged.rows, staged.job
        location = self._location(job.object)
        job = replace(
            job,
            create=tuple(map(location.executable, job.create)),
            alter=tuple(replace(change, statement=location.executable(change.statement)) for change in job.alter),
        )
        table = open_table(location)
        done = table.standing(Record(job.record), job.base) if table is not None else None
        if done is None:
            from flowctl.connectors.lake.rows import refuse

            partitioned = table.partition_by if table is not None else job.layout.partition_by
            if job.replaces_content:  # and maybe the schema, with the spec's partitions
                partitioned = (*partitioned, *job.layout.partition_by)
            rows = refuse(rows, partitions.texts_refused(partitioned, rows.names, job.columns))
            done = record.keep_copy(location, self._commit(spark, location, table, rows, job))
        return _as_commit(done, job)

    def void(self, job: WriteJob) -> Commit | None:
        from flowctl.connectors.delta.commit import void

        location = self._location(job.object)
        done = void(location, replace(job, record=replace(job.record, void=True)))
        return _as_commit(record.keep_copy(location, done), job) if done is not None else None

    def quarantine(
        self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int, through: int | None = None
    ) -> None:
        from flowctl.connectors.lake import history

        side = replace(history.side_job(job, job.columns), key=())
        table, writer = self._open_sidecar(spark, self._location(job.object), side)
        history.quarantine(writer, table, OnEngine(frame), side, since, through)

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        """For local folders: an object store reports it at the first write only."""
        url = self._location(object).url
        return why_unwritable(local_path(url)) if scheme(url) == "file" else None

    def lease_folder(self, object: ObjectName) -> str:
        # Not inside the table's folder: Delta's catalog takes any existing path for a table: CREATE would do nothing.
        folder, _, name = self._location(object).url.rpartition("/")
        return f"{folder}/_flowctl/lease/{name}"

    def cuts_folder(self) -> str:
        return f"{self._root}/_flowctl/cuts"

    def version_queries(self, object: ObjectName, version: int) -> Mapping[str, str]:
        url, name = self._location(object).url, object.parts[-1]
        quoted, literal = url.replace("`", "``"), url.replace("'", "''")
        alias = name.replace('"', '""')
        return {
            "Spark": f"SELECT * FROM delta.`{quoted}` VERSION AS OF {version}",
            "DuckDB": f"ATTACH '{literal}' AS \"{alias}\" (TYPE delta, VERSION {version})",
        }

    def _commit(
        self, spark: SparkSession, location: TableLocation, table: OpenTable | None, rows: Batch, job: WriteJob
    ) -> Record:
        from flowctl.connectors.delta.choice import traits_of
        from flowctl.connectors.lake.table import Unreadable

        engine = traits_of(spark)
        there = table.info(job.object) if table is not None else None
        shape = job.shape(in_memory=isinstance(rows, InMemory))
        way = choose(location.url, there, shape, engine).way
        try:
            return self._commit_by(way, engine, spark, location, table, rows, job)
        except Unreadable:
            if not engine.has_jvm:
                raise
        return self._commit_by(Way.STATEMENTS, engine, spark, location, open_table(location), rows, job)

    def _commit_by(
        self,
        way: Way,
        engine: EngineTraits,
        spark: SparkSession,
        location: TableLocation,
        table: OpenTable | None,
        rows: Batch,
        job: WriteJob,
    ) -> Record:
        from flowctl.connectors.delta.writer import writer_for

        writer = writer_for(way, engine, spark, self._required_buffer)
        table = writer.prepare(location, table, job)
        job = replace(job, record=replace(job.record, target_id=table.identity))
        if job.mode == "scd2":
            from flowctl.connectors.lake import history

            beside = table.location.sidecar(OBSERVED)
            other = None if isinstance(rows, InMemory) else writer
            open_sidecar = partial(self._open_sidecar, spark, beside, writer=other)
            return history.commit(spark, writer, table, rows, job, self._required_buffer, open_sidecar)
        return writer.put(table, Record(job.record), rows, job)

    def _open_sidecar(
        self, spark: SparkSession, location: TableLocation, side: WriteJob, writer: Writer | None = None
    ) -> tuple[OpenTable, Writer]:
        """``writer`` is the one that writes its new rows; None: they are few, and it is chosen for the table."""
        from flowctl.connectors.delta.choice import choose_for_sidecar, traits_of
        from flowctl.connectors.delta.writer import writer_for

        sidecar = open_table(location)
        if writer is None:
            engine, there = traits_of(spark), sidecar.info(side.object) if sidecar is not None else None
            way = choose_for_sidecar(there, side.columns, side.key, engine)
            writer = writer_for(way, engine, spark, self._required_buffer)
        return writer.prepare_sidecar(location, sidecar, side), writer

    @property
    def _required_buffer(self) -> Buffer:
        if self._buffer is None:
            raise FlowctlError("a Delta target was opened without a buffer", hint="Use `flowctl apply`")
        return self._buffer

    def _location(self, object: ObjectName) -> TableLocation:
        return location_of(self._root, object, self._storage)

    def _info(self, object: ObjectName) -> TableInfo | None:
        table = open_table(self._location(object))
        return table.info(object) if table is not None else None

    def _newest(self, lookup: CommitLookup) -> Commit | None:
        table = open_table(self._location(lookup.object))
        return _newest_in(table, lookup) if table is not None else None

    def _both(self, lookup: CommitLookup) -> tuple[TableInfo | None, Commit | None]:
        table = open_table(self._location(lookup.object))
        if table is None:
            return None, None
        newest = table.newest(app_id(lookup.lineage, lookup.table))
        info, commit = table.info(lookup.object), _newest_in(table, lookup)
        if newest is not None and newest.commit.version == table.version:
            info = replace(info, extra={**info.extra, maintenance.HIDDEN_ROWS: newest.hidden_rows})
        if commit is None:
            info = replace(info, created_by=table.creator)
        return info, commit


def _newest_in(table: OpenTable, lookup: CommitLookup) -> Commit | None:
    """None if there is no commit. If even the copy of its record is missing, the result has an empty ``intent_id``:
    nothing equals it, so the table stops until it is adopted."""
    newest = table.newest(app_id(lookup.lineage, lookup.table))
    return replace(newest.commit, counts=RowCounts()) if newest is not None else None


def _as_commit(committed: Record, job: WriteJob) -> Commit:
    commit, counts = committed.commit, committed.commit.counts
    if job.is_ordered and job.mode == "merge" and counts.read is not None:
        written = (counts.inserted or 0) + (counts.updated or 0) + (counts.deleted or 0)
        counts = replace(counts, ignored=max(0, counts.read - written))  # a key that exists twice is updated twice
    if job.soft_deletes:  # Delta counts marked rows as updated, without distinguishing them
        counts = replace(counts, deleted=None)
    return replace(commit, counts=counts)
