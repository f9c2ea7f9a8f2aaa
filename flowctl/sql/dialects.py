"""The parts of SQL that differ between dialects and that flowctl writes itself: names and typed literals.

sqlglot renders the statements; types and typed literals are text from here or from a connector's own type table,
because sqlglot changes types between dialects (a TIMESTAMP without a zone becomes Spark's TIMESTAMP with one).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, assert_never

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Decimal, Scalar
from flowctl.model.value import TypedValue

if TYPE_CHECKING:
    from flowctl.sql.collations import Collations

Dialect = Literal["spark", "postgres", "sqlite", "duckdb", "mysql"]


def quoted(name: str, dialect: Dialect) -> str:
    """``name`` as an identifier; case and every character are kept."""
    match dialect:
        case "spark" | "mysql":
            return "`" + name.replace("`", "``") + "`"
        case "postgres" | "sqlite" | "duckdb":
            return '"' + name.replace('"', '""') + '"'
        case _:
            assert_never(dialect)


def table(parts: tuple[str, ...], dialect: Dialect) -> str:
    """``("public", "orders")`` as ``"public"."orders"``; ``("delta", "s3a://…")`` as Delta's path form in Spark."""
    return ".".join(quoted(part, dialect) for part in parts)


def deletion(target: tuple[str, ...], key: Sequence[str], rows: str, dialect: Dialect, collations: Collations) -> str:
    """DELETE of the rows of ``target`` whose ``key`` is in ``rows``, a SELECT of these columns in the same dialect."""
    name, columns = table(target, dialect), [quoted(column, dialect) for column in key]
    if dialect == "mysql":  # up to MariaDB 11.0, the subquery of a DELETE is run for each row
        equal = " AND ".join(collations.equality(column, "d") for column in key)
        return f"DELETE t FROM {name} AS t JOIN ({rows}) AS d ON {equal}"
    if dialect == "duckdb":  # an IN does not compare a TIME with its text
        equal = " AND ".join(f"t.{column} = d.{column}" for column in columns)
        return f"DELETE FROM {name} AS t USING ({rows}) AS d WHERE {equal}"
    # IN, not EXISTS: without an index, SQLite reads a correlated subquery in full for every row.
    return f"DELETE FROM {name} WHERE ({', '.join(columns)}) IN ({rows})"


def literal(value: TypedValue, dialect: Dialect) -> str:
    """``value`` as a literal with its type, and with its UTC offset if it has one."""
    plain = value.text()
    match dialect:
        case "sqlite":
            return plain if _is_number(value.type) else text(plain, dialect)
        case "mysql":
            if value.type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
                return f"TIMESTAMP({text(plain.replace('T', ' ').removesuffix('Z'), dialect)})"
            return plain if _is_number(value.type) else text(plain, dialect)
        case "spark" | "postgres" | "duckdb":
            keyword = _KEYWORDS[dialect].get(value.type)
            if keyword is not None:
                return f"{keyword} {text(plain, dialect)}"
            return f"CAST({text(plain, dialect)} AS {_cast_type(value.type, dialect)})"
        case _:
            assert_never(dialect)


def text(plain: str, dialect: Dialect) -> str:
    """A string literal. Spark and MySQL read backslashes as escapes; the other dialects follow the standard and do
    not."""
    if dialect in ("spark", "mysql"):
        return "'" + plain.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + plain.replace("'", "''") + "'"


def moment(at: str, dialect: Dialect) -> str:
    """An RFC 3339 timestamp as a literal of the type of flowctl's own columns (``_deleted_at``). In SQLite it is text
    with six fractional digits and ``Z``, the form in which SQLite stores every timestamp with a zone."""
    instant = dt.datetime.fromisoformat(at)
    return literal(TypedValue(types.TIMESTAMP, instant.astimezone(dt.UTC)), dialect)


def translatable_moment(at: str, written: Dialect, dialect: Dialect) -> str:
    """:func:`moment` in a statement of the dialect ``written`` that sqlglot translates to ``dialect``: keeps the type,
    and remains text where timestamps are text."""
    return moment(at, dialect if dialect in ("sqlite", "mysql") else written)


def _is_number(kind: DataType) -> bool:
    return kind in (*types.INTEGERS, *types.FLOATS)


def _cast_type(kind: DataType, dialect: Literal["spark", "postgres", "duckdb"]) -> str:
    if dialect == "spark":
        return types.spark_ddl(kind)
    match kind:
        case Decimal():
            return "NUMERIC" if dialect == "postgres" else f"DECIMAL({kind.precision},{kind.scale})"
        case Scalar():
            return _STANDARD[kind]
        case _:
            raise ValueError(f"{kind} has no literal")


_KEYWORDS: dict[str, dict[DataType, str]] = {
    "spark": {types.TIMESTAMP: "TIMESTAMP", types.TIMESTAMP_NTZ: "TIMESTAMP_NTZ", types.DATE: "DATE"},
    "postgres": {types.TIMESTAMP: "TIMESTAMPTZ", types.TIMESTAMP_NTZ: "TIMESTAMP", types.DATE: "DATE"},
    "duckdb": {types.TIMESTAMP: "TIMESTAMPTZ", types.TIMESTAMP_NTZ: "TIMESTAMP", types.DATE: "DATE"},
}
_STANDARD: dict[DataType, str] = {
    types.INT8: "SMALLINT",
    types.INT16: "SMALLINT",
    types.INT32: "INTEGER",
    types.INT64: "BIGINT",
    types.FLOAT: "REAL",
    types.DOUBLE: "DOUBLE PRECISION",
    types.STRING: "TEXT",
}


def schema_ddl(columns: Iterable[Column]) -> str:
    """The columns as a Spark schema string, all of them nullable."""
    return ", ".join(f"{quoted(column.name, 'spark')} {types.spark_ddl(column.type)}" for column in columns)
