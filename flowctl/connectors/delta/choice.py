"""Which way a batch is written, by what is known of the table, the job and the engine.

Delta's own statements work a table's state out with queries before they write, even where nothing is to be compared:
for a small batch that takes longer than its file. So they write what asks for them, and flowctl commits the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flowctl.connectors.delta import spark_files, statements
from flowctl.connectors.delta.features import demanding_features
from flowctl.connectors.delta.file_writer import FileWriter
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.spark_writer import SparkWriter
from flowctl.connectors.delta.table import OpenTable
from flowctl.connectors.delta.writer import Writer, required_scratch
from flowctl.connectors.landing import Scratch
from flowctl.connectors.target import WriteJob
from flowctl.engine.session import has_jvm, has_own_workers
from flowctl.model.types import Array, Struct
from flowctl.storage.urls import scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Spark writes to an object store it copies there once more, to give it its name: nothing for many rows.
_MOST_COPIED = 1_000_000
#: Values (rows x columns) of a batch whose like this process looks for: half a million rows of usual width.
_MOST_VALUES = 8_000_000
#: From so many bytes on, where Spark runs on other machines, it looks for rows, and not this process.
_LARGE = 1 << 30
#: A longer log is Spark's business.
_MOST_FILES = 10_000
#: Properties that flowctl's own writing heeds, or that no writer needs to. Delta may make something of any other.
_HEEDED = {
    statements.DELETION_VECTORS,
    statements.TYPE_WIDENING,
    "delta.columnMapping.mode",  # another one than `none` is a feature
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.logRetentionDuration",
    spark_files.CODEC,
}
#: What a column's metadata may say. Anything else is a rule for its values.
_HARMLESS = {"comment", "delta.typeChanges"}
#: Settings of a session for all tables that Spark makes, and for the size of files.
_TABLE_DEFAULTS = "spark.databricks.delta.properties.defaults."
_FILE_SIZES = {"spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled"}


class Way(Enum):
    """``STATEMENTS``: Spark's. Otherwise flowctl commits: ``FILES`` of new rows, in place of all there are or beside
    them; or ``MARKS``, where rows of the batch take the place of single ones."""

    STATEMENTS = "Spark's statements"
    FILES = "new files"
    MARKS = "marked rows"


@dataclass(frozen=True)
class EngineTraits:
    """``is_local``: it works on this machine. ``has_write_settings``: the user says what Delta makes of a write."""

    has_jvm: bool
    is_local: bool
    has_write_settings: bool


def traits_of(spark: SparkSession) -> EngineTraits:
    if not has_jvm(spark):
        return EngineTraits(has_jvm=False, is_local=True, has_write_settings=False)
    settings = spark.conf.getAll
    told = any(
        name.startswith(_TABLE_DEFAULTS) or (name in _FILE_SIZES and settings[name] != "false") for name in settings
    )
    return EngineTraits(has_jvm=True, is_local=has_own_workers(spark), has_write_settings=told)


def choose(location: TableLocation, table: OpenTable | None, job: WriteJob, engine: EngineTraits) -> Way:
    """Pure. ``table`` is None where the job makes it."""
    is_empty = table is None or table.is_empty
    compares = job.mode in ("merge", "scd2") and not job.replace and not is_empty
    if not engine.has_jvm:
        return Way.MARKS if compares else Way.FILES
    if engine.has_write_settings or not _only_adds_files(table, job):
        return Way.STATEMENTS
    if is_empty and job.mode != "append":  # Spark's MERGE would look for what is not there
        return Way.FILES
    if job.mode == "scd2" and not job.few:
        return Way.STATEMENTS
    if compares and table is not None:
        return Way.MARKS if _is_small(job) and _can_be_marked(table, job, engine) else Way.STATEMENTS
    rows = job.rows if job.rows is not None else job.estimated_rows
    is_copied = scheme(location.url) != "file"
    return Way.FILES if not is_copied or (rows is not None and rows <= _MOST_COPIED) else Way.STATEMENTS


def choose_for_sidecar(table: OpenTable | None, side: WriteJob, engine: EngineTraits) -> Way:
    """Of a small batch, for what lies beside the job's table."""
    if engine.has_jvm and (
        engine.has_write_settings
        or (table is not None and not (is_simple(table, side) and _can_be_marked(table, side, engine)))
    ):
        return Way.STATEMENTS
    return Way.MARKS


def way_of_all(engine: EngineTraits) -> Way:
    """The one in which everything can be written that the engine can write."""
    return Way.STATEMENTS if engine.has_jvm else Way.MARKS


def writer_for(way: Way, engine: EngineTraits, spark: SparkSession, scratch: Scratch | None) -> Writer:
    if way is Way.STATEMENTS:
        return SparkWriter(spark, scratch, makes_tables=not engine.has_write_settings)
    return FileWriter(spark, required_scratch(scratch))


def _only_adds_files(table: OpenTable | None, job: WriteJob) -> bool:
    """Whether there are no partitions, no clustering, no changes to columns that Delta must make, nor anything else
    that a writer would have to mind."""
    if job.layout.partition_by or job.layout.cluster_by or job.alter:
        return False
    return is_simple(table, job) if table is not None else bool(job.create)


def is_simple(table: OpenTable, job: WriteJob) -> bool:
    """Whether adding and removing files is all that a writer has to do to it."""
    return (
        not table.partition_by
        and not demanding_features(table.features, table.properties)
        and all(name in _HEEDED or not name.startswith("delta.") for name in table.properties)
        and all(field.nullable and _HARMLESS.issuperset(field.metadata or ()) for field in table.handle.schema().fields)
        and not table.has_other_columns(job.columns)
        and table.file_count <= _MOST_FILES
    )


def _is_small(job: WriteJob) -> bool:
    return job.few or (job.rows is not None and job.rows * len(job.columns) <= _MOST_VALUES)


def _can_be_marked(table: OpenTable, job: WriteJob, engine: EngineTraits) -> bool:
    """Whether this process finds rows in it, and can hide them."""
    key = [column for column in job.columns if column.name in job.key]
    return (
        table.properties.get(statements.DELETION_VECTORS) == "true"
        and "delta.typeChanges" not in table.handle.schema().to_json()
        and (table.is_empty or table.rows.value is not None)
        and (engine.is_local or (table.rows.bytes or 0) <= _LARGE)
        and not any(isinstance(column.type, Array | Struct) for column in key)
        and not any(column.name.lower() == "_metadata" for column in table.columns)  # Spark finds no hidden row then
    )
