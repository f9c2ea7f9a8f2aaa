"""MySQL's column types as flowctl's, and back as DDL.

flowctl's own columns carry what MySQL's types cannot express in their comments: a DATETIME in UTC, and arrays as JSON.
TIMESTAMP is not used for that: it ends in 2038.
"""

from __future__ import annotations

import re
from typing import assert_never

from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct

#: The comment of a DATETIME column that holds instants.
IN_UTC = "timestamp in UTC"
_JSON = "JSON "
_COMMENT = " comment "
_MEMBER = re.compile("'((?:[^']|'')*)'")
_SHAPE = re.compile(r"(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)


def native_type(column_type: str, comment: str) -> str:
    """The type as flowctl records it: as MySQL writes it, with the comment if that is part of the type."""
    return column_type if _of_comment(column_type, comment) is None else f"{column_type}{_COMMENT}{comment}"


def split_comment(native: str) -> tuple[str, str]:
    """The type as MySQL writes it, and the comment that is part of it; empty if there is none. Members of an ENUM or a
    SET may have the same words."""
    declared, _, comment = native.partition(_COMMENT)
    return (native, "") if _of_comment(declared, comment) is None else (declared, comment)


def data_type(native: str) -> DataType:
    """The type that holds every value of ``native`` exactly, or all but those that a read refuses; text if there is no
    other."""
    declared, comment = split_comment(native)
    if found := _of_comment(declared, comment):
        return found
    name, arguments, rest = _parts(declared)
    unsigned = "unsigned" in rest or "zerofill" in rest
    match name:
        case "tinyint" if arguments == "1" and not unsigned:
            return types.BOOL
        case "bit":
            return _bits(int(arguments or 1))
        case "decimal":
            precision, _, scale = (arguments or "10,0").partition(",")
            is_known = int(precision) <= 38
            return Decimal(int(precision), int(scale or 0)) if is_known else types.STRING
        case "int" | "tinyint" | "smallint" | "mediumint" | "bigint":
            return _INTEGERS[name][unsigned]
        case _:
            return _KNOWN.get(name, types.STRING)


def is_plain_text(native: str) -> bool:
    """Whether the value itself is text; other types that map to strings are read as their canonical text."""
    return _parts(native)[0] in (*_TEXTS, "enum")


def sorts_as_text(native: str) -> bool:
    """Whether values that are read as text sort as their texts do. Members of an ENUM, which those of a query's column
    do not have, and of a SET are sorted by their places."""
    match _parts(native)[0]:
        case "enum":
            members = [member.replace("''", "'") for member in _MEMBER.findall(native)]
            return bool(members) and members == sorted(members)
        case "decimal" | "time" | "timestamp" | "set":
            return False
        case _:
            return True


def is_spatial(native: str) -> bool:
    return _parts(native)[0] in _SPATIAL


def note_of(native: str) -> str:
    """Why a type is read as text, where that is not obvious."""
    match _parts(native)[0]:
        case "decimal":
            return "more than 38 digits: read as text; `columns.types` makes a decimal of values that have fewer"
        case "time":
            return "beyond 24 hours and below 0: read as text"
        case "set":
            return "a set: read as text, its members between commas"
        case "json":
            return "read as JSON text"
        case name if name in _SPATIAL:
            return "a geometry: read as text, its SRID and WKB in hexadecimal digits"
        case _:
            return ""


def ddl(kind: DataType, collation: str) -> str:
    """The column type that :func:`data_type` reads back as ``kind``; lossless for every type."""
    text = f"LONGTEXT CHARACTER SET utf8mb4 COLLATE {collation}"
    match kind:
        case types.STRING:
            return text
        case Scalar():
            return _DDL[kind]
        case Decimal(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case Array() | Struct():
            return f"{text} COMMENT '{_JSON}{kind}'"
        case _:
            assert_never(kind)


def native_of_field(type_code: int, flags: int, length: int, scale: int, is_binary: bool) -> str:
    """The type of a query's column, from the descriptor that the server sends, as :func:`data_type` reads it. Source:
    MySQL's client/server protocol, column definitions."""
    unsigned = " unsigned" if flags & 32 else ""
    match type_code:
        case 0 | 246:
            digits = length - (1 if scale else 0) - (0 if unsigned else 1)
            return f"decimal({digits},{scale}){unsigned}"
        case 1:
            return f"tinyint({length}){unsigned}"
        case 16:
            return f"bit({length})"
        case 249 | 250 | 251 | 252:
            return "longblob" if is_binary else "longtext"
        case 15 | 253 | 254:
            name = "enum" if flags & 256 else "set" if flags & 2048 else ""
            return name or ("varbinary" if is_binary else "varchar")
        case _:
            return _BY_CODE.get(type_code, "longtext") + unsigned


def _of_comment(declared: str, comment: str) -> DataType | None:
    """The type that one of flowctl's comments stands for; None for a comment of somebody else's, also if it begins like
    one (`JSON with the settings`)."""
    name = _parts(declared)[0]
    if name == "datetime":
        return types.TIMESTAMP if comment == IN_UTC else None
    if name not in (*_TEXTS, "json") or not comment.startswith(_JSON):
        return None
    try:
        found = types.parse(comment.removeprefix(_JSON))
    except ValueError:
        return None
    return found if isinstance(found, Array | Struct) else None


def _parts(native: str) -> tuple[str, str, str]:
    found = _SHAPE.match(native.lower())
    return (found[1], found[2] or "", found[3]) if found else (native, "", "")


def _bits(count: int) -> DataType:
    if count == 1:
        return types.BOOL
    return types.INT64 if count < 64 else Decimal(20, 0)


#: Signed, and unsigned.
_INTEGERS: dict[str, tuple[DataType, DataType]] = {
    "tinyint": (types.INT8, types.INT16),
    "smallint": (types.INT16, types.INT32),
    "mediumint": (types.INT32, types.INT32),
    "int": (types.INT32, types.INT64),
    "bigint": (types.INT64, Decimal(20, 0)),
}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_SPATIAL = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
)  # fmt: skip
_KNOWN: dict[str, DataType] = {
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "year": types.INT16,
    "date": types.DATE,
    "datetime": types.TIMESTAMP_NTZ,
    "timestamp": types.TIMESTAMP,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), types.BINARY),
}
_DDL: dict[DataType, str] = {
    types.BOOL: "TINYINT(1)",
    types.INT8: "TINYINT",
    types.INT16: "SMALLINT",
    types.INT32: "INT",
    types.INT64: "BIGINT",
    types.FLOAT: "FLOAT",
    types.DOUBLE: "DOUBLE",
    types.BINARY: "LONGBLOB",
    types.DATE: "DATE",
    types.TIMESTAMP_NTZ: "DATETIME(6)",
    types.TIMESTAMP: f"DATETIME(6) COMMENT '{IN_UTC}'",
}
_BY_CODE = {
    2: "smallint", 3: "int", 4: "float", 5: "double", 7: "timestamp", 8: "bigint", 9: "mediumint", 10: "date",
    11: "time", 12: "datetime", 13: "year", 245: "json", 255: "geometry",
}  # fmt: skip
