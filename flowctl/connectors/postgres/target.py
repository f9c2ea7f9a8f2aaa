"""PostgreSQL as a target: executors COPY into a staging table, one transaction commits the change and its number.

A table's id is system, database and OID, as for sources: a table dropped and made again under its name is another one,
and so is the same table in a restored database. A table that is not there yet gets its id in the transaction that makes
it; until then the intent has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flowctl import crashpoints, delays
from flowctl.connectors import sql_commit
from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.buffered import NO_MARKER, buffered, put
from flowctl.connectors.foreign import foreign_target
from flowctl.connectors.landing import Scratch
from flowctl.connectors.postgres import catalog, commits, ddl, dependants, restrictions
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.commits import PostgresTransaction
from flowctl.connectors.postgres.copying import Accepted, copy_frame
from flowctl.connectors.postgres.duplicates import named_duplicates
from flowctl.connectors.postgres.modifiers import is_limited
from flowctl.connectors.postgres.staging import accept, become, future_table, stage_table
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.connectors.sql_commit import COMMITS, Staged
from flowctl.connectors.target import OP_COLUMN, CommitLookup, Fill, Target, WriteJob
from flowctl.engine.session import has_jvm
from flowctl.errors import FlowctlError, StateConflict, StoppedByPolicy, TableError, TransientError
from flowctl.model.commit import Commit, RowCounts
from flowctl.model.schema_change import SchemaChange
from flowctl.model.step import Mode
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout, ReadHints
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

#: There are no statistics of rows that were written a moment ago, nor of what comes out of a window: PostgreSQL expects
#: few of them, and compares each with each. What it cannot join otherwise gets a cost for which it would compile it.
#: A policy for rows would hide some from the comparison and from DELETE: this makes it an error.
CHANGE_SETTINGS = ("enable_nestloop = off", "jit = off")
_ALL_ROWS = "row_security = off"


@dataclass(frozen=True)
class PostgresTarget(Target):
    """One database."""

    client: Client
    context: OpenContext
    capabilities: Capabilities
    _missing_schemas: set[str] = field(default_factory=set, repr=False, compare=False)

    def describe(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, TableInfo | None]:
        with self.client.connect() as connection:
            found = catalog.describe(connection, objects)
            if absent := [object for object, info in found.items() if info is None]:
                self._missing_schemas.update(commits.missing_schemas(connection, absent))
            return dependants.with_dependants(connection, found)

    def places(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, str]:
        """By the server's own identity and the schema that the search path gives, whatever host and name say."""
        with self.client.connect() as connection:
            system = catalog.system_identity(connection)
            schemas = commits.schemas_of(connection, objects)
        return {object: f"{system}/{schemas[object]}/{object.parts[-1]}" for object in objects}

    def committed(self, lookups: Sequence[CommitLookup]) -> Mapping[str, Commit | None]:
        with self.client.connect() as connection:
            return commits.newest(connection, lookups)

    def why_unwritable(self, object: ObjectName) -> TableError | None:
        with self.client.connect() as connection:
            return commits.why_unwritable(connection, object)

    def create_statements(self, object: ObjectName, columns: Sequence[Column], layout: Layout) -> list[str]:
        """The schema's own, too, when there was none as the object was described."""
        missing = self._missing_schemas.intersection(object.parts[:-1])
        return [*map(ddl.create_schema, missing), *ddl.create_statements(object, columns)]

    def alter_statements(self, info: TableInfo, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        return ddl.alter_statements(info, changes)

    def filled_columns(self, there: TableInfo) -> Mapping[str, Fill]:
        filled: Mapping[str, Fill] = there.extra.get("filled", {})
        return filled

    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        return [column for column in there.columns if column.name in written and is_limited(column)]

    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        return restrictions.refused(info, mode, replaces=replaces)

    def most_columns(self, mode: Mode) -> int:
        """PostgreSQL's 1,600, with one for the change."""
        return 1600 if mode in ("append", "truncate") else 1599

    def scan(self, spark: SparkSession, object: ObjectName, columns: Sequence[Column]) -> DataFrame:
        """Read through the buffer: the rows are of one moment, however often and however late they are used."""
        from flowctl.connectors.postgres.source import PostgresSource

        relation = Relation(object)
        source = PostgresSource(self.client, self.capabilities, self._scratch())
        info = source.describe([relation])[relation]
        if info is None:
            raise TableError(f"there is no table {object}", hint="Run the table that makes it first")
        folder = self._scratch().folder(f"scan-{object}")
        request = ReadRequest(tuple(columns))
        with source.snapshot(spark, relation, info, ReadHints()) as snapshot:
            few = snapshot.few(request)
            if few is not None:
                put(folder, few)
            else:
                snapshot.frame(request).write.mode("overwrite").option(NO_MARKER, "false").parquet(folder.url)
        return spark.read.schema(schema_ddl(columns)).parquet(folder.url)

    def write(self, spark: SparkSession, frame: DataFrame, job: WriteJob) -> Commit:
        with self.client.connect() as connection:
            newest = _newest(connection, job)
            if newest is not None and newest.seq >= job.record.seq:
                return sql_commit.already_committed(newest, job.record)
            there = catalog.describe(connection, [job.object])[job.object]
            schema = (commits.schema_of if there else commits.ensure_schema)(connection, job.object)
        if not has_jvm(spark) and job.rows is None and not job.few:
            # Straight from a source that Python reads: Sail 0.7.2 may end the process when one of two Python steps in a
            # row fails (a thread then waits for itself).
            frame = buffered(frame, f"{job.record.table}-{job.record.seq}-direct", self._scratch())
        columns = sql_commit.staged_columns(frame.columns, job)
        becomes = there is None and _is_content(job, columns)
        made = (
            future_table(self.client, schema, job) if becomes else stage_table(self.client, schema, job, columns, there)
        )
        with made as stage:
            with sql_commit.named_refusals(), ExitStack() as stack:
                opened = stack.enter_context(self.client.connect()) if job.few else None
                natives = {column.name: column.native for column in there.columns} if there else {}
                conninfo = self.client.conninfo()
                accepted = copy_frame(frame, columns, conninfo, ddl.table(stage), opened=opened, natives=natives)
            sql_commit.verify_total(job, sum(report.rows for report in accepted))
            names = tuple(column.name for column in columns)
            return self._committed_or_asked(job, _Copied(stage, names, tuple(accepted), becomes))

    def void(self, job: WriteJob) -> Commit:
        """Waits for a transaction of the same number that is still open: what it did stands, or is undone."""
        return self._committed_or_asked(replace(job, record=replace(job.record, void=True)), None)

    def quarantine(self, spark: SparkSession, frame: DataFrame, job: WriteJob, since: int) -> None:
        with self.client.connect() as connection:
            schema = commits.ensure_schema(connection, job.object)
        side = replace(job, record=replace(job.record, table=f"{job.record.table}/quarantine"))
        with stage_table(self.client, schema, side, job.columns, None) as stage:
            accepted = copy_frame(frame, job.columns, self.client.conninfo(), ddl.table(stage))
            with self.client.connect() as connection, commits.committing(connection):
                accept(connection, stage, accepted)
                there = catalog.describe(connection, [job.object])[job.object]
                for statement in ddl.sidecar_statements(job.object, there, job.columns):
                    connection.execute(statement)
                sql_commit.replace_quarantined(PostgresTransaction(connection), stage, job, since)
                job.before_commit()

    def _committed_or_asked(self, job: WriteJob, copied: _Copied | None) -> Commit:
        """After an error the commit may have happened all the same, so the target is asked before anybody retries.
        A transaction still in flight is found by the retry: its own insert of the number waits for it."""
        try:
            with named_duplicates(self.client, job):
                return self._commit(job, copied)
        except StateConflict:
            raise
        except (FlowctlError, OSError):
            newest = self._newest_or_none(job)
            if newest is None or newest.seq < job.record.seq:
                raise
            return sql_commit.already_committed(newest, job.record)

    def _newest_or_none(self, job: WriteJob) -> Commit | None:
        try:
            with self.client.connect() as connection:
                return _newest(connection, job)
        except TransientError:
            return None  # the first error says more

    def _commit(self, job: WriteJob, copied: _Copied | None) -> Commit:
        """The final transaction; without ``copied`` it commits the number empty."""
        counts = RowCounts()
        with self.client.connect() as connection:
            schema = copied.stage[0] if copied is not None else commits.ensure_schema(connection, job.object)
            commits.ensure_table(connection, schema)
            record_table = (schema, COMMITS)
            tx = PostgresTransaction(connection)
            with commits.committing(connection):
                standing = sql_commit.claim(tx, record_table, job.record, job.at, job.base)
                if standing is not None:
                    return standing
                if copied is not None and copied.becomes:
                    rows = accept(connection, copied.stage, copied.accepted, "ACCESS EXCLUSIVE")
                    _refuse_foreign(connection, job)
                    become(connection, copied.stage, job.object)
                    sql_commit.name_target(tx, record_table, _prepared(connection, replace(job, statements=()), ()))
                    counts = RowCounts(read=rows, inserted=rows, updated=0, deleted=0)
                elif copied is not None:
                    _refuse_foreign(connection, job)
                    staged = Staged(copied.stage, copied.columns, accept(connection, copied.stage, copied.accepted))
                    sql_commit.name_target(tx, record_table, _prepared(connection, job, copied.columns))
                    is_added = job.mode == "append" and not job.replace
                    for setting in CHANGE_SETTINGS if is_added else (*CHANGE_SETTINGS, _ALL_ROWS):
                        connection.execute(f"SET LOCAL {setting}")
                    counts = sql_commit.apply_change(tx, job, staged)
                job.before_commit()
                crashpoints.reached("in_commit", job.record.table)
                delays.pause()
            delays.pause()
            newest = _newest(connection, job)
        if newest is None:
            raise StateConflict(
                f"{job.object}: the commit just made is gone", hint="Find out who drops tables here, and run again"
            )
        return replace(sql_commit.already_committed(newest, job.record), counts=counts)

    def _scratch(self) -> Scratch:
        if self.context.scratch is None:
            raise FlowctlError("a PostgreSQL target was opened without a buffer", hint="Use `flowctl apply`")
        return self.context.scratch


@dataclass(frozen=True)
class _Copied:
    """What executors have put into the staging table, and whether that is to be the target."""

    stage: tuple[str, str]
    columns: tuple[str, ...]
    accepted: tuple[Accepted, ...]
    becomes: bool


def _is_content(job: WriteJob, staged: Sequence[Column]) -> bool:
    """Whether the rows, as they are staged, are what a new table is made with, and with nothing else."""
    made = ddl.create_statements(job.object, job.columns)
    wanted = [one for one in job.statements if one not in map(ddl.create_schema, job.object.parts[:-1])]
    return job.mode != "scd2" and wanted == made and all(column.name != OP_COLUMN for column in staged)


def _refuse_foreign(connection: psycopg.Connection[Any], job: WriteJob) -> None:
    """Table and number come in one transaction, so what is there before our first one is somebody else's."""
    if not job.record.target_id and catalog.describe(connection, [job.object])[job.object] is not None:
        raise foreign_target(job.record, job.object)


def _prepared(connection: psycopg.Connection[Any], job: WriteJob, present: Sequence[str]) -> Commit:
    """Runs the DDL for a batch with the columns ``present`` and locks the table, against other writers too unless the
    batch is only appended (readers continue); returns the record with the table's id in it."""
    sidecar = [sql_commit.observed_name(job.object)] if job.mode == "scd2" else []
    before = catalog.describe(connection, [job.object, *sidecar])
    there = before[job.object]
    if there is not None:
        sql_commit.identified(job.record, there.identity)
    for statement in job.statements:
        connection.execute(statement)
    for object in sidecar:
        if job.replace:  # of another key, or of what was no history
            connection.execute(f"DROP TABLE IF EXISTS {ddl.table(object.parts)}")
        have = None if job.replace else before[object]
        for statement in ddl.sidecar_statements(object, have, sql_commit.observed_columns(job, present)):
            connection.execute(statement)
    name = ddl.table(job.object.parts)
    if job.mode == "append":  # others may write too, but not put another table under its name
        connection.execute(f"LOCK TABLE ONLY {name} IN ROW EXCLUSIVE MODE")
    else:
        connection.execute(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")
    now = catalog.describe(connection, [job.object])[job.object]
    if now is None:
        raise TableError(f"there is no table {job.object}", hint="Plan again: it was dropped since the plan was made")
    return sql_commit.identified(job.record, now.identity)


def _newest(connection: psycopg.Connection[Any], job: WriteJob) -> Commit | None:
    lookup = CommitLookup(job.record.lineage, job.record.table, job.object)
    return commits.newest(connection, [lookup])[job.record.table]
