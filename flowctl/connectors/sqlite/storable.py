"""Converts Spark's values on executors to the form that SQLite stores, so that the driver can bind them as they are.

The forms are those that ``values.to_arrow`` reads back exactly: decimals as text, dates ``YYYY-MM-DD``, timestamps
ISO 8601 with six digits (``Z`` if zoned), arrays as JSON text of the same forms. Values that SQLite would change
silently are refused with the column's name: it stores NaN as null, and has no text for years outside 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.refusal import PREFIX
from flowctl.engine.spark_types import named
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


def storable(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """``frame`` with exactly ``columns``, each as text, integer, float, boolean or bytes."""

    return frame.select(
        *[
            _stored(named(column.name).cast(types.spark_ddl(column.type)), column, column.type).alias(column.name)
            for column in columns
        ]
    )


def _stored(value: SparkColumn, column: Column, kind: DataType) -> SparkColumn:
    from pyspark.sql import functions as f

    match kind:
        case Decimal():
            return value.cast("string")
        case types.FLOAT | types.DOUBLE:
            return _unless(f.isnan(value), column, "SQLite stores NaN as null", value)
        case types.DATE:
            return _in_calendar(value, column, value.cast("string"))
        case types.TIMESTAMP_NTZ | types.TIMESTAMP:
            pattern = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS" + ("'Z'" if kind == types.TIMESTAMP else "")
            return _in_calendar(value, column, f.date_format(value, pattern))
        case Array(item):
            return f.to_json(f.transform(value, lambda each: _element(each, column, item)))
        case Struct():
            raise TableError(
                f'column "{column.name}": SQLite has no place for {types.short(kind)}',
                hint="Leave it out with columns.exclude, or make text of it with columns.add and to_json",
            )
        case _:
            return value


def _element(value: SparkColumn, column: Column, kind: DataType) -> SparkColumn:
    """One element of an array: JSON has neither bytes nor infinite numbers."""
    from pyspark.sql import functions as f

    match kind:
        case Array(inner):
            return f.transform(value, lambda each: _element(each, column, inner))
        case types.BINARY | Struct():
            raise TableError(
                f'column "{column.name}": an array of {types.short(kind)} cannot be stored in SQLite',
                hint="Leave it out with columns.exclude, or make text of it with columns.add",
            )
        case types.FLOAT | types.DOUBLE:
            infinite = f.isnan(value) | (f.abs(value) == f.lit(float("inf")))
            return _unless(infinite, column, "JSON has no NaN and no infinity", value)
        case _:
            return _stored(value, column, kind)


def _in_calendar(value: SparkColumn, column: Column, text: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as f

    return _unless(~f.year(value).between(1, 9999), column, "SQLite has no dates outside the years 1 to 9999", text)


def _unless(refused: SparkColumn, column: Column, why: str, value: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as f

    message = f'{PREFIX}column "{column.name}" ({types.short(column.type)}): {why} | leave such rows out with `where`'
    return f.when(refused, f.raise_error(f.lit(message))).otherwise(value)
