"""Maps Iceberg's types to flowctl's. Source: Iceberg table spec, *Schemas and Data Types*."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, assert_never

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField

_SHOWN = {
    types.BOOL: "boolean",
    types.INT8: "int",
    types.INT16: "int",
    types.INT32: "int",
    types.INT64: "long",
    types.FLOAT: "float",
    types.DOUBLE: "double",
    types.STRING: "string",
    types.BINARY: "binary",
    types.DATE: "date",
    types.TIMESTAMP: "timestamptz",
    types.TIMESTAMP_NTZ: "timestamp",
}
_SIMPLE = {
    **{name: kind for kind, name in _SHOWN.items() if kind not in (types.INT8, types.INT16)},
    "int": types.INT32,
}


def stored(kind: DataType) -> DataType:
    """The type that a column created with ``kind`` has: Iceberg has no integers below 32 bits."""
    match kind:
        case types.INT8 | types.INT16:
            return types.INT32
        case Array(item):
            return Array(stored(item))
        case Struct(fields):
            return Struct(tuple((name, stored(of)) for name, of in fields))
        case _:
            return kind


def widens(old: DataType, new: DataType) -> bool:
    """Whether Iceberg can promote a column in place (table spec, *Schema Evolution*)."""
    match stored(old), stored(new):
        case (types.INT32, types.INT64) | (types.FLOAT, types.DOUBLE):
            return True
        case Decimal(digits, scale), Decimal(more, same):
            return same == scale and more > digits
        case _:
            return False


def refused_name(name: str) -> str | None:
    """Why a column cannot have this name."""
    if not name:
        return "Iceberg has no empty column names"
    if "." in name:
        return "Iceberg readers take a dot in a column's name for a part of a column; rename it with columns.rename"
    return None


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """The columns of a table. A type that flowctl does not carry (map, time, uuid, fixed, nanoseconds) is shown as
    text."""
    return tuple(_column(field) for field in schema.fields)


def _column(field: NestedField) -> Column:
    native = str(field.field_type)
    try:
        return Column(field.name, data_type(field.field_type), not field.required, native=native)
    except ValueError as error:
        return Column(field.name, types.STRING, not field.required, native, as_text=True, note=str(error))


def data_type(kind: IcebergType) -> DataType:
    """Raises ``ValueError`` for a type that flowctl does not carry."""
    from pyiceberg.types import DecimalType, ListType, StructType

    match kind:
        case DecimalType():
            return Decimal(kind.precision, kind.scale)
        case ListType():
            return Array(data_type(kind.element_type))
        case StructType():
            return Struct(tuple((field.name, data_type(field.field_type)) for field in kind.fields))
        case _ if (simple := _SIMPLE.get(str(kind))) is not None:
            return simple
        case _:
            raise ValueError(f"flowctl does not carry Iceberg's type {str(kind).partition('<')[0].partition('[')[0]}")


def shown(kind: DataType) -> str:
    """In Spark's SQL for Iceberg tables, for statements that a plan shows."""
    return types.spark_ddl(stored(kind))


def schema_of(columns: Sequence[Column]) -> Schema:
    """The schema of a new table: every column is optional, as flowctl creates them."""
    from pyiceberg.schema import Schema

    return Schema(*fields_of(columns, count(1)))


def fields_of(columns: Iterable[Column], ids: Iterator[int]) -> list[NestedField]:
    """A table assigns ids of its own."""
    from pyiceberg.types import NestedField

    return [
        NestedField(field_id=next(ids), name=column.name, field_type=iceberg_type(column.type, ids), required=False)
        for column in columns
    ]


def iceberg_type(kind: DataType, ids: Iterator[int]) -> IcebergType:
    from pyiceberg import types as iceberg

    match kind:
        case Decimal(precision, scale):
            return iceberg.DecimalType(precision, scale)
        case Array(item):
            return iceberg.ListType(next(ids), iceberg_type(item, ids), element_required=False)
        case Struct(fields):
            return iceberg.StructType(*fields_of([Column(name, of) for name, of in fields], ids))
        case Scalar():
            named: dict[str, Callable[[], IcebergType]] = {
                "boolean": iceberg.BooleanType,
                "int": iceberg.IntegerType,
                "long": iceberg.LongType,
                "float": iceberg.FloatType,
                "double": iceberg.DoubleType,
                "string": iceberg.StringType,
                "binary": iceberg.BinaryType,
                "date": iceberg.DateType,
                "timestamptz": iceberg.TimestamptzType,
                "timestamp": iceberg.TimestampType,
            }
            return named[_SHOWN[kind]]()
        case _:
            assert_never(kind)
