"""Deletes by missing keys: source and target keys are compared both ways, from the batch's own snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.engine.spark_types import named
from flowctl.spec.spec import DetectFlag, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


def only_keys(frame: DataFrame, keys: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows of ``frame`` whose key is in ``keys``."""
    return _pair(frame, keys, key, "left_semi")


def as_batch(keys: DataFrame, like: DataFrame, valid_from: str | None) -> DataFrame:
    """Delete rows shaped like the staged batch ``like``: ``D``, key columns, everything else null.

    ``valid_from`` (RFC 3339, scd2 only) is the moment of detection, fixed in the intent.
    """
    from pyspark.sql import functions as f

    columns: list[Column] = []
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


def _pair(left: DataFrame, right: DataFrame, key: Sequence[str], how: str) -> DataFrame:
    """Joins on equal keys. Aliases are needed because both sides may come from one read."""
    condition = named(key[0], "l").eqNullSafe(named(key[0], "r"))
    for name in key[1:]:
        condition = condition & named(name, "l").eqNullSafe(named(name, "r"))
    return left.alias("l").join(right.alias("r"), on=condition, how=how)
