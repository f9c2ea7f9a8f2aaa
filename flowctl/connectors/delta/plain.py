"""Which batches need nothing of Delta but files and one entry in its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl.connectors.delta import parquet_files, statements, tables
from flowctl.connectors.delta.features import demanding_features
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.marking import are_told_apart
from flowctl.connectors.delta.opened import OpenedTable, open_newest
from flowctl.connectors.target import WriteJob
from flowctl.model.table_info import Column, TableInfo
from flowctl.storage.urls import scheme

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
    if job.layout.partition_by or job.layout.cluster_by or not _is_small(location, job):
        return False
    if job.alter:
        return False
    table = open_newest(location)
    if table is None:  # the table to be made must be one that the commit accepts
        marks = job.layout.deletion_vectors and not _hides_places(job.columns)
        return bool(job.create) and (marks or not _compares(job))
    return is_plain_table(table, job)


def is_plain_sidecar(location: TableLocation, side: WriteJob) -> bool:
    """As :func:`is_plain`, of a sidecar, which is read by the batch's keys too."""
    table = open_newest(location)
    return table is None or is_plain_table(table, replace(side, mode="merge"))


def is_plain_table(table: OpenedTable, job: WriteJob) -> bool:
    """What :func:`is_plain` asks of the table itself."""
    info = table.info(job.object)
    return (
        not info.extra["partition_by"]
        and is_simple_table(table, job)
        and (not _compares(job) or _can_be_marked(table.handle, info))
    )


def is_first_load(location: TableLocation, job: WriteJob) -> bool:
    """Whether ``job`` finds nothing to replace or to compare with, in a table that asks nothing of a writer but files.
    Spark's INSERT would be as fast and may land on top of anything; its MERGE looks for what is not there."""
    if job.mode == "append" or job.layout.cluster_by:
        return False
    if job.alter:
        return False
    table = open_newest(location)
    if table is None:
        return bool(job.create)
    return table.is_empty and is_simple_table(table, job)


def _is_small(location: TableLocation, job: WriteJob) -> bool:
    if job.mode == "scd2":
        return job.few
    if _compares(job):
        return job.rows is not None and job.rows <= _MOST_MERGED
    rows = job.rows if job.rows is not None else job.estimated_rows
    return scheme(location.url) == "file" or (rows is not None and rows <= _MOST_COPIED)


def _compares(job: WriteJob) -> bool:
    return job.mode in ("merge", "scd2") and not job.replace


def is_simple_table(table: OpenedTable, job: WriteJob) -> bool:
    """Whether adding and removing files is all that a writer has to do to it."""
    info, handle = table.info(job.object), table.handle
    properties = info.extra["properties"]
    return (
        not demanding_features(info.extra["features"], properties)
        and all(name in _HEEDED or not name.startswith("delta.") for name in properties)
        and all(field.nullable and _HARMLESS.issuperset(field.metadata or ()) for field in handle.schema().fields)
        and not tables.has_other_columns(handle, job.columns)
        and len(handle.file_uris()) <= _MOST_FILES
    )


def _can_be_marked(table: DeltaTable, info: TableInfo) -> bool:
    """Whether a row's place can be told by its file's name, and kept as a deletion vector."""
    paths = [str(path) for path in table.get_add_actions(flatten=True)["path"].to_pylist()]
    return (
        info.extra["properties"].get(statements.DELETION_VECTORS) == "true"
        and "delta.typeChanges" not in table.schema().to_json()
        and not _hides_places(info.columns)
        and (info.rows.value is not None or not paths)
        and are_told_apart(paths)
    )


def _hides_places(columns: Sequence[Column]) -> bool:
    """Whether a column has the name under which an engine gives a row's file and place."""
    return any(column.name.lower() == "_metadata" for column in columns)
