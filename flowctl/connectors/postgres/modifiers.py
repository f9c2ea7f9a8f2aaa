"""Columns that silently change values: ``timestamp(0)`` rounds, ``varchar(3)`` truncates trailing spaces, ``char(3)``
pads, ``name`` truncates. Only tables that flowctl did not create have them.

PostgreSQL applies a type's modifier while it reads a value, before any constraint is checked. So such a column is
staged in its type without the modifier, with a constraint that the modifier changes nothing; the refusal comes while
rows are copied, by whichever process, and names the column.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.columns import quoted
from flowctl.connectors.postgres.types import NativeType, data_type
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo

if TYPE_CHECKING:
    import psycopg

#: Name prefix of the constraint on a column; the column's number follows.
CONSTRAINT = "flowctl_exact_"


@dataclass(frozen=True)
class Modified:
    """``native`` is the column's own type, ``base`` the one without its modifier, both as SQL."""

    column: str
    native: str
    base: str

    @property
    def test(self) -> str:
        """True for values of the type ``base`` that ``native`` keeps as they are."""
        value = quoted(self.column)
        kept = f"{value}::{self.native}"
        if self.base.startswith("pg_catalog.numeric"):
            return f"{kept} = {value}"  # trailing zeros do not matter
        if self.base == "pg_catalog.bpchar":  # as text, it loses its trailing blanks
            return f"octet_length({kept}) = octet_length({value})"
        return f"({kept})::text = {value}::text"


def modified_columns(
    connection: psycopg.Connection[Any], there: TableInfo, written: Collection[str]
) -> Mapping[str, Modified]:
    """The table's ``written`` columns with a modifier, by name. Raises :class:`TableError` for a column whose values
    cannot be compared with those of its base type. Types of extensions are left out: they refuse what does not fit."""
    rows = connection.execute(_MODIFIED, [there.identity.rpartition("/")[2], [*_TYPES, "char"]]).fetchall()
    found = {}
    for name, native, base, typmod, depth, has_inner in rows:
        if name not in written or (base == "numeric" and data_type(NativeType(base, typmod)) != types.STRING):
            continue
        if has_inner or depth > 1 or base == "char" or (base == "name" and depth):
            raise TableError(
                f'column "{name}" is {native}, which may round or cut what it is given without an error',
                hint=f"Make it a column of another type: ALTER TABLE … ALTER COLUMN {quoted(name)} TYPE …",
            )
        found[name] = Modified(name, native, _TYPES[base] + "[]" * depth)
    return found


def is_limited(column: Column) -> bool:
    """Whether :func:`modified_columns` includes the column, or the copying of its rows checks it (``uuid``), judged by
    its type's name: a domain hides its base type."""
    is_limited = _LIMITED.match(column.native) is not None
    return is_limited and not (column.native.startswith("numeric") and column.type != types.STRING)


#: As `format_type` writes them.
_LIMITED = re.compile(
    r'(timestamp|time|numeric|character varying|bit varying)\(|interval[( ]|(character|bit)(\(|$)|name$|"char"$|uuid$'
)

#: The SQL names of types without a modifier: `char` and `bit` alone would mean `char(1)` and `bit(1)`.
_TYPES = {
    **{name: f'pg_catalog."{name}"' for name in ("bit", "varbit", "time", "timetz", "timestamp", "timestamptz")},
    **{name: f"pg_catalog.{name}" for name in ("bpchar", "varchar", "numeric", "interval")},
    "name": "text",
}
#: Resolves domains and arrays down to the type that has the modifier. A domain's modifier is that of its base type.
_MODIFIED = """
    WITH RECURSIVE below(number, name, native, type, typmod, depth, has_inner) AS (
        SELECT attnum, attname, format_type(atttypid, atttypmod), atttypid, atttypmod, 0, false
        FROM pg_attribute WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT b.number, b.name, b.native, CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END,
            CASE WHEN t.typtype = 'd' THEN greatest(t.typtypmod, b.typmod) ELSE b.typmod END,
            b.depth + CASE WHEN t.typtype = 'd' THEN 0 ELSE 1 END, b.has_inner OR t.typtype = 'd' AND b.depth > 0
        FROM below b JOIN pg_type t ON t.oid = b.type
        WHERE t.typtype = 'd' OR t.typelem <> 0 AND t.typcategory = 'A' AND t.typlen = -1
    )
    SELECT b.name, b.native, t.typname, b.typmod, b.depth, b.has_inner
    FROM below b JOIN pg_type t ON t.oid = b.type AND t.typnamespace = 'pg_catalog'::regnamespace
    WHERE t.typname = ANY (%s) AND (b.typmod <> -1 OR t.typname IN ('name', 'char')) ORDER BY b.number
"""
