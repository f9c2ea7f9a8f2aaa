"""The two ways to commit to a Delta table, behind one contract: Spark's statements, or files and our own log entries.

Both commit a number exactly once, whoever is killed or late; ``docs/architecture.md`` has the reasoning for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.buffered import buffered_in
from flowctl.connectors.delta import (
    batch,
    log_writer,
    parquet_files,
    plain,
    shadow,
    statements,
    tables,
    transaction,
)
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.log_writer import WriteFiles
from flowctl.connectors.delta.marking import Marker
from flowctl.connectors.delta.marking_on_spark import SparkMarker
from flowctl.connectors.delta.opened import OpenedTable, open_existing, open_newest
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.rewriting import Rewriter
from flowctl.connectors.landing import Scratch, ScratchFolder
from flowctl.connectors.target import WriteJob
from flowctl.engine.session import has_jvm, reachable
from flowctl.errors import FlowctlError, TableError
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Session settings for all tables that Spark makes.
_TABLE_DEFAULTS = "spark.databricks.delta.properties.defaults."
_FILE_SIZES = {"spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled"}


@dataclass(frozen=True)
class Numbered:
    """Under which number a commit is made: ``record["seq"]`` of Delta's application ``app``."""

    app: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Changes:
    """What a history's versions become. ``frame`` is read several times, out of ``kept``; where ``kept`` is None, the
    table has no files, and it is read once."""

    frame: DataFrame
    kept: ScratchFolder | None = None


@dataclass(frozen=True)
class Condition:
    """Which rows of a side table go. ``may_be_met`` says of a file, as the log has it, whether one of its rows may."""

    sql: str
    may_be_met: Callable[[Action], bool] = lambda file: True


class Writer(Protocol):
    """Every method but the first two commits once under its number, or raises as
    :func:`flowctl.connectors.delta.transaction.commit` says."""

    def prepare(self, location: TableLocation, job: WriteJob) -> str:
        """The table is there and is the one that ``job`` means; returns its id."""

    def ensure(self, location: TableLocation, side: WriteJob) -> None:
        """A side table is there, for :meth:`replace_where` to write ``side.columns`` to."""

    def put(self, location: TableLocation, number: Numbered, frame: DataFrame, job: WriteJob) -> LoggedCommit:
        """append, truncate, merge and full refreshes."""

    def rows_with_keys(
        self, location: TableLocation, job: WriteJob, rows: DataFrame
    ) -> tuple[DataFrame, ScratchFolder]:
        """The table's rows with one of the keys of ``rows``, and maybe more, worked out once; and where they lie."""

    def apply_versions(
        self, location: TableLocation, number: Numbered, changes: Changes, job: WriteJob
    ) -> LoggedCommit:
        """The rows of :func:`flowctl.sql.scd2.difference`."""

    def replace_where(
        self, location: TableLocation, number: Numbered, going: Condition, frame: DataFrame, side: WriteJob
    ) -> LoggedCommit:
        """In a side table that is there, the rows that meet the condition go and ``frame`` comes."""


def writer_for(spark: SparkSession, scratch: Scratch | None) -> Writer:
    """The one that can do everything that the engine can."""
    if has_jvm(spark):
        return SparkWriter(spark, scratch)
    return LogWriter(spark, required_scratch(scratch), shadow.written, Marker)


def writer_of_sidecar(spark: SparkSession, scratch: Scratch | None, location: TableLocation, side: WriteJob) -> Writer:
    """As :func:`writer_of`, for few rows beside the job's table."""
    if has_jvm(spark) and not _is_told_how(spark) and plain.is_plain_sidecar(location, side):
        return LogWriter(spark, required_scratch(scratch), parquet_files.written, SparkMarker, plain.is_plain_table)
    return writer_for(spark, scratch)


def writer_of(spark: SparkSession, scratch: Scratch | None, location: TableLocation, job: WriteJob) -> Writer:
    """The one that commits ``job`` soonest. Delta works a table's state out with queries before it writes, even where
    nothing is to be compared: for a small batch that takes longer than its file."""
    if has_jvm(spark) and not _is_told_how(spark):
        if plain.is_plain(location, job):
            return LogWriter(spark, required_scratch(scratch), parquet_files.written, SparkMarker, plain.is_plain_table)
        if plain.is_first_load(location, job):
            return LogWriter(spark, required_scratch(scratch), shadow.written, Marker, plain.is_simple_table)
    return writer_for(spark, scratch)


def required_scratch(scratch: Scratch | None) -> Scratch:
    if scratch is None:
        raise FlowctlError("a Delta target was opened without a buffer", hint="Use `flowctl apply`")
    return scratch


def _is_told_how(spark: SparkSession) -> bool:
    """Whether the user has settings for what Delta makes of a write."""
    told = spark.conf.getAll
    return any(name.startswith(_TABLE_DEFAULTS) or (name in _FILE_SIZES and told[name] != "false") for name in told)


@dataclass(frozen=True)
class SparkWriter:
    """Spark with Delta's own extension; a number is told by settings of the session."""

    spark: SparkSession
    scratch: Scratch | None = None

    def prepare(self, location: TableLocation, job: WriteJob) -> str:
        """Spark makes a table with half a dozen queries: for a small one that is as much as writing it. Clustering is
        Spark's own business, and defaults that a user has set are known to nobody else."""
        if job.create and not job.layout.cluster_by and open_newest(location) is None and not _is_told_how(self.spark):
            log_writer.create(location, job)
            job = replace(job, create=())
        return tables.prepare(self.spark, location, job)

    def ensure(self, location: TableLocation, side: WriteJob) -> None:
        self._run(statements.create_table(location.identifier, side.columns, side.layout))
        for statement in statements.completing(location.identifier, open_existing(location).info(side.object), side):
            self._run(statement)

    def put(self, location: TableLocation, number: Numbered, frame: DataFrame, job: WriteJob) -> LoggedCommit:
        with batch.view_of(batch.with_operations(frame)) as view:
            return self._commit(location, number, self._statement(location, frame, view, job), job)

    def rows_with_keys(
        self, location: TableLocation, job: WriteJob, rows: DataFrame
    ) -> tuple[DataFrame, ScratchFolder]:
        keys = rows.select(*map(statements.quoted, job.key)).distinct()
        content = self.spark.read.format("delta").load(location.spark_path)
        folder = required_scratch(self.scratch).folder(f"{job.record.table}-{job.record.seq}-with-keys")
        return buffered_in(folder, content.join(keys, on=list(job.key), how="left_semi")), folder

    def apply_versions(
        self, location: TableLocation, number: Numbered, changes: Changes, job: WriteJob
    ) -> LoggedCommit:
        with batch.view_of(changes.frame) as view:
            sql = statements.apply_difference(location.identifier, view, job, batch.key_bounds(changes.frame, job))
            return self._commit(location, number, lambda: self._run(sql), job)

    def replace_where(
        self, location: TableLocation, number: Numbered, going: Condition, frame: DataFrame, side: WriteJob
    ) -> LoggedCommit:
        # REPLACE WHERE takes no column list, so the SELECT is in the table's own order.
        with batch.view_of(tables.in_own_order(location, frame)) as view:
            sql = f"INSERT INTO {location.identifier} REPLACE WHERE {going.sql} SELECT * FROM {view}"
            return self._commit(location, number, lambda: self._run(sql), side)

    def _commit(
        self, location: TableLocation, number: Numbered, statement: Callable[[], object], job: WriteJob
    ) -> LoggedCommit:
        return transaction.commit(self.spark, location, number.app, number.record, statement, job.before_commit)

    def _statement(self, location: TableLocation, frame: DataFrame, view: str, job: WriteJob) -> Callable[[], object]:
        """The one data statement of append, truncate and merge, ready to run."""
        table, present = location.identifier, frame.columns
        if job.replaces_content:
            now = open_newest(location)
            if now is not None and tables.has_other_columns(now.handle, job.columns):
                return lambda: tables.overwrite_with_schema(location, batch.alive(frame, job.columns), job)
            sql = statements.overwrite(table, view, job.columns, present)
        elif job.mode == "append":
            sql = statements.insert(table, view, job.columns, present)
        else:
            sql = statements.merge(location, view, job, present, batch.key_bounds(frame, job))
        return lambda: self._run(sql)

    def _run(self, sql: str) -> object:
        return self.spark.sql(sql).collect()


@dataclass(frozen=True)
class LogWriter:
    """Any engine that can write files; the commits are flowctl's own."""

    spark: SparkSession
    scratch: Scratch
    write_files: WriteFiles
    rewriter: type[Rewriter]
    accepts: Callable[[OpenedTable, WriteJob], bool] = lambda table, job: True

    def prepare(self, location: TableLocation, job: WriteJob) -> str:
        if not has_jvm(self.spark) and not reachable(location.url):
            what = f"Sail cannot reach {location.url}: it encodes some of its characters"
            raise TableError(what, hint=log_writer.HINT)
        return log_writer.prepare(location, job)

    def ensure(self, location: TableLocation, side: WriteJob) -> None:
        log_writer.made(location, side)

    def put(self, location: TableLocation, number: Numbered, frame: DataFrame, job: WriteJob) -> LoggedCommit:
        rewriter = self.rewriter(self.spark, location, self.scratch, job)

        def work_out(snapshot: LogSnapshot) -> log_writer.Change:
            if job.replaces_content:
                return rewriter.overwrite(frame, snapshot)
            if job.mode == "append":
                return rewriter.append(frame, snapshot)
            return rewriter.merge(frame, snapshot)

        return self._commit(location, number, job, work_out)

    def rows_with_keys(
        self, location: TableLocation, job: WriteJob, rows: DataFrame
    ) -> tuple[DataFrame, ScratchFolder]:
        rewriter = self.rewriter(self.spark, location, self.scratch, job)
        return rewriter.rows_with_keys(rows, open_existing(location).snapshot)

    def apply_versions(
        self, location: TableLocation, number: Numbered, changes: Changes, job: WriteJob
    ) -> LoggedCommit:
        rewriter = self.rewriter(self.spark, location, self.scratch, job)

        def work_out(snapshot: LogSnapshot) -> log_writer.Change:
            return rewriter.apply_versions(changes.frame, changes.kept, snapshot)

        return self._commit(location, number, job, work_out)

    def replace_where(
        self, location: TableLocation, number: Numbered, going: Condition, frame: DataFrame, side: WriteJob
    ) -> LoggedCommit:
        # `accepts` is about the target: a sidecar of an older version gets its columns in this very commit.
        rewriter = self.rewriter(self.spark, location, self.scratch, side)
        return log_writer.commit(
            location,
            number.app,
            side,
            number.record,
            lambda snapshot: rewriter.replace_where(going.sql, going.may_be_met, frame, snapshot),
            self.write_files,
        )

    def _commit(
        self,
        location: TableLocation,
        number: Numbered,
        job: WriteJob,
        work_out: Callable[[LogSnapshot], log_writer.Change],
    ) -> LoggedCommit:
        return log_writer.commit(
            location, number.app, job, number.record, work_out, self.write_files, lambda table: self.accepts(table, job)
        )


def side_job(job: WriteJob, columns: Sequence[Column]) -> WriteJob:
    """The job of a table beside the target: whatever is there under its name is ours, and rows are replaced by
    condition."""
    side = ObjectName((*job.object.parts[:-1], f"beside {job.object.parts[-1]}"))
    return replace(job, object=side, mode="append", columns=tuple(columns), replace=False, layout=Layout(), base=None)
