"""Before the data: the table is made or changed as the plan says, and is the one that the intent means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.delta import log, transaction
from flowctl.connectors.delta.creation import created_by
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.opened import OpenedTable, open_newest
from flowctl.connectors.delta.statements import quoted, statistics_without
from flowctl.connectors.delta.types import columns_of
from flowctl.connectors.foreign import foreign_target
from flowctl.connectors.target import WriteJob
from flowctl.engine.session import compiles, interpreted
from flowctl.errors import StateConflict, StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.sql import dialects

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


#: Up to so many files a log is read faster than the queries for it are compiled.
_FEW_FILES = 10_000


def prepare(spark: SparkSession, location: TableLocation, job: WriteJob) -> str:
    """Runs the job's DDL; returns the table's id. DDL uses up no number and runs outside the transaction settings.

    A statement that an earlier try has run fails or does nothing now: what counts is that the table has the job's
    columns afterwards. :class:`StateConflict` when the table is not the one that the intent was written for.
    """
    before = open_newest(location)
    if before is not None:
        check(before, job)
    failure: Exception | None = None
    with interpreted(spark), transaction.created_for(spark, job.record.intent_id):
        for statement in job.statements:
            try:
                spark.sql(statement).collect()
            except Exception as error:  # noqa: BLE001 - raised below unless the table is as it should be
                failure = failure or error
    table = open_newest(location)
    after = table.info(job.object) if table is not None else None
    if table is not None and after is not None and (job.replaces_content or not _missing(after, job.columns)):
        check(table, job)
        _read_log(spark, location)
        return after.identity
    if failure is not None:
        raise failure
    lacks = ", ".join(_missing(after, job.columns)) if after else "everything"
    raise TableError(
        f"{location.url} is not as planned: it lacks {lacks}", hint="Plan again: the table changed since the plan"
    )


def _read_log(spark: SparkSession, location: TableLocation) -> None:
    """Delta reads the log with queries of its own, as part of the write and then compiled: two seconds of a cold JVM
    for a new table. What it has read before the write it keeps."""
    table = log.open_table(location) if compiles(spark) else None
    if table is not None and len(table.file_uris()) <= _FEW_FILES:
        with interpreted(spark):
            spark.sql(f"DESCRIBE DETAIL {location.identifier}").collect()


def check_memory(location: TableLocation, info: TableInfo) -> None:
    """:class:`StoppedByPolicy` for a table that forgets which numbers were committed."""
    if log.RETENTION in info.extra["properties"]:
        raise StoppedByPolicy(
            f"{location.url} has {log.RETENTION}: Delta would forget which numbers were committed",
            hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{log.RETENTION}')",
        )


def check(table: OpenedTable, job: WriteJob) -> None:
    """The table is the one that the intent means: the one it was written for, or the one that it made."""
    location, info = table.location, table.info(job.object)
    check_memory(location, info)
    expected = job.record.target_id
    if expected and expected != info.identity:
        raise StateConflict(
            f"{location.url} is table {info.identity} now, the plan was made for {expected}",
            hint="Plan again: it was dropped and made again",
        )
    if expected or created_by(location, table.handle) == job.record.intent_id:
        return
    app = log.app_id(job.record.lineage, job.record.table)
    if table.standing(app, job.record.record()) is None:  # else another try of this number was faster
        raise foreign_target(job.record, location.url)


def _missing(info: TableInfo, columns: Sequence[Column]) -> list[str]:
    have = {column.name: column.type for column in info.columns}
    return [f'"{column.name}" {column.type}' for column in columns if have.get(column.name) != column.type]


def has_other_columns(table: DeltaTable, columns: Sequence[Column]) -> bool:
    """Whether replacing the content must replace the schema too (a full refresh after a changed type)."""
    have = {column.name: column.type for column in columns_of(table.schema().to_json())}
    return have != {column.name: column.type for column in columns}


def overwrite_with_schema(location: TableLocation, frame: DataFrame, job: WriteJob) -> None:
    """Content and schema in one commit, which only the writer's options can say; properties and id stay."""
    table = log.open_table(location)
    kept = statistics_without(table.metadata().configuration, job.columns) if table is not None else {}
    for name, value in kept.items():
        text = dialects.text(value, "spark")
        frame.sparkSession.sql(f"ALTER TABLE {location.identifier} SET TBLPROPERTIES ('{name}' = {text})").collect()
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    if job.layout.partition_by:
        writer = writer.partitionBy(*job.layout.partition_by)
    elif job.layout.cluster_by:
        writer = writer.clusterBy(*job.layout.cluster_by)
    writer.save(location.spark_path)


def in_own_order(location: TableLocation, frame: DataFrame) -> DataFrame:
    """``frame`` with exactly the table's columns in its order: a sidecar of a history of other keys has more."""
    from pyspark.sql import functions as f

    table, present = log.open_table(location), set(frame.columns)
    return frame.select(
        *(
            f.col(quoted(column.name))
            if column.name in present
            else f.lit(None).cast(types.spark_ddl(column.type)).alias(column.name)
            for column in (columns_of(table.schema().to_json()) if table is not None else ())
        )
    )
