"""Reads parts of a held snapshot through Spark's JDBC source: types without an exact counterpart as canonical text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.postgres.client import Client, startup_options
from flowctl.connectors.postgres.columns import texts_of
from flowctl.connectors.postgres.snapshot import READER_SETTINGS, HeldSnapshot
from flowctl.connectors.sql.jdbc import fetch_size, read_by_jdbc
from flowctl.connectors.sql.parts import Parts
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import RowEstimate
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def jdbc_frame(
    spark: SparkSession, client: Client, held: HeldSnapshot, parts: Parts, hints: ReadHints, rows: RowEstimate
) -> DataFrame:
    outgoing = [_outgoing(one.value, one.column.type) for one in parts.transfers]
    properties = {
        **client.jdbc_properties(),
        "sessionInitStatement": held.join_statement(),
        # Spark queries the schema on a separate connection that runs no init statement.
        "options": startup_options(READER_SETTINGS),
    }
    query = jdbc_text(parts.select([sql for sql, _ in outgoing]))
    arriving = [kind for _, kind in outgoing]
    return read_by_jdbc(spark, client.jdbc_url(), properties, query, parts, arriving, fetch_size(hints, rows))


def jdbc_text(sql: str) -> str:
    """``sql`` with question marks doubled outside quotes and comments: operators in PostgreSQL, but parameters in
    JDBC."""
    return _QUOTED_OR_MARK.sub(lambda found: "??" if found[0] == "?" else found[0], sql)


_QUOTED_OR_MARK = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL)


def _outgoing(value: str, kind: DataType) -> tuple[str, str]:
    """The select expression, and the Spark type in which it arrives (see :mod:`flowctl.connectors.sql.jdbc`). Infinite
    values fail with ``cannot subtract infinite dates`` or ``bigint out of range``."""
    match kind:
        case types.DATE:
            return f"({value} - DATE '1970-01-01')", "INT"
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            # Whole seconds and the fraction are separate: `epoch` is a double before PostgreSQL 14.
            seconds = f"date_part('epoch', date_trunc('second', {value}))::bigint"
            return f"{seconds} * 1000000 + date_part('microseconds', {value})::bigint % 1000000", "BIGINT"
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
