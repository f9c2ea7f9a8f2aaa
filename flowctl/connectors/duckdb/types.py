"""DuckDB's types as flowctl's, and back as DDL. DuckDB itself parses the names of its types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never, cast

from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

#: The names of fields that every system takes; other structs are read as JSON.
_FIELD = re.compile(r"\w+")


def parsed(native: str) -> DuckDBPyType:
    """The type that DuckDB calls ``native``."""
    import duckdb

    return duckdb.sqltype(native)


def data_type(native: DuckDBPyType) -> DataType:
    """The type that holds every value of ``native`` exactly, or all but those that a read refuses (``hugeint``); text
    if there is no other."""
    match native.id:
        case "decimal":
            numbers = dict(native.children)
            return Decimal(int(str(numbers["precision"])), int(str(numbers["scale"])))
        case "list" | "array":
            return Array(data_type(children(native)["child"]))
        case "struct" if _is_carried(native):
            return Struct(tuple((name, data_type(kind)) for name, kind in children(native).items()))
        case name:
            return _KNOWN.get(name, types.STRING)


def children(native: DuckDBPyType) -> dict[str, DuckDBPyType]:
    """The types of a struct's fields by name, or that of a list's elements as ``child``."""
    return dict(
        cast("list[tuple[str, DuckDBPyType]]", native.children[:1] if native.id == "array" else native.children)
    )


def _is_carried(struct: DuckDBPyType) -> bool:
    """Whether the fields of ``struct`` have names that differ in more than case, of letters, digits and ``_``."""
    names = [name for name, _ in struct.children]
    return all(map(_FIELD.fullmatch, names)) and len({name.lower() for name in names}) == len(names)


def is_plain_text(native: DuckDBPyType) -> bool:
    """Whether the value itself is text; all other types that map to strings are read as canonical text."""
    return str(native) == "VARCHAR"


def sorts_as_text(native: DuckDBPyType) -> bool:
    """Whether its values sort as their texts do."""
    if native.id == "enum":  # by the places of its members
        members = cast("list[str]", dict(native.children)["values"])
        return members == sorted(members)
    return native.id in _SORTED_AS_TEXT or native.id.startswith("timestamp")


def note_of(native: DuckDBPyType) -> str:
    """Why a type is read as text, where that is not obvious."""
    match native.id:
        case "timestamp_ns":
            return "nanoseconds: read as text; `columns.types` makes timestamps of values in microseconds"
        case "time" | "time with time zone" | "time_ns":
            return "no time type in the target: read as text"
        case "map" | "union" | "struct" | "variant":
            return "read as JSON text"
        case "bignum":
            return "no precision that a decimal can hold: read as text; `columns.types` gives one"
        case _:
            return ""


def ddl(kind: DataType) -> str:
    """The column type that :func:`data_type` reads back as ``kind``; lossless for every type."""
    match kind:
        case Scalar():
            return _DDL[kind]
        case Decimal(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case Array(item):
            return f"{ddl(item)}[]"
        case Struct(fields):
            listed = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}" {ddl(of)}' for name, of in fields)
            return f"STRUCT({listed})"
        case _:
            assert_never(kind)


_SORTED_AS_TEXT = frozenset(["varchar", "uuid", "boolean", "date", "time", "time_ns"])
_DDL: dict[DataType, str] = {
    types.BOOL: "BOOLEAN",
    types.INT8: "TINYINT",
    types.INT16: "SMALLINT",
    types.INT32: "INTEGER",
    types.INT64: "BIGINT",
    types.FLOAT: "FLOAT",
    types.DOUBLE: "DOUBLE",
    types.STRING: "VARCHAR",
    types.BINARY: "BLOB",
    types.DATE: "DATE",
    types.TIMESTAMP_NTZ: "TIMESTAMP",
    types.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
}
_KNOWN: dict[str, DataType] = {
    **{name.lower(): kind for kind, name in _DDL.items()},
    "utinyint": types.INT16,
    "usmallint": types.INT32,
    "uinteger": types.INT64,
    "ubigint": Decimal(20, 0),
    "hugeint": Decimal(38, 0),
    "uhugeint": Decimal(38, 0),
    "timestamp_s": types.TIMESTAMP_NTZ,
    "timestamp_ms": types.TIMESTAMP_NTZ,
}
