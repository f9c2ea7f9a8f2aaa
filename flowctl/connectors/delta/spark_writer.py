"""Commits by Spark's own statements: Delta's extension does what a table asks of a writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowctl.connectors.buffered import computed, frame_of
from flowctl.connectors.delta import batch, choice, commit, conditions, statements, transaction
from flowctl.connectors.delta.conditions import Condition
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.statements import quoted
from flowctl.connectors.delta.table import OpenTable, open_existing, open_table
from flowctl.connectors.delta.writer import Numbered, required_scratch
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch
from flowctl.engine.session import compiles, interpreted
from flowctl.errors import TableError, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql import dialects
from flowctl.storage.scratch import Scratch, ScratchFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Up to so many files a log is read faster than the queries for it are compiled.
_FEW_FILES = 10_000


@dataclass(frozen=True)
class SparkWriter:
    """As :class:`flowctl.connectors.delta.writer.Writer`; a sequence number is told by settings of the session.
    ``makes_tables``: nobody's settings say how Spark makes one, so flowctl may."""

    spark: SparkSession
    scratch: Scratch | None = None
    makes_tables: bool = True

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """Spark makes a table with half a dozen queries: for a small one that is as much as writing it. Clustering is
        Spark's own business."""
        if table is not None:
            table.check_intent(job.record)
        elif self.makes_tables and job.create and not job.layout.cluster_by:
            commit.create(location, job)
            job, table = replace(job, create=()), open_table(location)
        table = self._run_ddl(location, table, job)
        table.check_intent(job.record)
        if compiles(self.spark) and table.file_count <= _FEW_FILES:
            self._read_log(location)
        return table

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        if table is None:
            self._run(statements.create_table(location.identifier, side.columns, side.layout))
            table = open_existing(location)
        if changes := statements.complete_table(location.identifier, table.info(side.object), side):
            for statement in changes:
                self._run(statement)
            table = open_existing(location)
        return table

    def put(self, table: OpenTable, number: Numbered, rows: Batch, job: WriteJob) -> LoggedCommit:
        frame = self._frame(rows, job)
        with batch.view_of(batch.with_operations(frame)) as view:
            return self._commit(table, number, self._statement(table, frame, view, job), job)

    def rows_with_keys(self, table: OpenTable, job: WriteJob, rows: Batch) -> Batch:
        keys = self._frame(rows, job).select(*map(quoted, job.key)).distinct()
        content = self.spark.read.format("delta").load(table.location.spark_path)
        with_keys = content.join(keys, on=list(job.key), how="left_semi")
        return computed(with_keys, rows, lambda: self._folder(job, "with-keys"))

    def apply_versions(self, table: OpenTable, number: Numbered, versions: Batch, job: WriteJob) -> LoggedCommit:
        frame = self._frame(versions, job)
        identifier, bounds = table.location.identifier, batch.key_bounds(frame, job)
        with batch.view_of(frame) as view:
            sql = statements.apply_difference(identifier, view, job, bounds)
            return self._commit(table, number, lambda: self._run(sql), job)

    def replace_where(
        self, table: OpenTable, number: Numbered, going: Condition, coming: Condition, rows: Batch, side: WriteJob
    ) -> LoggedCommit:
        # REPLACE WHERE takes no column list, so the SELECT is in the table's own order; and it refuses rows that do not
        # meet its condition.
        with batch.view_of(_in_own_order(table, self._frame(rows, side))) as view:
            where = conditions.sql([*going, *coming])
            sql = f"INSERT INTO {table.location.identifier} REPLACE WHERE {where} SELECT * FROM {view}"
            return self._commit(table, number, lambda: self._run(sql), side)

    def _frame(self, rows: Batch, job: WriteJob) -> DataFrame:
        return frame_of(rows, self.spark, lambda: self._folder(job, "batch"))

    def _folder(self, job: WriteJob, name: str) -> ScratchFolder:
        return required_scratch(self.scratch).folder(f"{job.record.table}-{job.record.seq}-{name}")

    def _commit(
        self, table: OpenTable, number: Numbered, statement: Callable[[], object], job: WriteJob
    ) -> LoggedCommit:
        def before_commit() -> None:
            # A history's rows were derived from this version, and a statement looks at the table anew.
            if job.mode == "scd2" and open_existing(table.location).version != table.version:
                raise TransientError(f"another writer committed to {table.location.url} at the same moment")
            job.before_commit()

        return transaction.commit(self.spark, table.location, number.app, number.record, statement, before_commit)

    def _statement(self, table: OpenTable, frame: DataFrame, view: str, job: WriteJob) -> Callable[[], object]:
        """The one data statement of append, truncate and merge, ready to run."""
        identifier, present = table.location.identifier, frame.columns
        if job.replaces_content:
            if choice.has_other_columns(table.columns, job.columns):
                return lambda: self._overwrite_with_schema(table, batch.alive(frame, job.columns), job)
            sql = statements.overwrite(identifier, view, job.columns, present)
        elif job.mode == "append":
            sql = statements.insert(identifier, view, job.columns, present)
        else:
            sql = statements.merge(table.location, view, job, present, batch.key_bounds(frame, job))
        return lambda: self._run(sql)

    def _overwrite_with_schema(self, table: OpenTable, frame: DataFrame, job: WriteJob) -> None:
        """Content and schema in one commit, which only the writer's options can say; properties and id stay."""
        for name, value in statements.statistics_without(table.properties, job.columns).items():
            text = dialects.text(value, "spark")
            self._run(f"ALTER TABLE {table.location.identifier} SET TBLPROPERTIES ('{name}' = {text})")
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if job.layout.partition_by:
            writer = writer.partitionBy(*job.layout.partition_by)
        elif job.layout.cluster_by:
            writer = writer.clusterBy(*job.layout.cluster_by)
        writer.save(table.location.spark_path)

    def _run_ddl(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """The table after the job's DDL, which uses up no number and runs outside the transaction settings.

        A statement that an earlier try has run fails or does nothing now: what counts is that the table has the job's
        columns afterwards.
        """
        failure: Exception | None = None
        with interpreted(self.spark), transaction.created_for(self.spark, job.record.intent_id):
            for statement in job.statements:
                try:
                    self._run(statement)
                except Exception as error:  # noqa: BLE001 - raised below unless the table is as it should be
                    failure = failure or error
        after = open_table(location) if job.statements else table
        if after is not None and (job.replaces_content or not _missing(after, job.columns)):
            return after
        if failure is not None:
            raise failure
        lacks = ", ".join(_missing(after, job.columns)) if after else "everything"
        raise TableError(
            f"{location.url} is not as planned: it lacks {lacks}", hint="Plan again: the table changed since the plan"
        )

    def _read_log(self, location: TableLocation) -> None:
        """Delta reads the log with queries of its own, as part of the write and then compiled: two seconds of a cold
        JVM for a new table. What it has read before the write it keeps."""
        with interpreted(self.spark):
            self._run(f"DESCRIBE DETAIL {location.identifier}")

    def _run(self, sql: str) -> object:
        return self.spark.sql(sql).collect()


def _missing(table: OpenTable, columns: Sequence[Column]) -> list[str]:
    have = {column.name: column.type for column in table.columns}
    return [f'"{column.name}" {column.type}' for column in columns if have.get(column.name) != column.type]


def _in_own_order(table: OpenTable, frame: DataFrame) -> DataFrame:
    """``frame`` with exactly the table's columns in its order: a sidecar of a history of other keys has more."""
    from pyspark.sql import functions as f

    present = set(frame.columns)
    return frame.select(
        *(
            f.col(quoted(column.name))
            if column.name in present
            else f.lit(None).cast(types.spark_ddl(column.type)).alias(column.name)
            for column in table.columns
        )
    )
