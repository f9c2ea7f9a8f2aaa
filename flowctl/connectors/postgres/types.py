"""PostgreSQL's types as flowctl's, and back as DDL. The table is `semantics.md`'s (docs/types.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import assert_never

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct


@dataclass(frozen=True)
class NativeType:
    """One column's type after domains are resolved. ``name`` is `pg_type.typname` (for an array, its element's),
    ``typmod`` is as in `pg_attribute` (-1: none). ``dimensions`` is as declared, which binds no value; 0: no array."""

    name: str
    typmod: int
    dimensions: int = 0


def data_type(native: NativeType) -> DataType:
    """The type that holds every value of ``native`` exactly; text if there is no other."""
    element = _numeric(native.typmod) if native.name == "numeric" else _KNOWN.get(native.name, types.STRING)
    match native.dimensions:
        case 0:
            return element
        case 1:
            return Array(element)
        case _:
            return types.STRING


def is_plain_text(native: NativeType) -> bool:
    """Whether the value itself is text; all other types that map to strings are read as canonical text (``::text``)."""
    return native.dimensions == 0 and native.name in ("text", "varchar", "bpchar")


def portable(native: NativeType, formatted: str | None) -> str:
    """The type of the same values in any other database. ``formatted`` is the type as PostgreSQL writes it (of an
    array, its elements'), if it is PostgreSQL's own; it is kept if its binary form refers to nothing else, and its text
    to no setting. What extensions and users define, OIDs of other objects, `money`, and arrays whose text is not
    separated by commas are their texts there."""
    if formatted is None or native.name not in _PORTABLE or (native.name == "box" and native.dimensions):
        return ddl(data_type(native))
    return formatted + "[]" * native.dimensions


def is_stored_as(native: str, portable: str) -> bool:
    """Whether the column type ``native``, as PostgreSQL writes it, is ``portable``: it does not write dimensions."""
    item, brackets, _ = portable.partition("[]")
    return native == item + brackets


def has_exact_equality(native: str) -> bool:
    """Whether two values of a type (as PostgreSQL writes it) are equal only if their texts are, as far as flowctl
    cares: `1.0 = 1.00` and `1 day = 24 hours` are true, geometric types compare areas, and json has no operator."""
    name = native.partition("[")[0].partition("(")[0].strip()
    return name in _EXACTLY_COMPARED or (name == "numeric" and "(" in native)


def sorts_as_text(column: Column) -> bool:
    """Whether the column's values sort as their texts do, in C collation."""
    if column.as_text:
        return column.native in _TEXTS_OF_OTHERS or _MODIFIER.sub("", column.portable) in _SORTED_AS_TEXT
    return column.type in (types.STRING, types.DATE, types.TIMESTAMP_NTZ, types.TIMESTAMP)


def ddl(kind: DataType) -> str:
    """The column type that :func:`data_type` reads back as ``kind``. ``int8`` has no counterpart and becomes smallint.
    Structs (only files have them) become ``jsonb``."""
    match kind:
        case Scalar():
            return _DDL[kind]
        case Decimal(precision, scale):
            return f"numeric({precision},{scale})"
        case Array(Array() | Struct()) | Struct():
            return "jsonb"
        case Array(item):
            return f"{ddl(item)}[]"
        case _:
            assert_never(kind)


def stored(kind: DataType) -> DataType:
    """The type that :func:`data_type` reads a column created with ``kind`` as, if that is no wider one: ``jsonb`` is
    text."""
    return types.STRING if ddl(kind) == "jsonb" else kind


def _numeric(typmod: int) -> DataType:
    """``typmod`` packs precision and (since 15, signed, 11 bits) scale; source: `numeric.c`, `numeric_typmod_scale`."""
    if typmod < 4:
        return types.STRING
    packed = typmod - 4
    precision, scale = packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400
    return Decimal(precision, scale) if precision <= 38 and 0 <= scale <= precision else types.STRING


_MODIFIER = re.compile(r"\(\d+\)")
_SORTED_AS_TEXT = frozenset(["uuid", "time without time zone", "macaddr", "macaddr8"])
#: Text that no other database of the same kind need have, as PostgreSQL writes its type.
_TEXTS_OF_OTHERS = frozenset(["name", '"char"', "citext"])
_KNOWN: dict[str, DataType] = {
    "bool": types.BOOL,
    "int2": types.INT16,
    "int4": types.INT32,
    "int8": types.INT64,
    "oid": types.INT64,
    "float4": types.FLOAT,
    "float8": types.DOUBLE,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP_NTZ,
    "timestamptz": types.TIMESTAMP,
    "bytea": types.BINARY,
}
_DDL: dict[DataType, str] = {
    types.BOOL: "boolean",
    types.INT8: "smallint",
    types.INT16: "smallint",
    types.INT32: "integer",
    types.INT64: "bigint",
    types.FLOAT: "real",
    types.DOUBLE: "double precision",
    types.STRING: "text",
    types.BINARY: "bytea",
    types.DATE: "date",
    types.TIMESTAMP_NTZ: "timestamp",
    types.TIMESTAMP: "timestamptz",
}
#: `pg_type.typname` of what :func:`portable` accepts.
_PORTABLE = frozenset(
    [
        *("bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "text", "varchar", "bpchar", "bytea"),
        *("date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid", "json", "jsonb", "jsonpath", "xml"),
        *("inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "pg_lsn", "tsvector", "tsquery"),
        *("point", "line", "lseg", "box", "path", "polygon", "circle"),
        *("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"),
        *("int4multirange", "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange"),
    ]
)
_EXACTLY_COMPARED = frozenset(
    [
        *("boolean", "smallint", "integer", "bigint", "oid", "real", "double precision", "text", "character varying"),
        *(
            "character",
            "bpchar",
            "bytea",
            "uuid",
            "date",
            "timestamp",
            "timestamp without time zone",
            "timestamp with time zone",
        ),
        *("time", "time without time zone", "inet", "cidr", "macaddr", "macaddr8", "bit", "bit varying", "pg_lsn"),
        *("tsvector", "int4range", "int8range", "daterange", "tsrange", "tstzrange"),
    ]
)
