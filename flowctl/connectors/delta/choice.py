"""Chooses how a batch is written, from the properties of the table, the write and the engine: at plan time, and again
for the exact version that the commit follows.

Before they write, Delta's own statements compute the table's state with queries, even if nothing is compared: for a
small batch this takes longer than writing its file. So they are used only where they are needed, and flowctl commits
the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flowctl.connectors.delta import statements
from flowctl.connectors.delta.features import demanding_features
from flowctl.connectors.target import WriteShape
from flowctl.engine.cost import COPIED_ROWS, SEARCHED_BYTES, SEARCHED_VALUES, SHORT_LOG_FILES
from flowctl.engine.session import SAIL, has_jvm, has_own_workers
from flowctl.model.table_info import Column, TableInfo
from flowctl.model.types import Array, Struct
from flowctl.storage.urls import scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Properties that flowctl's own commits honour, or that no writer needs to. Delta may act on any other property.
_HEEDED = {
    statements.DELETION_VECTORS,
    statements.TYPE_WIDENING,
    "delta.columnMapping.mode",  # any mode but `none` is a feature
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.logRetentionDuration",
    statements.CODEC,
}
#: Settings for all tables that Spark creates, and for file sizes.
_TABLE_DEFAULTS = "spark.databricks.delta.properties.defaults."
_FILE_SIZES = {"spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled"}


class Way(Enum):
    """``STATEMENTS``: Spark commits. Otherwise flowctl commits: ``FILES`` adds new files or replaces all existing ones;
    with ``MARKS``, rows of the batch replace single rows."""

    STATEMENTS = "Spark's statements"
    FILES = "new files"
    MARKS = "marked rows"


@dataclass(frozen=True)
class Choice:
    """``reason``: why flowctl does not commit itself."""

    way: Way
    reason: str = ""


@dataclass(frozen=True)
class EngineTraits:
    """``is_local``: it runs on this machine. ``setting``: a setting of the user that changes how Delta writes; empty
    for none."""

    has_jvm: bool
    is_local: bool
    setting: str = ""


def traits_of(spark: SparkSession) -> EngineTraits:
    if not has_jvm(spark):
        return EngineTraits(has_jvm=False, is_local=True)
    return EngineTraits(has_jvm=True, is_local=has_own_workers(spark), setting=_write_setting(spark.conf.getAll))


def planned_traits(url: str, conf: Mapping[str, str]) -> EngineTraits:
    """The traits of an engine that has not been started."""
    if url == SAIL:
        return EngineTraits(has_jvm=False, is_local=True)
    return EngineTraits(has_jvm=True, is_local=url.startswith("local"), setting=_write_setting(conf))


def _write_setting(conf: Mapping[str, str]) -> str:
    of_writes = (n for n in conf if n.startswith(_TABLE_DEFAULTS) or (n in _FILE_SIZES and conf[n] != "false"))
    return next(of_writes, "")


def choose(url: str, there: TableInfo | None, write: WriteShape, engine: EngineTraits) -> Choice:
    """Chooses for a write to the table at ``url``. ``there`` is None if the write creates the table."""
    is_empty = there is None or there.extra["files"] == 0
    compares = write.mode in ("merge", "scd2") and not write.replaces and not is_empty
    if not engine.has_jvm:
        return Choice(Way.MARKS if compares else Way.FILES)
    reason = engine.setting or _asks_for_more(there, write)
    if not reason and is_empty and write.mode != "append":  # Spark's MERGE would search an empty table
        return Choice(Way.FILES)
    if not reason and write.mode == "scd2" and not write.in_memory:
        reason = "a history, of more rows than fit into memory"
    if not reason and compares and there is not None:
        reason = _too_many(write) or _why_unmarked(there, write.columns, write.key, engine)
    elif not reason and scheme(url) != "file" and (write.rows is None or write.rows > COPIED_ROWS):
        reason = "many rows, which would be copied within the store"
    if reason:
        return Choice(Way.STATEMENTS, reason)
    return Choice(Way.MARKS if compares else Way.FILES)


def choose_for_sidecar(
    there: TableInfo | None, columns: tuple[Column, ...], key: tuple[str, ...], engine: EngineTraits
) -> Way:
    """Chooses for a small batch to the sidecar of the job's table."""
    if not engine.has_jvm:
        return Way.MARKS
    by_statements = engine.setting or (
        there is not None and (_rules_of(there, columns) or _why_unmarked(there, columns, key, engine))
    )
    return Way.STATEMENTS if by_statements else Way.MARKS


def _asks_for_more(there: TableInfo | None, write: WriteShape) -> str:
    """What requires more of a writer than adding and removing files; empty for nothing."""
    if write.layout.partition_by:
        return "partitions"
    if write.layout.cluster_by:
        return "clustering"
    if write.alters:
        return "changed columns"
    if there is not None:
        return _rules_of(there, write.columns)
    return "" if write.creates else "a table that flowctl does not create"


def _rules_of(there: TableInfo, columns: tuple[Column, ...]) -> str:
    properties = there.extra["properties"]
    if there.extra["partition_by"]:
        return "partitions"
    if demanding := demanding_features(there.extra["features"], properties):
        return ", ".join(demanding)
    if other := [str(name) for name in properties if name.startswith("delta.") and name not in _HEEDED]:
        return other[0]
    if ruled := there.extra["ruled_columns"]:
        return f"rules for {ruled[0]}"
    if has_other_columns(there.columns, columns):
        return "other columns"
    return "a long log" if there.extra["files"] > SHORT_LOG_FILES else ""


def has_other_columns(there: tuple[Column, ...], columns: tuple[Column, ...]) -> bool:
    """Whether replacing the content must replace the schema too (a full refresh after a type change)."""
    return {one.name: one.type for one in there} != {one.name: one.type for one in columns}


def _too_many(write: WriteShape) -> str:
    if write.in_memory or (write.rows is not None and write.rows * len(write.columns) <= SEARCHED_VALUES):
        return ""
    return "many rows to compare"


def _why_unmarked(there: TableInfo, columns: tuple[Column, ...], key: tuple[str, ...], engine: EngineTraits) -> str:
    """Why this process does not search the table for rows, or cannot hide them."""
    if there.extra["properties"].get(statements.DELETION_VECTORS) != "true":
        return "no deletion vectors"
    if there.extra["is_widened"]:
        return "files of narrower types"
    if there.extra["files"] and there.rows.value is None:
        return "files that do not say how many rows they have"
    if not engine.is_local and (there.rows.bytes or 0) > SEARCHED_BYTES:
        return "a large table"
    if any(isinstance(column.type, Array | Struct) for column in columns if column.name in key):
        return "a key with parts"
    if any(column.name.lower() == "_metadata" for column in there.columns):  # it shadows Spark's own
        return "a column named _metadata"
    return ""
