"""Converts Spark's values on executors to the form in which a database stores them, or reads them as text.

The forms are those that ``values.to_arrow`` reads back exactly: decimals as text, dates ``YYYY-MM-DD``, timestamps
ISO 8601 with six digits (``Z`` if zoned), arrays as JSON text of the same forms. Values that would be changed
silently are refused with the column's name: no database has text for years outside 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.connectors.refusal import LEAVE_OUT, PREFIX
from flowctl.engine.spark_types import named
from flowctl.errors import StoppedByPolicy
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Form:
    """``system`` is the database's name, ``nan`` why it refuses NaN. ``zone`` ends a timestamp with a zone.
    ``has_infinity``: floating-point numbers may be infinite."""

    system: str
    nan: str
    zone: str = "'Z'"
    has_infinity: bool = True


def require_storable(columns: Sequence[Column], form: Form) -> None:
    """Raises :class:`StoppedByPolicy` for the first column whose values have no form in the database: structs, and
    arrays with structs or bytes."""
    for column in columns:
        if not _has_form(column.type):
            raise StoppedByPolicy(
                f"column {column.name} is {types.short(column.type)}, for which {form.system} has no form",
                hint=f"Leave it out with `columns: {{exclude: [{column.name}]}}`, or, with Apache Spark, make text of"
                " it with columns.add and to_json",
            )


def _has_form(kind: DataType) -> bool:
    match kind:
        case Array(item):
            return item != types.BINARY and _has_form(item)
        case _:
            return not isinstance(kind, Struct)


def storable(frame: DataFrame, columns: Sequence[Column], form: Form) -> DataFrame:
    """``frame`` with exactly ``columns``, each as text, integer, float, boolean or bytes. Raises as
    :func:`require_storable`."""
    require_storable(columns, form)
    return frame.select(
        *[
            _stored(named(column.name).cast(types.spark_ddl(column.type)), column, column.type, form).alias(column.name)
            for column in columns
        ]
    )


def _stored(value: SparkColumn, column: Column, kind: DataType, form: Form) -> SparkColumn:
    from pyspark.sql import functions as f

    match kind:
        case Decimal():
            return value.cast("string")
        case types.FLOAT | types.DOUBLE:
            finite = value if form.has_infinity else _unless(_is_infinite(value), column, _no_infinity(form), value)
            return _unless(f.isnan(value), column, form.nan, finite)
        case types.DATE:
            return _in_calendar(value, column, value.cast("string"), form)
        case types.TIMESTAMP_NTZ | types.TIMESTAMP:
            pattern = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS" + (form.zone if kind == types.TIMESTAMP else "")
            return _in_calendar(value, column, f.date_format(value, pattern), form)
        case Array(item):
            return f.to_json(f.transform(value, lambda each: _element(each, column, item, form)))
        case _:
            return value


def _element(value: SparkColumn, column: Column, kind: DataType, form: Form) -> SparkColumn:
    """One element of an array: JSON has no infinite numbers."""
    from pyspark.sql import functions as f

    match kind:
        case Array(inner):
            return f.transform(value, lambda each: _element(each, column, inner, form))
        case types.FLOAT | types.DOUBLE:
            return _unless(f.isnan(value) | _is_infinite(value), column, "JSON has no NaN and no infinity", value)
        case _:
            return _stored(value, column, kind, form)


def _is_infinite(value: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as f

    return f.abs(value) == f.lit(float("inf"))


def _no_infinity(form: Form) -> str:
    return f"{form.system} has no infinity"


def _in_calendar(value: SparkColumn, column: Column, text: SparkColumn, form: Form) -> SparkColumn:
    from pyspark.sql import functions as f

    return _unless(
        ~f.year(value).between(1, 9999), column, f"{form.system} has no dates outside the years 1 to 9999", text
    )


def _unless(refused: SparkColumn, column: Column, why: str, value: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as f

    message = f'{PREFIX}column "{column.name}" ({types.short(column.type)}): {why} | {LEAVE_OUT}'
    return f.when(refused, f.raise_error(f.lit(message))).otherwise(value)
