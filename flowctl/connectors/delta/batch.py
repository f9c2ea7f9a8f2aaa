"""The frame to write, as SQL sees it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flowctl.connectors.delta import statements
from flowctl.connectors.target import OP_COLUMN, WriteJob
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Decimal
from flowctl.sql import dialects
from flowctl.sql.difference import KeyBounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Key types whose literals Delta compares with file statistics; text only up to what its statistics keep whole.
_BOUNDED = (types.INT8, types.INT16, types.INT32, types.INT64, types.DATE, types.STRING)
_LONGEST_TEXT = 200


@contextmanager
def view_of(frame: DataFrame) -> Iterator[str]:
    """A temporary view of ``frame``, under a name of its own: classic and Connect both know it in SQL."""
    name = f"flowctl_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def with_operations(frame: DataFrame) -> DataFrame:
    """A batch that names no operations has rows only."""
    from pyspark.sql import functions as f

    return frame if OP_COLUMN in frame.columns else frame.withColumn(OP_COLUMN, f.lit("U"))


def alive(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The batch's rows, without deletions, as exactly ``columns``; those the batch does not have are null."""
    from pyspark.sql import functions as f

    return (
        with_operations(frame)
        .where(statements.ALIVE)
        .select(
            *(
                f.col(statements.quoted(column.name))
                if column.name in frame.columns
                else f.lit(None).cast(types.spark_ddl(column.type)).alias(column.name)
                for column in columns
            )
        )
    )


def key_bounds(frame: DataFrame, job: WriteJob) -> KeyBounds:
    """Literal bounds of the batch's keys: those that staging has counted, otherwise from one aggregate over ``frame``.
    None for an empty batch."""
    keys = [column for column in job.columns if column.name in job.key and _is_bounded(column)]
    found = job.key_bounds if job.key_bounds is not None else _counted(frame, keys)
    return KeyBounds(
        {
            column.name: (_literal(found[column.name][0], column), _literal(found[column.name][1], column))
            for column in keys
            if column.name in found and max(map(len, found[column.name])) <= _LONGEST_TEXT
        }
    )


def _counted(frame: DataFrame, keys: Sequence[Column]) -> dict[str, tuple[str, str]]:
    from pyspark.sql import functions as f

    if not keys:
        return {}
    ends = [end(statements.quoted(column.name)).cast("string") for column in keys for end in (f.min, f.max)]
    row = frame.agg(*ends).collect()[0]
    found = {column.name: (row[2 * at], row[2 * at + 1]) for at, column in enumerate(keys)}
    return {name: ends for name, ends in found.items() if ends[0] is not None}


def _literal(text: str, column: Column) -> str:
    plain = dialects.text(text, "spark")
    return plain if column.type == types.STRING else f"CAST({plain} AS {types.spark_ddl(column.type)})"


def _is_bounded(column: Column) -> bool:
    return column.type in _BOUNDED or isinstance(column.type, Decimal)
