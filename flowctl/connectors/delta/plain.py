"""Which batches need nothing of Delta but files and one entry in its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.connectors.base import WriteJob
from flowctl.connectors.delta import log, parquet_files, statements, tables
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.marking import are_told_apart
from flowctl.connectors.engine import demanding_features
from flowctl.model.table_info import TableInfo
from flowctl.spec.storage import scheme

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: What Spark writes to an object store it copies there once more, to give it its name: nothing for many rows.
_MOST_COPIED = 1_000_000
#: Rows of a merge whose keys fit into each executor, and their places into this process.
_MOST_MERGED = 500_000
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
    parquet_files.CODEC,
}
#: What a column's metadata may say. Anything else is a rule for its values.
_HARMLESS = {"comment", "delta.typeChanges"}


def is_plain(location: TableLocation, job: WriteJob) -> bool:
    """Whether ``job`` only adds rows, replaces all, or changes few, in a table without partitions, clustering, changes
    to its columns that Delta must make, nor anything else that a writer would have to mind."""
    if job.mode == "scd2" or job.layout.partition_by or job.layout.cluster_by or not _is_small(location, job):
        return False
    if job.statements and not statements.only_creates(location, job):
        return False
    table = log.open_table(location)
    if table is None:
        return bool(job.statements)
    info = log.table_info(job.object, table)
    return _is_simple(table, info, job) and (not _compares(job) or _can_be_marked(table, info))


def _is_small(location: TableLocation, job: WriteJob) -> bool:
    if _compares(job):
        return job.rows is not None and job.rows <= _MOST_MERGED
    rows = job.rows if job.rows is not None else job.estimated_rows
    return scheme(location.url) == "file" or (rows is not None and rows <= _MOST_COPIED)


def _compares(job: WriteJob) -> bool:
    return job.mode == "merge" and not job.replace


def _is_simple(table: DeltaTable, info: TableInfo, job: WriteJob) -> bool:
    properties = info.extra["properties"]
    return (
        not info.extra["partition_by"]
        and not demanding_features(info.extra["features"], properties)
        and all(name in _HEEDED or not name.startswith("delta.") for name in properties)
        and all(field.nullable and _HARMLESS.issuperset(field.metadata or ()) for field in table.schema().fields)
        and not tables.has_other_columns(table, job.columns)
        and len(table.file_uris()) <= _MOST_FILES
    )


def _can_be_marked(table: DeltaTable, info: TableInfo) -> bool:
    """Whether a row's place can be told by its file's name, and kept as a deletion vector."""
    paths = [str(path) for path in table.get_add_actions(flatten=True)["path"].to_pylist()]
    return (
        info.extra["properties"].get(statements.DELETION_VECTORS) == "true"
        and "delta.typeChanges" not in table.schema().to_json()
        and all(column.name.lower() != "_metadata" for column in info.columns)
        and (info.rows.value is not None or not paths)
        and are_told_apart(paths)
    )
