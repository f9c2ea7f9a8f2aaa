"""Parts of a snapshot as a frame, through Spark's JDBC source: one task per part.

JDBC's calendar silently shifts dates before 1582 and local times in daylight-saving gaps, so dates travel as days and
timestamps as microseconds since 1970. Arrays travel as JSON arrays of their elements' texts. A value that does not fit
raises :func:`refusal`; it is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.refusal import no_counterpart, refusal
from flowctl.connectors.sql.parts import Parts, Transfer, nth
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import RowEstimate
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

#: Bound, in bytes, on the rows that a reading connection holds at a time, if the average row size is known.
_FETCH_BYTES = 32 << 20


def read_by_jdbc(
    spark: SparkSession,
    url: str,
    properties: Mapping[str, str],
    query: str,
    parts: Parts,
    arriving: Sequence[str],
    fetch_size: int,
) -> DataFrame:
    """``query`` is the SELECT of ``parts`` in the driver's syntax, ``arriving`` the Spark type in which each column
    arrives."""
    arrived = spark.read.jdbc(
        url,
        f"({query}) AS source",
        predicates=parts.predicates,
        properties={
            **properties,
            "fetchsize": str(fetch_size),
            "customSchema": ", ".join(f"{nth(at)} {kind}" for at, kind in enumerate(arriving)),
            # Comparisons differ between a database's collations and zones and Spark.
            "pushDownPredicate": "false",
        },
    )
    return arrived.select(*[_rebuilt(at, one) for at, one in enumerate(parts.transfers)])


def fetch_size(hints: ReadHints, rows: RowEstimate) -> int:
    if hints.fetch_size < 1:
        raise TableError(
            "read.fetch_size 0 would read without the snapshot, all rows at once", hint="Set it to 1 or more"
        )
    if not rows.value or not rows.bytes:
        return hints.fetch_size
    return max(1, min(hints.fetch_size, _FETCH_BYTES * rows.value // rows.bytes))


def _rebuilt(at: int, arriving: Transfer) -> Expression:
    """The Spark expression that restores the value, under its name, from the column that arrived as :func:`nth`."""
    from pyspark.sql import functions as f

    column = arriving.column
    value = f.col(nth(at))
    failed = f.raise_error(f.lit(refusal(column.name, arriving.native, column.type, no_counterpart(column.type))))
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


#: The database texts to accept. Spark's casts are too lenient: they read ``0044-03-15 BC`` as the year 44.
_DATE_TEXT = r"^\d{4}-\d{2}-\d{2}$"
_TIMESTAMP_TEXT = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?(\+00)?$"


def _elements(value: Expression, item: DataType, failed: Expression) -> Expression:
    """One-dimensional arrays only: a nested one is recognized by the beginning of its JSON."""
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
