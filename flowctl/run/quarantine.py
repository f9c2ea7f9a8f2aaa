"""Rejected rows as they are kept beside the table: every column as text, with number, run and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.connectors.base import DETECTED_COLUMN, OP_COLUMN
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from flowctl.run.checks import REASON_COLUMN
from flowctl.run.spark_types import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUFFIX = "__quarantine"
_INTERNAL = (OP_COLUMN, DETECTED_COLUMN, REASON_COLUMN, "row_hash")


def quarantine_object(object: ObjectName) -> ObjectName:
    *folders, name = object.parts
    return ObjectName((*folders, name + SUFFIX))


def quarantine_frame(aside: DataFrame, seq: int, run_id: str) -> tuple[DataFrame, tuple[Column, ...]]:
    """The frame and its columns, in order."""
    from pyspark.sql import functions as f

    kept = [name for name in aside.columns if name not in _INTERNAL]
    text = [_as_text(aside, name) for name in kept]
    frame = aside.select(
        *text,
        f.lit(seq).cast("bigint").alias("_seq"),
        f.lit(run_id).alias("_run_id"),
        named(REASON_COLUMN).alias("_reason"),
    )
    columns = [Column(name, types.STRING) for name in kept]
    own = (Column("_seq", types.INT64), Column("_run_id", types.STRING), Column("_reason", types.STRING))
    return frame, (*columns, *own)


def _as_text(frame: DataFrame, name: str) -> object:
    from pyspark.sql import functions as f

    kind = frame.schema[name].dataType.typeName()
    if kind in ("array", "struct"):
        return f.to_json(named(name)).alias(name)
    if kind == "binary":
        return f.hex(named(name)).alias(name)
    return named(name).cast("string").alias(name)
