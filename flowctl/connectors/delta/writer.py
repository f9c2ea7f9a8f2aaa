"""The two ways to commit to a Delta table, behind one contract: Spark's statements, or files and our own log entries.

Both commit a sequence number exactly once, whichever process is killed or late; ``docs/architecture.md`` has the
reasoning for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, assert_never

from flowctl.connectors.delta.choice import EngineTraits, Way
from flowctl.connectors.delta.file_writer import FileWriter
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.spark_writer import SparkWriter
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.lake import writer as lake
from flowctl.connectors.target import WriteJob
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Writer(lake.Writer, Protocol):
    def prepare(self, location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
        """Makes sure that the table exists and is the one that ``job`` targets."""

    def prepare_sidecar(self, location: TableLocation, table: OpenTable | None, side: WriteJob) -> OpenTable:
        """Makes sure that the sidecar exists and that :meth:`replace_where` can write ``side.columns`` to it."""


def writer_for(way: Way, engine: EngineTraits, spark: SparkSession, buffer: Buffer) -> Writer:
    match way:
        case Way.STATEMENTS:
            return SparkWriter(spark, buffer, creates_itself=not engine.setting)
        case Way.FILES | Way.MARKS:
            return FileWriter(spark, buffer)
        case _:
            assert_never(way)
