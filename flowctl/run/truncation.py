"""What truncates do that are among the messages of a topic: the rows that come before one are deleted.

Before and after are decided by the changes' order in the source if they have one, and otherwise by the offsets of the
topic's only partition. With an order, changes older than a truncate may arrive after it: the position keeps the
newest one's place (:attr:`flowctl.model.position.OffsetsPosition.truncated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.buffered import read_columns, where_equal
from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.source import PLACE_COLUMN, SOURCE_ORDER_COLUMN, TIME_COLUMN, TRUNCATED_COLUMN
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.engine.batch import Batch
from flowctl.engine.spark_types import named
from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition, Position
from flowctl.run import deletes
from flowctl.spec.spec import TableSpec
from flowctl.sql.difference import SOURCE_ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flowctl.run.stage import Staging

#: Ordering column of a batch: the offset of a message (:func:`flowctl.run.batch.keyed`).
_PLACE = "_flowctl_order"
#: Columns of the events of keys, and of truncates.
_BY, _AT, _NEXT_BY, _NEXT_AT = "_flowctl_by", "_flowctl_at", "_flowctl_next_by", "_flowctl_next_at"
_AFTER, _TRUNCATE, _TRUNCATE_AT = "_flowctl_after", "_flowctl_truncate", "_flowctl_truncate_at"
_TRUNCATE_PLACE = "_flowctl_truncate_place"


@dataclass(frozen=True)
class Truncate:
    """``order`` is that in the source, or the message's offset; ``place`` its offset, ``at`` its time."""

    order: Any
    place: int
    at: Any


@dataclass(frozen=True)
class Truncates:
    """Those of a batch that were not applied before, in their order; of one that was sent more than once, the first.
    ``before`` is the order of the newest one that was applied before, and ``by`` the batch's column that compares with
    these orders."""

    of_batch: tuple[Truncate, ...]
    by: str
    before: Any = None

    @property
    def newest(self) -> Any:
        return self.of_batch[-1].order if self.of_batch else self.before


def find_truncates(rows: Batch, table: TableSpec, interval: Interval) -> Truncates | None:
    """None: neither the batch has one, nor can one be newer than a row of it. ``rows`` are as they were read."""
    lower, orders = interval.lower, table.has_source_order
    before = lower.truncated or None if isinstance(lower, OffsetsPosition) and orders else None
    found: dict[Any, Truncate] = {}
    if TRUNCATED_COLUMN in rows.names:
        names = [SOURCE_ORDER_COLUMN if orders else PLACE_COLUMN, PLACE_COLUMN, TIME_COLUMN]
        truncates = read_columns(where_equal(rows, TRUNCATED_COLUMN, value=True), list(dict.fromkeys(names)))
        sent = zip(*(truncates[name].to_pylist() for name in names), strict=True)
        for order, place, at in sorted(sent, key=lambda one: one[1]):
            if before is None or order > before:
                found.setdefault(order, Truncate(order, place, at))
    if not found and before is None:
        return None
    return Truncates(tuple(found[order] for order in sorted(found)), SOURCE_ORDER if orders else _PLACE, before)


def with_truncate(position: Position | None, truncates: Truncates | None, table: TableSpec) -> Position | None:
    """The position to record after a batch with ``truncates``."""
    if not isinstance(position, OffsetsPosition) or truncates is None or not table.has_source_order:
        return position
    return replace(position, truncated=truncates.newest)


def without_truncates(rows: DataFrame, truncates: Truncates | None) -> DataFrame:
    return rows if truncates is None or TRUNCATED_COLUMN not in rows.columns else rows.where(~named(TRUNCATED_COLUMN))


def apply_to_rows(frame: DataFrame, truncates: Truncates, work: Staging) -> DataFrame:
    """For merge: ``frame`` has one row per key. What is older than the newest truncate is left out, or, if changes have
    an order, deleted with the truncate's place: later, an even older change may come. All older rows of the target are
    deleted. Quarantined rows stay as they are."""
    from pyspark.sql import functions as f

    newest, is_rejected = f.lit(truncates.newest), named(REASON_COLUMN).isNotNull()
    is_older = ~is_rejected & (named(truncates.by) <= newest)
    if work.table.has_source_order:
        frame = frame.withColumns(
            {
                OP_COLUMN: f.when(is_older, "D").otherwise(named(OP_COLUMN)),
                SOURCE_ORDER: f.when(is_older, newest).otherwise(named(SOURCE_ORDER)),
            }
        )
    else:
        frame = frame.where(~is_older)
    stored = _stored(truncates, work)
    if stored is None:
        return frame
    if work.table.has_source_order and SOURCE_ORDER in stored.columns:
        stored = stored.where(named(SOURCE_ORDER).isNull() | (named(SOURCE_ORDER) <= newest))
    good = frame.where(named(REASON_COLUMN).isNull())
    removed = deletes.as_batch(deletes.gone(good, stored, work.table.key), frame, None)
    if work.table.has_source_order:
        removed = removed.withColumn(SOURCE_ORDER, newest)
    return frame.unionByName(removed)


def apply_to_versions(frame: DataFrame, truncates: Truncates, work: Staging) -> DataFrame:
    """For scd2, before one row per key and time is chosen: a deletion at the first truncate after each change that left
    its row in the source, and of each current version of the target that no change precedes. Changes that are older
    than a truncate that was applied before are left out.

    Times of partitions are not those of the source's log: a deletion is not before the change that it follows, nor
    after the next one; and one that has arrived too early (``_flowctl_detected``) gives way to a newer change of an
    earlier time."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key, is_rejected = work.table.key, named(REASON_COLUMN).isNotNull()
    if truncates.before is not None:
        frame = frame.where(is_rejected | (named(truncates.by) > f.lit(truncates.before)))
    if not truncates.of_batch:
        return frame
    keys = [named(name) for name in key]
    changes = frame.where(named(REASON_COLUMN).isNull()).select(
        *keys, named(truncates.by).alias(_BY), named("valid_from").alias(_AT), named(_PLACE), named(OP_COLUMN)
    )
    stored = _stored(truncates, work)
    if stored is not None:
        kinds = {one.name: one.dataType for one in changes.schema.fields}
        lowest = f.lit("" if work.table.has_source_order else -1)
        is_ordered = work.table.has_source_order and SOURCE_ORDER in stored.columns
        order = f.coalesce(named(SOURCE_ORDER), lowest) if is_ordered else lowest
        values = {_BY: order, _AT: f.lit(None), _PLACE: f.lit(None), OP_COLUMN: f.lit("U")}
        first = [value.cast(kinds[name]).alias(name) for name, value in values.items()]
        changes = changes.unionByName(stored.select(*keys, *first))
    in_order = Window.partitionBy(*keys).orderBy(f.col(_BY), f.col(_PLACE).asc_nulls_first())
    events = changes.withColumns({_NEXT_BY: f.lead(_BY).over(in_order), _NEXT_AT: f.lead(_AT).over(in_order)})
    is_first = (f.col(_BY) <= f.col(_TRUNCATE)) & (f.col(_AFTER).isNull() | (f.col(_BY) > f.col(_AFTER)))
    is_last = f.col(_NEXT_BY).isNull() | (f.col(_NEXT_BY) > f.col(_TRUNCATE))
    alive = events.where(named(OP_COLUMN) == "U")
    ended = alive.join(f.broadcast(_frame(truncates, frame)), on=is_first & is_last)
    until = f.when(f.col(_NEXT_AT) < f.col(_TRUNCATE_AT), f.col(_NEXT_AT)).otherwise(f.col(_TRUNCATE_AT))
    at = f.when(f.col(_AT) > until, f.col(_AT)).otherwise(until)
    ended = ended.select(*keys, at.alias(_AT), named(_TRUNCATE), named(_TRUNCATE_PLACE))
    made = {
        **{name: named(name) for name in key},
        OP_COLUMN: f.lit("D"),
        DETECTED_COLUMN: f.lit(work.table.has_source_order),
        "valid_from": f.col(_AT),
        _PLACE: f.col(_TRUNCATE_PLACE),
        truncates.by: f.col(_TRUNCATE),
    }
    removed = [made.get(one.name, f.lit(None)).cast(one.dataType).alias(one.name) for one in frame.schema.fields]
    return frame.unionByName(ended.select(*removed))


def _frame(truncates: Truncates, like: DataFrame) -> DataFrame:
    """One row for each truncate, with the order of the one before it."""
    from pyspark.sql import functions as f

    before: Sequence[Any] = [None, *(one.order for one in truncates.of_batch)]
    rows = [
        (after, one.order, one.place, None if one.at is None else one.at.isoformat())
        for after, one in zip(before, truncates.of_batch, strict=False)
    ]
    kind = like.schema[truncates.by].dataType.simpleString()
    frame = like.sparkSession.createDataFrame(
        rows, f"{_AFTER} {kind}, {_TRUNCATE} {kind}, {_TRUNCATE_PLACE} bigint, {_TRUNCATE_AT} string"
    )
    return frame.withColumn(_TRUNCATE_AT, f.to_timestamp(f.col(_TRUNCATE_AT)))


def _stored(truncates: Truncates, work: Staging) -> DataFrame | None:
    """The live rows of the target. None if no truncate of the batch concerns them."""
    return deletes.live_rows(work) if truncates.of_batch and not work.intent.replaces else None
