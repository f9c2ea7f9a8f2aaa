"""Frames of a held snapshot through Spark's JDBC source: one task per part, each on the same moment.

JDBC's calendar shifts dates before 1582 and local times in daylight-saving gaps in silence, so dates travel as days and
timestamps as microseconds since 1970. Arrays travel as JSON arrays of their elements' texts. Everything without an
exact counterpart is read as its canonical text. What does not fit raises :func:`refusal`, never a changed value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.postgres.client import Client, startup_options
from flowctl.connectors.postgres.columns import Transfer, texts_of
from flowctl.connectors.postgres.parts import Parts, nth
from flowctl.connectors.postgres.snapshot import READER_SETTINGS, HeldSnapshot
from flowctl.connectors.refusal import refusal
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import RowEstimate
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

#: Rows that a reading connection holds at a time: bounded by bytes where the average row is known.
_FETCH_BYTES = 32 << 20


def jdbc_frame(
    spark: SparkSession, client: Client, held: HeldSnapshot, parts: Parts, hints: ReadHints, rows: RowEstimate
) -> DataFrame:
    outgoing = [_outgoing(one.value, one.column.type) for one in parts.transfers]
    arrived = spark.read.jdbc(
        client.jdbc_url(),
        jdbc_text(f"({parts.select([sql for sql, _ in outgoing])}) AS source"),
        predicates=parts.predicates,
        properties={
            **client.jdbc_properties(),
            "fetchsize": str(_fetch_size(hints, rows)),
            "sessionInitStatement": held.join_statement(),
            "customSchema": ", ".join(f"{nth(at)} {kind}" for at, (_, kind) in enumerate(outgoing)),
            # Spark asks for the schema on a connection of its own that runs no init statement.
            "options": startup_options(READER_SETTINGS),
            # Comparisons mean something else in PostgreSQL's collations and zones than in Spark.
            "pushDownPredicate": "false",
        },
    )
    return arrived.select(*[_rebuilt(at, one) for at, one in enumerate(parts.transfers)])


def jdbc_text(sql: str) -> str:
    """``sql`` with question marks doubled outside of quotes and comments: PostgreSQL's operators, JDBC's parameters."""
    return _QUOTED_OR_MARK.sub(lambda found: "??" if found[0] == "?" else found[0], sql)


_QUOTED_OR_MARK = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL)


def _fetch_size(hints: ReadHints, rows: RowEstimate) -> int:
    if hints.fetch_size < 1:
        raise TableError(
            "read.fetch_size 0 would read without the snapshot, all rows at once", hint="Set it to 1 or more"
        )
    if not rows.value or not rows.bytes:
        return hints.fetch_size
    return max(1, min(hints.fetch_size, _FETCH_BYTES * rows.value // rows.bytes))


def _outgoing(value: str, kind: DataType) -> tuple[str, str]:
    """The select expression, and the Spark type in which it arrives; :func:`_rebuilt` makes the value of it again."""
    match kind:
        case types.DATE:
            return _days(value), "INT"
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return _micros(value), "BIGINT"
        case types.INT8:
            return value, "SMALLINT"
        case types.INT64:
            return f"{value}::bigint", "BIGINT"  # oid is one too
        case Array():
            return texts_of(value), "STRING"
        case Struct():
            raise TableError("PostgreSQL has no structs to read", hint="Read the column as string")
        case Scalar() | Decimal():
            return value, types.spark_ddl(kind)
        case _:
            assert_never(kind)


def _micros(value: str) -> str:
    """A timestamp's microseconds since 1970 as bigint: whole seconds and the fraction apart, because `epoch` is a
    double before PostgreSQL 14. Infinity fails as ``bigint out of range``."""
    seconds = f"date_part('epoch', date_trunc('second', {value}))::bigint"
    return f"{seconds} * 1000000 + date_part('microseconds', {value})::bigint % 1000000"


def _days(value: str) -> str:
    """A date's days since 1970 as integer. Infinity fails as ``cannot subtract infinite dates``."""
    return f"({value} - DATE '1970-01-01')"


def _rebuilt(at: int, arriving: Transfer) -> Expression:
    """The Spark expression, over the column that arrived as :func:`nth`, that gives the value back under its name."""
    from pyspark.sql import functions as f

    column = arriving.column
    value = f.col(nth(at))
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


_FIRST_DAY, _LAST_DAY, _DAY = -719_162, 2_932_896, 86_400_000_000  # 0001-01-01, 9999-12-31; microseconds


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
