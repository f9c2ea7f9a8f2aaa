"""From folded changes to the batch that a target takes: projection, and the values that only the target still has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl import text
from flowctl.connectors.source import ReadRequest
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, Target
from flowctl.engine.spark_types import named
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition
from flowctl.model.projection import Columns
from flowctl.model.table_info import Column
from flowctl.plan.stream_keys import source_key
from flowctl.run import batch, checks, deletes
from flowctl.run.streaming.snapshots import EVENT_AT, KEPT, ORIGIN, ChangesSnapshot
from flowctl.spec.spec import TableSpec
from flowctl.sql.row_hash import row_hash_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flowctl.run.stage import Staging

#: Prefix of a target's own values while they are joined.
_THERE = "_flowctl_there_"


def is_changes(interval: Interval) -> bool:
    """Whether the interval is one of captured batches, and not a snapshot."""
    return isinstance(interval.lower, LandedPosition)


def shaped_changes(rows: DataFrame, work: Staging) -> DataFrame:
    """The staged batch of merge and scd2, with ``REASON_COLUMN``. ``rows`` are folded changes. If the commit
    replaces the target's content, none of its values can be kept."""
    from pyspark.sql import functions as f

    columns, table, target, emptied = work.columns, work.table, work.target, work.intent.replaces
    helpers = [KEPT, *(ORIGIN + name for name in source_key(table)), *([EVENT_AT] if table.mode == "scd2" else [])]
    extra = [named(name).alias(name) for name in (OP_COLUMN, *helpers)]
    frame = batch.projected(rows, columns.projection, columns.source, extra)
    if not rows.where(f.col(KEPT).isNotNull()).isEmpty():
        _require_all_rows(table)
        frame = _completed(frame, columns, table, target, emptied)
    if table.mode == "scd2":
        compared = [part.column for part in columns.projection if part.compared]
        frame = (
            frame.withColumn("valid_from", f.col(EVENT_AT))
            .withColumn("row_hash", f.expr(row_hash_sql(compared)))
            .withColumn(DETECTED_COLUMN, f.lit(False))
        )
    frame = _with_truncated(frame.drop(*helpers), work)
    return checks.with_reason(frame, table.expect, deletions_by=table.key)


def _require_all_rows(table: TableSpec) -> None:
    """Raises :class:`StoppedByPolicy` if the target may lack rows that earlier batches had: it then has an older value
    than the one that an update did not send."""
    if any(check.on_fail == "quarantine" for check in table.expect):
        raise StoppedByPolicy(
            f"updates of {table.source} did not send long values that are unchanged, and those of rows in quarantine "
            f"are not in {table.target} (on_fail: quarantine)",
            hint="Let the source send all values (ALTER TABLE … REPLICA IDENTITY FULL), or use on_fail: fail or warn; "
            f"then read the table again: `flowctl state resnapshot … {table.id}`",
            mark=table.mark,
        )


def truncated_at(work: Staging) -> int | None:
    """When a TRUNCATE in the source has removed rows that the commit has to delete, in microseconds since 1970: as
    many as the target has. None if there are none: nothing was truncated, or the commit replaces all content."""
    if not isinstance(work.snapshot, ChangesSnapshot) or work.table.mode == "append" or work.intent.replaces:
        return None
    return work.snapshot.truncated_at(ReadRequest(work.columns.source))


def _with_truncated(frame: DataFrame, work: Staging) -> DataFrame:
    """Adds a deletion for every row of the target that a TRUNCATE has removed in the source: soft deletes mark it, a
    history closes it. A key that has a row of its own in the batch (in a history: of the same time) needs none."""
    from pyspark.sql import functions as f

    table, at = work.table, truncated_at(work)
    live = deletes.live_rows(work) if at is not None else None
    if at is None or live is None:
        return frame
    same = frame
    moment = (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=at)).isoformat(timespec="microseconds") + "Z"
    if table.mode == "scd2":
        same = frame.where(f.col("valid_from") == f.to_timestamp(f.lit(moment)))
    gone = deletes.gone(same, live, table.key)
    removed = deletes.as_batch(gone, frame, moment if table.mode == "scd2" else None)
    if table.mode == "scd2":  # the source reports it, with its time
        removed = removed.withColumn(DETECTED_COLUMN, f.lit(False))
    return frame.unionByName(removed)


def _completed(frame: DataFrame, columns: Columns, table: TableSpec, target: Target, emptied: bool) -> DataFrame:
    """With the target's value for each column that an update did not send, from the row that it was before the batch.
    Raises :class:`TableError` if the target does not have that row: a null would replace a value."""
    from pyspark.sql import functions as f

    origins = [ORIGIN + name for name in source_key(table)]
    is_open = f.col(KEPT).isNotNull()
    keys = [named(one).alias(name) for one, name in zip(origins, table.key, strict=True)]
    wanted = frame.where(is_open).select(*keys)
    own = [part.column for part in columns.projection]
    there = _there(frame, wanted, own, table, target, emptied)
    condition = f.lit(True)
    for origin, name in zip(origins, table.key, strict=True):
        condition = condition & named(origin).eqNullSafe(named(_THERE + name))
    joined = frame.join(there, on=condition & is_open, how="left")
    missing = joined.where(is_open & named(_THERE + table.key[0]).isNull()).count()
    if missing:
        raise TableError(
            f"{text.counted(missing, 'update')} did not send long values that are unchanged, and {table.target} does "
            "not have the rows that had them",
            hint=f"Read the table again: `flowctl state resnapshot … {table.id}`",
        )
    places = {column.name: at for at, column in enumerate(columns.source)}
    made = []
    for part in columns.projection:
        name, place = part.column.name, places.get(part.source or "")
        value = named(name)
        if place is not None and name not in table.key:
            is_kept = f.substring(f.col(KEPT), place + 1, 1) == "1"
            value = f.when(is_kept, named(_THERE + name)).otherwise(value)
        made.append(value.alias(name))
    rest = [named(name) for name in frame.columns if name not in {column.name for column in own}]
    return joined.select(*made, *rest)


def _there(
    frame: DataFrame, wanted: DataFrame, own: Sequence[Column], table: TableSpec, target: Target, emptied: bool
) -> DataFrame:
    """The target's live rows with these keys, their columns prefixed."""
    spark = frame.sparkSession
    known = target.describe([table.target.object])[table.target.object]
    there = {column.name for column in known.columns} if known and not emptied else set()
    listed = [column for column in own if column.name in there]
    if not listed:
        return spark.createDataFrame([], _prefixed_schema(own))
    marks = [column for column in known.columns if column.name in (deletes.SOFT_DELETED, "is_current")] if known else []
    scanned = target.scan(spark, table.target.object, [*listed, *marks])
    found = deletes.only_keys(deletes.live(scanned, table.mode), wanted, table.key)
    from pyspark.sql import functions as f

    from flowctl.model import types

    values = [
        (named(column.name) if column.name in there else f.lit(None).cast(types.spark_ddl(column.type))).alias(
            _THERE + column.name
        )
        for column in own
    ]
    return found.select(*values)


def _prefixed_schema(own: Sequence[Column]) -> str:
    from dataclasses import replace

    from flowctl.sql.dialects import schema_ddl

    return schema_ddl([replace(column, name=_THERE + column.name) for column in own])
