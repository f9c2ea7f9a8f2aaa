"""PostgreSQL as a target: executors COPY into a staging table, one transaction commits the change and its sequence
number.

A table's id is system, database and OID, as for sources: a recreated table of the same name is another one, and so is
the same table in a restored database. A new table gets its id in the transaction that creates it; until then the intent
has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowctl.connectors import refusal
from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.buffered import buffered, frame_of
from flowctl.connectors.postgres import catalog, commits, refusals
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.equal_keys import one_of_each
from flowctl.connectors.postgres.modifiers import is_limited
from flowctl.connectors.postgres.publications import identify_by_all_columns
from flowctl.connectors.postgres.session import POSTGRES, PostgresSession
from flowctl.connectors.postgres.staging import (
    Accepted,
    accept,
    become,
    copy_frame,
    copy_rows,
    copy_undecoded,
    copyable,
    future_table,
    insert_inside,
    is_copied_as_it_is,
    stage_table,
    undecoded_stage,
)
from flowctl.connectors.postgres.types import is_stored_as
from flowctl.connectors.preconditions import verify_total
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.sql.commits import COMMITS
from flowctl.connectors.sql.hindrances import Constraint
from flowctl.connectors.sql.target import SqlTarget
from flowctl.connectors.target import OP_COLUMN, CommitLookup, Staged, WriteJob
from flowctl.connectors.undecoded import UndecodedRows
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.session import has_jvm
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout, ReadHints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: There are no statistics for rows written a moment ago, nor for the result of a window: PostgreSQL expects few of them
#: and uses nested loops. A query that it cannot join otherwise then gets a cost at which it would be JIT-compiled.
#: A row-level policy would hide rows from the comparison and from DELETE: ``row_security = off`` makes that an error.
CHANGE_SETTINGS = ("enable_nestloop = off", "jit = off")
_ALL_ROWS = "row_security = off"


@dataclass(frozen=True)
class _Copied:
    """The rows copied into the staging table, and whether that table becomes the target. ``keyed`` is their job if only
    the texts of their keys were compared."""

    stage: tuple[str, str]
    columns: tuple[str, ...]
    accepted: tuple[Accepted, ...]
    becomes: bool
    keyed: WriteJob | None = None


@dataclass(frozen=True)
class PostgresTarget(SqlTarget[PostgresSession]):
    """One database."""

    client: Client
    context: OpenContext
    capabilities: Capabilities
    dialect = POSTGRES
    _missing_schemas: set[str] = field(default_factory=set, repr=False, compare=False)
    _published: set[ObjectName] = field(default_factory=set, repr=False, compare=False)

    @contextmanager
    def session(self) -> Iterator[PostgresSession]:
        with self.client.connect() as connection:
            yield PostgresSession(connection)

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        with self.client.connect() as connection:
            found = catalog.describe(connection, objects)
            if absent := [object for object, info in found.items() if info is None]:
                self._missing_schemas.update(commits.missing_schemas(connection, absent))
                self._published.update(commits.published_when_created(connection, absent))
            return refusals.with_dependants(connection, found)

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        """Locations by the server's own identity and the schema from the search path, independent of host and name."""
        with self.client.connect() as connection:
            system = catalog.system_identity(connection)
            schemas = commits.schemas_of(connection, objects)
        return {object: f"{system}/{schemas[object]}/{object.parts[-1]}" for object in objects}

    def newest(self, session: PostgresSession, lookups: Sequence[CommitLookup]) -> dict[str, Commit | None]:
        return commits.newest(session.connection, lookups)

    def why_unwritable(self, object: ObjectName, mode: Mode) -> TableError | None:
        with self.client.connect() as connection:
            return commits.why_unwritable(connection, object, mode)

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        """Includes the DDL of the schema, if that did not exist when the object was described. A table that will be
        published gets a replica identity, as flowctl gives it no key."""
        missing = self._missing_schemas.intersection(object.parts[:-1])
        identity = [_identity(object)] if object in self._published else []
        return [*map(commits.create_schema, missing), *super().create_statements(object, columns, layout), *identity]

    def native_type(self, column: Column) -> str:
        return column.portable

    def stores_undecoded(self, there: Column, sent: Column) -> bool:
        return is_stored_as(there.native, sent.portable)

    def refuse_change(self, info: TableInfo, change: SchemaChange) -> SchemaChange | None:
        return refusals.refuse_change(info, change)

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        return [column for column in there.columns if column.name in written and is_limited(column)]

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        return refusals.refuse_write(info, mode, replaces=replaces)

    def refuse_key(self, there: TableInfo, key: Sequence[str], layout: Layout) -> tuple[str, str] | None:
        return refusals.refuse_key(there, key)

    def most_columns(self, mode: Mode) -> int:
        """PostgreSQL's limit of 1,600, less one column for the change in merge and scd2."""
        return 1600 if mode in ("append", "truncate") else 1599

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        """Reads through the buffer: the rows are of one moment, however often and however late they are used."""
        from flowctl.connectors.postgres.source import PostgresSource

        relation = Relation(object)
        source = PostgresSource(self.client, self.capabilities, self.buffer)
        info = source.describe([relation])[relation]
        if info is None:
            raise TableError(f"there is no table {object}", hint="Run the table that makes it first")
        folder = self.buffer.folder(f"scan-{object}")
        request = ReadRequest(tuple(columns))
        with source.snapshot(spark, relation, info, ReadHints()) as snapshot:
            rows = snapshot.rows_in_memory(request)
            batch = OnEngine(buffered(snapshot.frame(request), folder)) if rows is None else InMemory(rows)
        return frame_of(batch, spark, lambda: folder)

    @contextmanager
    def stage(self, spark: SparkSession, batch: Batch, job: WriteJob) -> Iterator[Staged]:
        if isinstance(batch, OnEngine) and job.rows is None and not has_jvm(spark):
            # Directly from a source that Python reads: Sail 0.7.2 may abort the process if one of two consecutive
            # Python steps fails (a thread then waits for itself).
            folder = self.buffer.folder(f"{job.record.table}-{job.record.seq}-direct")
            batch = OnEngine(buffered(batch.frame, folder), folder)
        with super().stage(spark, batch, job) as staged:
            yield staged

    @contextmanager
    def hand_over(
        self, spark: SparkSession, batch: Batch, columns: Sequence[Column], job: WriteJob
    ) -> Iterator[_Copied]:
        with self.client.connect() as connection:
            there = catalog.describe(connection, [job.object])[job.object]
            schema = (commits.schema_of if there else commits.ensure_schema)(connection, job.object)
        becomes = there is None and _is_content(job, columns) and not _is_published(job)
        made = (
            future_table(self.client, schema, job) if becomes else stage_table(self.client, schema, job, columns, there)
        )
        with made as stage:
            natives = {column.name: column.native for column in there.columns} if there else {}
            with refusal.named():
                accepted = self._copy(spark, batch, columns, POSTGRES.table(stage), natives)
            verify_total(job, sum(report.rows for report in accepted))
            names = tuple(column.name for column in columns)
            yield _Copied(stage, names, tuple(accepted), becomes, job if OP_COLUMN in names else None)

    @contextmanager
    def stage_undecoded(self, rows: UndecodedRows, job: WriteJob, *, is_inside: bool) -> Iterator[Staged]:
        with self.client.connect() as connection:
            there = catalog.describe(connection, [job.object])[job.object]
            schema = (commits.schema_of if there else commits.ensure_schema)(connection, job.object)
        names = tuple(column.name for column in rows.columns)
        becomes = there is None and bool(job.create) and job.mode != "scd2" and not _is_published(job)
        constants = {} if becomes or job.mode in ("append", "truncate") else {OP_COLUMN: "U"}
        made = (
            future_table(self.client, schema, job)
            if becomes
            else undecoded_stage(self.client, schema, job, rows.columns, constants)
        )
        with made as stage:
            copy = insert_inside if is_inside else copy_undecoded
            accepted = copy(rows, self.client, stage, constants)
            columns = (*names, *constants)
            yield Staged(job, _Copied(stage, columns, tuple(accepted), becomes), columns)

    def _copy(
        self, spark: SparkSession, batch: Batch, columns: Sequence[Column], stage: str, natives: Mapping[str, str]
    ) -> list[Accepted]:
        if isinstance(batch, OnEngine):
            return copy_frame(batch.frame, columns, self.client.conninfo(), stage, natives)
        if all(is_copied_as_it_is(column) for column in columns):
            rows = batch.rows.select([column.name for column in columns]).cast(arrow_schema(columns))
        else:
            frame = frame_of(batch, spark, lambda: self.buffer.folder("copied"))
            rows = copyable(frame, columns).toArrow()
        with self.client.connect() as connection:
            return copy_rows(rows, columns, connection, stage, natives)

    def accept(self, session: PostgresSession, rows: _Copied) -> StagedRows:
        lock = "ACCESS EXCLUSIVE" if rows.becomes else "SHARE"
        total = accept(session.connection, rows.stage, rows.accepted, lock)
        if rows.keyed is not None:
            total -= one_of_each(session, rows.keyed, rows.stage, rows.columns)
        return StagedRows(rows.stage, rows.columns, total)

    def violated_constraint(self, session: PostgresSession, job: WriteJob, error: Exception) -> Constraint | None:
        return refusals.violated_constraint(self.client, job, error)

    def commits_table(self, session: PostgresSession, object: ObjectName) -> tuple[str, ...]:
        return (commits.schema_of(session.connection, object), COMMITS)

    def ensure_commits(self, session: PostgresSession, object: ObjectName) -> None:
        commits.ensure_table(session.connection, object)

    def write_batch(self, session: PostgresSession, job: WriteJob, loaded: _Copied | None) -> RowCounts:
        if loaded is None or not loaded.becomes:
            return super().write_batch(session, job, loaded)
        staged = self.accept(session, loaded)
        self.require_own(session, job, session.describe([job.object])[job.object])
        become(session.connection, loaded.stage, job.object)
        self._lock(session, job)
        self.record_target(session, job)
        return RowCounts(read=staged.rows, inserted=staged.rows, updated=0, deleted=0)

    def _complete(
        self, session: PostgresSession, sidecar: ObjectName, there: TableInfo | None, columns: Sequence[Column]
    ) -> None:
        super()._complete(session, sidecar, there, columns)
        if there is None and commits.published_when_created(session.connection, [sidecar]):
            session.execute(_identity(sidecar))

    def prepare_table(self, session: PostgresSession, job: WriteJob) -> None:
        self._lock(session, job)
        is_added = job.mode == "append" and not job.replace
        for setting in CHANGE_SETTINGS if is_added else (*CHANGE_SETTINGS, _ALL_ROWS):
            session.execute(f"SET LOCAL {setting}")

    def _lock(self, session: PostgresSession, job: WriteJob) -> None:
        """Excludes other writers too, unless the batch is only appended; readers continue."""
        name = POSTGRES.table(job.object.parts)
        if job.mode == "append":  # others may write too, but not replace the table
            session.execute(f"LOCK TABLE ONLY {name} IN ROW EXCLUSIVE MODE")
        else:
            session.execute(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")


def _identity(object: ObjectName) -> str:
    return identify_by_all_columns(POSTGRES.table(object.parts))


def _is_published(job: WriteJob) -> bool:
    """Whether the new table will be published. Its rows must then be inserted under its name, as subscribers know no
    staging table."""
    return _identity(job.object) in job.create


def _is_content(job: WriteJob, staged: Sequence[Column]) -> bool:
    """Whether the staged rows are the whole content of a new table."""
    return bool(job.create) and job.mode != "scd2" and all(column.name != OP_COLUMN for column in staged)
