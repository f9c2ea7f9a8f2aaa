"""Conversion between Spark's types and flowctl's, and comparison of a frame's actual types with the planned ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.sql import dialects

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType as SparkType
    from pyspark.sql.types import StructType


def from_spark(kind: SparkType) -> DataType:
    """flowctl's type for a Spark type; ``ValueError`` for unsupported ones (maps, intervals, variants)."""
    from pyspark.sql import types as spark

    match kind:
        case spark.ArrayType():
            return types.Array(from_spark(kind.elementType))
        case spark.StructType():
            return types.Struct(tuple((part.name, from_spark(part.dataType)) for part in kind.fields))
        case _:
            return types.parse(kind.simpleString())


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """The frame's columns; :class:`TableError` names the first whose type flowctl does not support."""
    columns = []
    for part in schema.fields:
        try:
            columns.append(Column(part.name, from_spark(part.dataType), nullable=True))
        except ValueError as error:
            raise TableError(
                f'column "{part.name}" has Spark type {part.dataType.simpleString()}, which no target can hold',
                hint="Cast it in the SQL or with columns.types",
            ) from error
    return tuple(columns)


def require_types(found: Sequence[Column], planned: Sequence[Column]) -> None:
    """Raises :class:`TableError` naming every column whose type differs from the plan."""
    have = {column.name: column.type for column in found}
    wrong = [
        f'"{column.name}" is {types.short(have[column.name]) if column.name in have else "missing"}, '
        f"planned {types.short(column.type)}"
        for column in planned
        if have.get(column.name) != column.type
    ]
    if wrong:
        raise TableError(
            "Spark finds other columns than planned: " + "; ".join(wrong),
            hint="Declare them with columns.types, then plan again",
        )


def named(name: str, of: str = "") -> SparkColumn:
    """The column called exactly ``name`` (dots and backticks in it are part of it), of the frame aliased ``of``."""
    from pyspark.sql import functions as f

    quoted = dialects.quoted(name, "spark")
    return f.col(f"{of}.{quoted}" if of else quoted)


def frame_in_order(
    frame: DataFrame, columns: Sequence[Column], present: Collection[str] | None = None, also: Sequence[str] = ()
) -> DataFrame:
    """Exactly ``columns``, with their types; those that ``frame`` lacks are null. ``also`` are further columns to
    append; ``present`` are the names that ``frame`` has, if already known."""
    from pyspark.sql import functions as f

    have = set(frame.columns if present is None else present)
    return frame.select(
        *(
            (named(column.name) if column.name in have else f.lit(None))
            .cast(types.spark_ddl(column.type))
            .alias(column.name)
            for column in columns
        ),
        *also,
    )
