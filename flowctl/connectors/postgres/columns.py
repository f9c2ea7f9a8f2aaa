"""How each column leaves PostgreSQL and becomes exactly itself again in Spark.

JDBC's calendar shifts dates before 1582 and local times in daylight-saving gaps in silence, so dates travel as days and
timestamps as microseconds since 1970. Arrays travel as JSON arrays of their elements' texts. Everything without an
exact counterpart is read as its canonical text. What does not fit raises :func:`refusal`, never a changed value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.postgres.types import ddl
from flowctl.connectors.refusal import refusal
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression


@dataclass(frozen=True)
class Transfer:
    """``sql`` is the select expression in PostgreSQL, ``jdbc_type`` the Spark type in which it arrives; the value is
    then :func:`rebuilt`. ``column`` is as asked for, ``native`` the source's type as people know it."""

    column: Column
    native: str
    sql: str
    jdbc_type: str


def transfer(wanted: Column, found: Column) -> Transfer:
    """``found`` is the described column, ``wanted`` has the type to deliver; ``TableError`` when no way leads there."""
    value = quoted(found.name)
    if wanted.type == types.STRING:
        plain = found.type == types.STRING and not found.as_text
        return Transfer(wanted, found.native, value if plain else f"{value}::text", "STRING")
    if wanted.type != found.type:
        value = _converted(value, wanted, found)
    sql, jdbc_type = _outgoing(value, wanted.type)
    return Transfer(wanted, found.native, sql, jdbc_type)


def rebuilt(arriving: Transfer) -> Expression:
    """The Spark expression, over the column that arrived under its own name, that gives the value back."""
    from pyspark.sql import functions as f

    column = arriving.column
    value = f.col(f"`{column.name.replace('`', '``')}`")
    failed = f.raise_error(f.lit(refusal(column.name, arriving.native, column.type)))
    match column.type:
        case types.DATE:
            known = value.between(_FIRST_DAY, _LAST_DAY)
            exact = f.when(value.isNull() | known, f.date_from_unix_date(value)).otherwise(failed.cast("date"))
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            known = value.between(_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)
            moment = f.when(value.isNull() | known, f.timestamp_micros(value)).otherwise(failed.cast("timestamp"))
            exact = moment if column.type == types.TIMESTAMP else moment.cast("timestamp_ntz")  # the session is in UTC
        case Array(item):
            exact = _elements(value, item, failed)
        case types.INT8:
            exact = value.cast("tinyint")  # fails outside its range: ANSI
        case Scalar() | Decimal() | Struct():
            exact = value
        case _:
            assert_never(column.type)
    return exact.alias(column.name)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def micros(value: str) -> str:
    """A timestamp's microseconds since 1970 as bigint: whole seconds and the fraction apart, because `epoch` is a
    double before PostgreSQL 14. Infinity fails as ``bigint out of range``."""
    seconds = f"date_part('epoch', date_trunc('second', {value}))::bigint"
    return f"{seconds} * 1000000 + date_part('microseconds', {value})::bigint % 1000000"


def days(value: str) -> str:
    """A date's days since 1970 as integer. Infinity fails as ``cannot subtract infinite dates``."""
    return f"({value} - DATE '1970-01-01')"


_FIRST_DAY, _LAST_DAY, _DAY = -719_162, 2_932_896, 86_400_000_000  # 0001-01-01, 9999-12-31; microseconds


def _outgoing(value: str, kind: DataType) -> tuple[str, str]:
    match kind:
        case types.DATE:
            return days(value), "INT"
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return micros(value), "BIGINT"
        case types.INT8:
            return value, "SMALLINT"
        case types.INT64:
            return f"{value}::bigint", "BIGINT"  # oid is one too
        case Array():
            return f"array_to_json({value}::text[])::text", "STRING"
        case Struct():
            raise TableError("PostgreSQL has no structs to read", hint="Read the column as string")
        case Scalar() | Decimal():
            return value, types.spark_ddl(kind)
        case _:
            assert_never(kind)


def _converted(value: str, wanted: Column, found: Column) -> str:
    """The value in the type that the spec asks for: PostgreSQL converts, and it must convert back to the same."""
    if isinstance(wanted.type, Array | Struct) or isinstance(found.type, Array) or wanted.type == types.BINARY:
        raise TableError(
            f"column {found.name} ({found.native}) cannot be read as {types.short(wanted.type)}",
            hint="Read it as it is, or as string",
        )
    text = found.type == types.STRING
    cast = f"({value}::text)::{ddl(wanted.type)}" if text else f"{value}::{ddl(wanted.type)}"
    tests = []
    if text and isinstance(wanted.type, Decimal):
        tests.append(f"({value}::text)::numeric = {cast}")
    elif not text:
        tests.append(f"({cast})::{found.native} = {value}")
    if isinstance(wanted.type, Decimal):
        tests.append(f"{cast} <> 'NaN'")
    if not tests:
        return f"({cast})"
    return (
        f"(CASE WHEN {value} IS NULL OR {' AND '.join(tests)} THEN {cast} WHEN {_raised(wanted, found)} THEN NULL END)"
    )


def _raised(wanted: Column, found: Column) -> str:
    """A condition that fails with our text. It hangs on the row's value, or the planner would evaluate it at once."""
    told = text_literal(refusal(found.name, found.native, wanted.type))
    return f"({told} || left({quoted(found.name)}::text, 0))::integer IS NULL"


#: PostgreSQL's own text of what Spark's casts would read too kindly: ``0044-03-15 BC`` is the year 44 to them.
_DATE_TEXT = r"^\d{4}-\d{2}-\d{2}$"
_TIMESTAMP_TEXT = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?(\+00)?$"


def _elements(value: Expression, item: DataType, failed: Expression) -> Expression:
    """One-dimensional arrays only: a nested one is told by how its JSON begins."""
    from pyspark.sql import functions as f

    flat = f.when(value.startswith("[["), failed.cast("string")).otherwise(value)
    texts = f.from_json(flat, "array<string>", {"mode": "FAILFAST"})
    if item == types.STRING:
        return texts
    return f.transform(texts, lambda text: _element(text, item, failed))


def _element(text: Expression, item: DataType, failed: Expression) -> Expression:
    from pyspark.sql import functions as f

    kind = types.spark_ddl(item)
    match item:
        case types.BINARY:
            return f.unhex(f.substring(text, 3, _LONGEST))  # after \x
        case types.DATE | types.TIMESTAMP | types.TIMESTAMP_NTZ:
            shape = _DATE_TEXT if item == types.DATE else _TIMESTAMP_TEXT
            read = f.when(text.rlike(shape), text.try_cast(kind))
        case _:
            read = text.try_cast(kind)
    return f.when(text.isNull(), f.lit(None).cast(kind)).otherwise(f.coalesce(read, failed.cast(kind)))


_LONGEST = 2**31 - 1
