"""One hash per row, as a Spark SQL expression: equal rows have equal hashes in every run, session and engine version.

sha256 over ``name=value`` of the columns that are not null, sorted by name and joined by ``;``. Null and the empty
string differ (a null column is absent), a new column without values changes nothing, and a widened column
keeps its hashes: integers and decimals are written without trailing zeros, floats as doubles, dates as timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct
from flowctl.sql import dialects


def row_hash_sql(columns: Sequence[Column]) -> str:
    """A Spark SQL expression: hex sha256 (64 characters) of ``columns``, independent of their order."""
    parts = [
        f"concat({dialects.text(_escape_name(column.name) + '=', 'spark')}, "
        f"{_canonical(_quote(column.name), column.type, 0)})"
        for column in sorted(columns, key=lambda column: column.name)
    ]
    return f"sha2(concat_ws(';', {', '.join(parts)}), 256)" if parts else "sha2('', 256)"


def hashes_alike(one: DataType, other: DataType) -> bool:
    """Whether a value that fits both types has the same hash in both: a column may have become wider."""
    return one == other or (_family(one) == _family(other) != "")


def _family(kind: DataType) -> str:
    match kind:
        case types.INT8 | types.INT16 | types.INT32 | types.INT64 | Decimal():
            return "exact number"
        case types.FLOAT | types.DOUBLE:
            return "float"
        case types.DATE | types.TIMESTAMP_NTZ:
            return "local time"
        case _:
            return ""


def _canonical(value: str, kind: DataType, depth: int) -> str:
    """The text of one value, null for null, without a bare ``;``. ``depth`` names the lambda variables of arrays."""
    match kind:
        case types.STRING:
            return _escape(value)
        case types.BINARY:
            return f"hex({value})"
        case types.FLOAT | types.DOUBLE:  # + 0.0 turns -0.0 into 0.0: they compare as equal
            return f"CAST(CAST({value} AS DOUBLE) + 0.0D AS STRING)"
        case types.DATE | types.TIMESTAMP_NTZ:
            return f"CAST(CAST({value} AS TIMESTAMP_NTZ) AS STRING)"
        case types.TIMESTAMP:  # a number: its text would depend on the session's time zone
            return f"CAST(unix_micros({value}) AS STRING)"
        case Scalar():
            return f"CAST({value} AS STRING)"
        case Decimal(_, 0):
            return f"CAST({value} AS STRING)"
        case Decimal():  # plain digits: in ANSI mode, which every session uses, the text has no exponent
            return _trim(f"CAST({value} AS STRING)")
        case Array(item):
            name = f"x{depth}"
            inner = f"concat('=', {_escape_nested(_canonical(name, item, depth + 1))})"
            return f"concat('[', array_join(transform({value}, {name} -> coalesce({inner}, 'null')), ','), ']')"
        case Struct(fields):
            inner = ", ".join(
                f"coalesce(concat('=', {_escape_nested(_canonical(f'{value}.{_quote(name)}', of, depth))}), 'null')"
                for name, of in fields
            )
            return f"IF({value} IS NULL, NULL, concat('{{', concat_ws(',', {inner}), '}}'))"
        case _:
            assert_never(kind)


def _trim(digits: str) -> str:
    """``1.50`` → ``1.5``, ``2.00`` → ``2``."""
    return f"regexp_replace({digits}, '[.]?0+$', '')"


def _escape(text: str) -> str:
    return rf"replace(replace({text}, '\\', '\\\\'), ';', '\\:')"


def _escape_nested(text: str) -> str:
    """Escapes what separates the parts of arrays and structs."""
    return rf"replace(replace({text}, '\\', '\\\\'), ',', '\\.')"


def _escape_name(name: str) -> str:
    return name.replace("\\", "\\\\").replace(";", "\\:").replace("=", "\\-")


def _quote(name: str) -> str:
    return dialects.quoted(name, "spark")
