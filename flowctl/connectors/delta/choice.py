"""Which way a batch is written, by what is known of the table, the write and the engine: when it is planned, and again
of the very version that it is committed over.

Delta's own statements work a table's state out with queries before they write, even where nothing is to be compared:
for a small batch that takes longer than its file. So they write what asks for them, and flowctl commits the rest.
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
    statements.CODEC,
}
#: Settings for all tables that Spark makes, and for the size of files.
_TABLE_DEFAULTS = "spark.databricks.delta.properties.defaults."
_FILE_SIZES = {"spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled"}


class Way(Enum):
    """``STATEMENTS``: Spark's. Otherwise flowctl commits: ``FILES`` of new rows, in place of all there are or in
    addition; or ``MARKS``, where rows of the batch take the place of single ones."""

    STATEMENTS = "Spark's statements"
    FILES = "new files"
    MARKS = "marked rows"


@dataclass(frozen=True)
class Choice:
    """``reason``: why it is not flowctl that commits."""

    way: Way
    reason: str = ""


@dataclass(frozen=True)
class EngineTraits:
    """``is_local``: it works on this machine. ``setting``: where the user says what Delta makes of a write."""

    has_jvm: bool
    is_local: bool
    setting: str = ""


def traits_of(spark: SparkSession) -> EngineTraits:
    if not has_jvm(spark):
        return EngineTraits(has_jvm=False, is_local=True)
    return EngineTraits(has_jvm=True, is_local=has_own_workers(spark), setting=_write_setting(spark.conf.getAll))


def planned_traits(url: str, conf: Mapping[str, str]) -> EngineTraits:
    """Of an engine that has not been started."""
    if url == SAIL:
        return EngineTraits(has_jvm=False, is_local=True)
    return EngineTraits(has_jvm=True, is_local=url.startswith("local"), setting=_write_setting(conf))


def _write_setting(conf: Mapping[str, str]) -> str:
    of_writes = (n for n in conf if n.startswith(_TABLE_DEFAULTS) or (n in _FILE_SIZES and conf[n] != "false"))
    return next(of_writes, "")


def choose(url: str, there: TableInfo | None, write: WriteShape, engine: EngineTraits) -> Choice:
    """``there`` is None where the write makes the table, which lies at ``url``."""
    is_empty = there is None or there.extra["files"] == 0
    compares = write.mode in ("merge", "scd2") and not write.replaces and not is_empty
    if not engine.has_jvm:
        return Choice(Way.MARKS if compares else Way.FILES)
    reason = engine.setting or _asks_for_more(there, write)
    if not reason and is_empty and write.mode != "append":  # Spark's MERGE would look for what is not there
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
    """Of a small batch, for the sidecar of the job's table."""
    if not engine.has_jvm:
        return Way.MARKS
    by_statements = engine.setting or (
        there is not None and (_rules_of(there, columns) or _why_unmarked(there, columns, key, engine))
    )
    return Way.STATEMENTS if by_statements else Way.MARKS


def way_of_all(engine: EngineTraits) -> Way:
    """The one in which everything can be written that the engine can write."""
    return Way.STATEMENTS if engine.has_jvm else Way.MARKS


def _asks_for_more(there: TableInfo | None, write: WriteShape) -> str:
    """What a writer has to heed apart from adding and removing files; empty where there is nothing."""
    if write.layout.partition_by:
        return "partitions"
    if write.layout.cluster_by:
        return "clustering"
    if write.alters:
        return "changed columns"
    if there is not None:
        return _rules_of(there, write.columns)
    return "" if write.creates else "a table that somebody else makes"


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
    """Whether replacing the content must replace the schema too (a full refresh after a changed type)."""
    return {one.name: one.type for one in there} != {one.name: one.type for one in columns}


def _too_many(write: WriteShape) -> str:
    if write.in_memory or (write.rows is not None and write.rows * len(write.columns) <= SEARCHED_VALUES):
        return ""
    return "many rows to compare"


def _why_unmarked(there: TableInfo, columns: tuple[Column, ...], key: tuple[str, ...], engine: EngineTraits) -> str:
    """Why this process does not look for rows in it, or cannot hide them."""
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
    if any(column.name.lower() == "_metadata" for column in there.columns):  # Spark finds no hidden row then
        return "a column named _metadata"
    return ""
