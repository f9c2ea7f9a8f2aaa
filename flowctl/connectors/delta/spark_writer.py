"""Commits by Spark's own statements: Delta's extension does what a table requires of a writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from flowctl.connectors.buffered import computed, frame_of
from flowctl.connectors.delta import choice, commit, decimal_bounds, statements
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.spark_commit import commit_statement, created_for
from flowctl.connectors.delta.table import OpenTable, open_existing, open_table
from flowctl.connectors.lake import conditions
from flowctl.connectors.lake.conditions import Condition, quoted
from flowctl.connectors.lake.record import Record
from flowctl.connectors.lake.rows import live_frame, view_of, with_marks, with_operations
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch
from flowctl.engine.cost import SHORT_LOG_FILES
from flowctl.engine.session import compiles, interpreted
from flowctl.engine.spark_types import frame_in_order
from flowctl.errors import TableError, WriteConflict
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql import dialects
from flowctl.sql.difference import KeyBounds
from flowctl.storage.buffer import Buffer, BufferFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Key types whose literals Delta compares with file statistics; text only up to the length that statistics keep.
_BOUNDED = (types.INT8, types.INT16, types.INT32, types.INT64, types.DATE, types.STRING)
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class SparkWriter:
    """Implements :class:`flowctl.connectors.delta.writer.Writer`; session settings have the sequence number.
    ``creates_itself``: no setting controls how Spark creates tables, so flowctl may create them."""

    spark: SparkSession
    buffer: Buffer
    creates_itself: bool = True

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """Spark creates a table with half a dozen queries, which for a small one take as long as writing it: flowctl
        creates it where it can. Clustered tables are left to Spark."""
        if table is not None:
            table.check_intent(job.record)
        elif self.creates_itself and job.create and not job.layout.cluster_by:
            commit.create(location, job)
            job, table = replace(job, create=()), open_table(location)
        table = self._run_ddl(location, table, job)
        table.check_intent(job.record)
        if compiles(self.spark) and table.file_count <= SHORT_LOG_FILES:
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

    def put(self, table: OpenTable, record: Record, rows: Batch, job: WriteJob) -> Record:
        frame = self._frame(with_marks(rows, job) if job.replaces_content else rows, job)
        with view_of(with_operations(frame)) as view:
            return self._commit(table, record, self._statement(table, frame, view, job), job)

    def rows_with_keys(self, table: OpenTable, job: WriteJob, rows: Batch, frame: DataFrame) -> Batch:
        keys = frame.select(*map(quoted, job.key)).distinct()
        content = self.spark.read.format("delta").load(table.location.spark_path)
        with_keys = content.join(keys, on=list(job.key), how="left_semi")
        return computed(with_keys, rows, lambda: self._folder(job, "with-keys"))

    def apply_versions(self, table: OpenTable, record: Record, versions: Batch, job: WriteJob) -> Record:
        frame = self._frame(versions, job)
        identifier, bounds = table.location.identifier, key_bounds(frame, job)
        with view_of(frame) as view:
            sql = statements.apply_difference(identifier, view, job, bounds)
            return self._commit(table, record, lambda: self._run(sql), job)

    def replace_where(
        self, table: OpenTable, record: Record, going: Condition, coming: Condition, rows: Batch, side: WriteJob
    ) -> Record:
        # REPLACE WHERE takes no column list, so the SELECT is in the table's own order; and it refuses rows that do not
        # meet its condition.
        with view_of(frame_in_order(self._frame(rows, side), table.columns)) as view:
            where = conditions.sql([*going, *coming])
            sql = f"INSERT INTO {table.location.identifier} REPLACE WHERE {where} SELECT * FROM {view}"
            return self._commit(table, record, lambda: self._run(sql), side)

    def _frame(self, rows: Batch, job: WriteJob) -> DataFrame:
        return frame_of(rows, self.spark, lambda: self._folder(job, "batch"))

    def _folder(self, job: WriteJob, name: str) -> BufferFolder:
        return self.buffer.folder(f"{job.record.table}-{job.record.seq}-{name}")

    def _commit(self, table: OpenTable, record: Record, statement: Callable[[], object], job: WriteJob) -> Record:
        def before_commit() -> None:
            # A history's rows were derived from this version, but a statement reads the newest one.
            if job.mode == "scd2" and open_existing(table.location).version != table.version:
                raise WriteConflict(f"another writer committed to {table.location.url} at the same moment")
            job.before_commit()

        return commit_statement(self.spark, table.location, record, statement, before_commit)

    def _statement(self, table: OpenTable, frame: DataFrame, view: str, job: WriteJob) -> Callable[[], object]:
        """The one data statement of append, truncate and merge, ready to run."""
        identifier, present = table.location.identifier, frame.columns
        if job.replaces_content:
            if choice.has_other_columns(table.columns, job.columns):
                return lambda: self._overwrite_with_schema(table, live_frame(frame, job.columns), job)
            sql = statements.overwrite(identifier, view, job.columns, present)
        elif job.mode == "append":
            sql = statements.insert(identifier, view, job.columns, present)
        else:
            sql = statements.merge(table.location, view, job, present, key_bounds(frame, job))
        return lambda: self._run(sql)

    def _overwrite_with_schema(self, table: OpenTable, frame: DataFrame, job: WriteJob) -> None:
        """Replaces content and schema in one commit, for which only the writer has options; properties and id stay."""
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
        """Returns the table after the job's DDL, which uses no number and runs outside the transaction settings.

        A statement that an earlier attempt has run fails or does nothing now: what counts is that the table has the
        job's columns afterwards.
        """
        failure: Exception | None = None
        with interpreted(self.spark), created_for(self.spark, job.record.intent_id):
            for statement in job.statements:
                try:
                    self._run(statement)
                except Exception as error:  # noqa: BLE001 - raised below unless the table is as planned
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
        """Makes Delta read the log before the write, and keep it. As part of the write, its queries are compiled, which
        takes a cold JVM two seconds for a new table."""
        with interpreted(self.spark):
            self._run(f"DESCRIBE DETAIL {location.identifier}")

    def _run(self, sql: str) -> object:
        return self.spark.sql(sql).collect()


def _missing(table: OpenTable, columns: Sequence[Column]) -> list[str]:
    have = {column.name: column.type for column in table.columns}
    return [f'"{column.name}" {column.type}' for column in columns if have.get(column.name) != column.type]


def key_bounds(frame: DataFrame, job: WriteJob) -> KeyBounds:
    """Literal bounds of the batch's keys: from staging, if it has computed them, otherwise from one aggregate over
    ``frame``. Empty for an empty batch."""
    keys = [column for column in job.columns if column.name in job.key and _is_bounded(column)]
    ends = job.key_bounds if job.key_bounds is not None else _counted(frame, keys)
    found = {column.name: _literals(*ends[column.name], column) for column in keys if column.name in ends}
    return KeyBounds({name: literals for name, literals in found.items() if literals is not None})


def _counted(frame: DataFrame, keys: Sequence[Column]) -> dict[str, tuple[str, str]]:
    from pyspark.sql import functions as f

    if not keys:
        return {}
    aggregates = [end(quoted(column.name)).cast("string") for column in keys for end in (f.min, f.max)]
    row = frame.agg(*aggregates).collect()[0]
    ends = {column.name: (row[2 * at], row[2 * at + 1]) for at, column in enumerate(keys)}
    return {name: pair for name, pair in ends.items() if pair[0] is not None}


def _literals(low: str, high: str, column: Column) -> tuple[str, str] | None:
    """None for ends that Delta cannot compare with statistics."""
    if max(len(low), len(high)) > _LONGEST_TEXT:
        return None
    if isinstance(column.type, types.Decimal):
        wider = decimal_bounds.around(Decimal(low), Decimal(high), column.type)
        if wider is None:
            return None
        low, high = (format(end, "f") for end in wider)
    return _literal(low, column), _literal(high, column)


def _literal(text: str, column: Column) -> str:
    plain = dialects.text(text, "spark")
    return plain if column.type == types.STRING else f"CAST({plain} AS {types.spark_ddl(column.type)})"


def _is_bounded(column: Column) -> bool:
    return column.type in _BOUNDED or isinstance(column.type, types.Decimal)
