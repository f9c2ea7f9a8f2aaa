"""Deletes by missing keys: source and target keys are compared both ways, from the batch's own snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.source import ReadRequest
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.engine.spark_types import named
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column
from flowctl.observe.lower_bound import read_from
from flowctl.run import batch, masking
from flowctl.run.checks import BatchCounts
from flowctl.spec.spec import DetectFlag
from flowctl.sql.difference import SOURCE_ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from flowctl.run.stage import Staging

SOFT_DELETED = "_deleted_at"


def may_repeat(work: Staging) -> bool:
    """Whether a batch may delete rows that the target has not: flags stay set, messages are sent again, and a change
    feed has rows that came and went between two runs."""
    by_version = isinstance(work.intent.interval.lower, VersionPosition)
    return isinstance(work.table.deletes, DetectFlag) or work.table.has_source_order or by_version


def live(target: DataFrame, mode: str) -> DataFrame:
    """The target's rows that correspond to a row of the source: not soft-deleted, and current for scd2."""
    from pyspark.sql import functions as f

    if mode == "scd2":
        return target.where(f.col("is_current"))
    return target.where(f.col(SOFT_DELETED).isNull()) if SOFT_DELETED in target.columns else target


def gone(source_keys: DataFrame, target_live: DataFrame, key: Sequence[str]) -> DataFrame:
    """Keys that the target has and the source has not."""
    return _pair(target_live.select(*map(named, key)), source_keys, key, "left_anti")


def source_keys(work: Staging) -> DataFrame:
    """The keys of all rows that belong to the table, from the batch's own snapshot, by the same expressions."""
    made = [part for part in work.columns.projection if part.column.name in work.table.key]
    wanted = {part.source for part in made}
    columns = work.columns.source
    if None in wanted:  # a key of columns.add may use any column, also by its target name
        everything = batch.projected(work.snapshot.frame(request_all(work, columns)), work.columns.projection, columns)
        return everything.select(*[named(part.column.name) for part in made])
    needed = tuple(column for column in columns if column.name in wanted)
    return batch.projected(work.snapshot.frame(request_all(work, needed)), made, needed)


def request_all(work: Staging, columns: tuple[Column, ...]) -> ReadRequest:
    """A request for all rows that belong to the table."""
    return ReadRequest(
        columns, _eligible(work), masked=masking.maskable(work.table, work.columns.source, work.intent.interval)
    )


def _eligible(work: Staging) -> Interval | None:
    """The interval of a full refresh, whose rows the target should contain: without those that `cursor.start` and
    `nulls: skip` exclude. None: all rows."""
    cursor, interval = work.table.cursor, work.intent.interval
    if cursor is None:
        return None
    kind = next(column.type for column in work.columns.source if column.name == cursor.column)
    return Interval(
        lower=None,
        upper=interval.upper,
        cursor_column=cursor.column,
        read_from=read_from(cursor, kind, None),
        include_null=cursor.nulls != "skip",  # with `fail`, the plan found none; later ones must not count as deleted
    )


def missed(source_keys: DataFrame, target_live: DataFrame, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Keys that the source has, but neither the target's live rows nor the ``rows`` of the batch. Their rows appeared
    below the position, were deleted and inserted again, or went to quarantine, and may be good without a new cursor;
    they are read again."""
    unknown = _pair(source_keys, target_live, key, "left_anti").select(*map(named, key))
    return _pair(unknown, rows, key, "left_anti")


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
