"""A batch is copied into a staging table: Arrow batches as CSV through COPY, exact or refused by name.

Texts are always quoted, so no row can be the two characters that end a COPY. A task that is tried again copies its rows
a second time, and only the attempt that Spark counts is accepted, by its transaction. Spark's result is one report row
for each part, nothing else reaches the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.sql import timeouts
from flowctl.engine.spark_types import named
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_REPORT = "transaction BIGINT, rows BIGINT"


@dataclass(frozen=True)
class Accepted:
    """One part of the frame: the transaction (32 bits, as in ``xmin``) of the attempt that counts, and how many rows it
    has copied and committed."""

    transaction: int
    rows: int


def copy_frame(
    frame: DataFrame, columns: Sequence[Column], conninfo: str, stage: str, natives: Mapping[str, str]
) -> list[Accepted]:
    """Copies ``frame`` into the table ``stage`` (SQL name); ``natives`` are types that the target has already, for
    errors."""
    from pyspark import cloudpickle

    from flowctl.connectors.postgres import executors

    cloudpickle.register_pickle_by_value(executors)
    writer = executors.PartWriter(conninfo, stage, _typed(columns, natives), timeouts.EXECUTOR_SILENCE)
    return _accepted(row.asDict() for row in copyable(frame, columns).mapInArrow(writer.copy, _REPORT).collect())


def copy_rows(
    rows: pa.Table,
    columns: Sequence[Column],
    connection: psycopg.Connection[Any],
    stage: str,
    natives: Mapping[str, str],
) -> list[Accepted]:
    """The same for rows of this process, as :func:`copyable` makes them, over ``connection`` (in autocommit mode):
    executors would first start Python."""
    from flowctl.connectors.postgres.executors import PartWriter

    writer = PartWriter("", stage, _typed(columns, natives), timeouts.EXECUTOR_SILENCE, opened=connection)
    return _accepted(row for batch in writer.copy(iter(rows.to_batches())) for row in batch.to_pylist())


def _typed(columns: Sequence[Column], natives: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(column.name, natives.get(column.name, "its type")) for column in columns]


def _accepted(reports: Iterable[Mapping[str, Any]]) -> list[Accepted]:
    return [Accepted(report["transaction"], report["rows"]) for report in reports if report["rows"]]


def is_copied_as_it_is(column: Column) -> bool:
    """Whether Arrow writes its values into CSV as PostgreSQL reads them."""
    return column.type != types.BINARY and not isinstance(column.type, Array | Struct)


def copyable(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Types that Arrow writes into CSV as PostgreSQL reads them; the others as the text of a literal. Columns are known
    by their place: mapInArrow takes a dot in a name for a field of a struct."""

    def numbered(at: int, column: Column) -> SparkColumn:
        value = named(column.name).cast(types.spark_ddl(column.type))
        return _text(value, column.type).alias(f"c{at}")

    return frame.select(*[numbered(at, column) for at, column in enumerate(columns)])


def _text(value: SparkColumn, kind: DataType) -> SparkColumn:
    from pyspark.sql import functions as f

    match kind:
        case types.BINARY:
            return f.concat(f.lit("\\x"), f.hex(value))
        case Array(Array() | Struct()) | Struct():
            return f.to_json(value)
        case Array(item):
            elements = f.transform(value, lambda each: f.coalesce(_element(each, item), f.lit("NULL")))
            return f.concat(f.lit("{"), f.array_join(elements, ","), f.lit("}"))
        case _:
            return value


def _element(value: SparkColumn, kind: DataType) -> SparkColumn:
    """One element of an array literal, quoted; sessions run in UTC, so that is what a zoned timestamp's text is in."""
    from pyspark.sql import functions as f

    text = _text(value, kind).cast("string")
    if kind == types.TIMESTAMP:
        text = f.concat(text, f.lit("Z"))
    escaped = f.replace(f.replace(text, f.lit("\\"), f.lit("\\\\")), f.lit('"'), f.lit('\\"'))
    return f.concat(f.lit('"'), escaped, f.lit('"'))
