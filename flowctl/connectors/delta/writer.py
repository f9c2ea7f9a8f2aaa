"""The two ways to commit to a Delta table, behind one contract: Spark's statements, or files and our own log entries.

Both commit a sequence number exactly once, whoever is killed or late; ``docs/architecture.md`` has the reasoning for
each.
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
    """A method that takes a record commits once under its number, over the opened table, or raises as
    :func:`flowctl.connectors.delta.spark_commit.commit_statement` says."""

    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """The table is there and is the one that ``job`` means."""

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        """A sidecar is there, for :meth:`replace_where` to write ``side.columns`` to."""

    def put(self, table: OpenTable, record: Record, rows: Batch, job: WriteJob) -> Record:
        """append, truncate, merge and full refreshes."""

    def rows_with_keys(self, table: OpenTable, job: WriteJob, rows: Batch, frame: DataFrame) -> Batch:
        """The table's rows with one of the keys of ``rows``, and maybe more, and maybe with further columns; worked out
        once. ``frame`` has the same rows on the engine."""

    def apply_versions(self, table: OpenTable, record: Record, versions: Batch, job: WriteJob) -> Record:
        """The rows of :func:`flowctl.sql.scd2.difference`, worked out once where the table has files."""

    def replace_where(
        self, table: OpenTable, record: Record, going: Condition, coming: Condition, rows: Batch, side: WriteJob
    ) -> Record:
        """In a sidecar, the rows that meet ``going`` go and ``rows`` come. ``coming`` is met by all of these, and by
        none of the table's that is to stay."""


def writer_for(way: Way, engine: EngineTraits, spark: SparkSession, buffer: Buffer) -> Writer:
    match way:
        case Way.STATEMENTS:
            return SparkWriter(spark, buffer, creates_itself=not engine.setting)
        case Way.FILES | Way.MARKS:
            return FileWriter(spark, buffer)
        case _:
            assert_never(way)
