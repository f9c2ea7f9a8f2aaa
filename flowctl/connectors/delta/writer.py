"""The two ways to commit to a Delta table, behind one contract: Spark's statements, or files and our own log entries.

Both commit a sequence number exactly once, whichever process is killed or late; ``docs/architecture.md`` has the
reasoning for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, assert_never

from flowctl.connectors.delta.choice import EngineTraits, Way
from flowctl.connectors.delta.conditions import Condition
from flowctl.connectors.delta.file_writer import FileWriter
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.record import Record
from flowctl.connectors.delta.spark_writer import SparkWriter
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Writer(Protocol):
    """A method that takes a record commits once under its number, on top of the opened table, or raises as
    :func:`flowctl.connectors.delta.spark_commit.commit_statement` does."""

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """Makes sure that the table exists and is the one that ``job`` targets."""

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        """Makes sure that the sidecar exists and that :meth:`replace_where` can write ``side.columns`` to it."""

    def put(self, table: OpenTable, record: Record, rows: Batch, job: WriteJob) -> Record:
        """Commits append, truncate, merge and full refreshes."""

    def rows_with_keys(self, table: OpenTable, job: WriteJob, rows: Batch, frame: DataFrame) -> Batch:
        """The table's rows with one of the keys of ``rows``, computed once; may have more rows and columns. ``frame``
        has the same rows on the engine."""

    def apply_versions(self, table: OpenTable, record: Record, versions: Batch, job: WriteJob) -> Record:
        """Commits the rows of :func:`flowctl.sql.scd2.difference`, computed once if the table has files."""

    def replace_where(
        self, table: OpenTable, record: Record, going: Condition, coming: Condition, rows: Batch, side: WriteJob
    ) -> Record:
        """Removes a sidecar's rows that meet ``going`` and adds ``rows``. All of these meet ``coming``, and no row of
        the table that is to stay does."""


def writer_for(way: Way, engine: EngineTraits, spark: SparkSession, buffer: Buffer) -> Writer:
    match way:
        case Way.STATEMENTS:
            return SparkWriter(spark, buffer, creates_itself=not engine.setting)
        case Way.FILES | Way.MARKS:
            return FileWriter(spark, buffer)
        case _:
            assert_never(way)
