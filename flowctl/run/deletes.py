"""Deletes by missing keys: source and target keys are compared both ways, from the batch's own snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.engine.spark_types import named
from flowctl.run.checks import BatchCounts
from flowctl.spec.spec import DetectFlag, TableSpec
from flowctl.sql.difference import SOURCE_ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from flowctl.run.stage import Staging

SOFT_DELETED = "_deleted_at"


def may_repeat(table: TableSpec) -> bool:
    """Whether a batch may delete rows that are deleted already: flags stay set, and messages are sent again."""
    return isinstance(table.deletes, DetectFlag) or table.has_source_order


def live(target: DataFrame, mode: str) -> DataFrame:
    """The target's rows that correspond to a row of the source: not soft-deleted, and current for scd2."""
    from pyspark.sql import functions as f

    if mode == "scd2":
        return target.where(f.col("is_current"))
    return target.where(f.col(SOFT_DELETED).isNull()) if SOFT_DELETED in target.columns else target


def gone(source_keys: DataFrame, target_live: DataFrame, key: Sequence[str]) -> DataFrame:
    """Keys that the target has and the source has not."""
    return _pair(target_live.select(*map(named, key)), source_keys, key, "left_anti")


def missed(source_keys: DataFrame, target_live: DataFrame, batch: DataFrame, key: Sequence[str]) -> DataFrame:
    """Keys that the source has, but neither the target's live rows nor the batch. Their rows appeared below the
    position, or were deleted and inserted again; they are read again."""
    unknown = _pair(source_keys, target_live, key, "left_anti").select(*map(named, key))
    return _pair(unknown, batch, key, "left_anti")


def live_rows(work: Staging) -> DataFrame | None:
    """The target's live rows before this commit: their keys, and the order of their changes, as far as the table has
    these columns. None if there is no table."""
    object = work.table.target.object
    there = work.target.describe([object])[object]
    if there is None:
        return None
    wanted = {*work.table.key, SOFT_DELETED, "is_current", SOURCE_ORDER}
    columns = [column for column in there.columns if column.name in wanted]
    return live(work.target.scan(work.spark, object, columns or there.columns[:1]), work.table.mode)


def count_live(work: Staging, rows: DataFrame, counts: BatchCounts) -> int:
    """How many of the target's live rows the deletions of the batch concern (:func:`may_repeat`): by their order, those
    that are not newer. Called only if they are too many."""
    key, stored = work.table.key, live_rows(work)
    retyped = {change.column for change in work.columns.changes if change.action == "retype"}
    if stored is None or not {*key} <= {*stored.columns} - retyped:  # a full refresh with another key replaces them all
        return min(counts.deletes, counts.target_rows or 0)
    deleted = rows.where(named(REASON_COLUMN).isNull() & (named(OP_COLUMN) == "D"))
    if SOURCE_ORDER not in stored.columns or work.table.mode == "scd2":  # a version has the order of its beginning
        return int(only_keys(stored, deleted, key).count())
    newest = named(SOURCE_ORDER, "l")
    concerned = newest.isNull() | (newest <= named(SOURCE_ORDER, "r"))
    return int(_pair(stored, deleted, key, "left_semi", concerned).count())


def only_keys(frame: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows of ``frame`` whose key is in ``keys``."""
    return _pair(frame, keys, key, "left_semi")


def as_batch(keys: DataFrame, like: DataFrame, valid_from: str | None) -> DataFrame:
    """Delete rows shaped like the staged batch ``like``: ``D``, key columns, everything else null.

    ``valid_from`` (RFC 3339, scd2 only) is the moment of detection, fixed in the intent.
    """
    from pyspark.sql import functions as f

    columns: list[SparkColumn] = []
    for part in like.schema.fields:
        if part.name in keys.columns:
            value = named(part.name)
        elif part.name == OP_COLUMN:
            value = f.lit("D")
        elif part.name == DETECTED_COLUMN:
            value = f.lit(True)
        elif part.name == "valid_from" and valid_from is not None:
            value = f.to_timestamp(f.lit(valid_from))
        else:
            value = f.lit(None)
        columns.append(value.cast(part.dataType).alias(part.name))
    return keys.select(*columns)


def _pair(
    left: DataFrame, right: DataFrame, key: Sequence[str], how: str, also: SparkColumn | None = None
) -> DataFrame:
    """Joins ``l`` and ``r`` on equal keys. Aliases are needed because both sides may come from one read."""
    condition = named(key[0], "l").eqNullSafe(named(key[0], "r"))
    for name in key[1:]:
        condition = condition & named(name, "l").eqNullSafe(named(name, "r"))
    if also is not None:
        condition = condition & also
    return left.alias("l").join(right.alias("r"), on=condition, how=how)
