"""flowctl's column types: a closed subset of Arrow, light enough for `validate` and `plan`.

The text form is Arrow's own (``decimal128(12, 2)``, ``timestamp[us, tz=UTC]``); :func:`parse` reads it back.
``pyarrow`` and Spark types are derived from these at the edges, never the other way round.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, assert_never

from flowctl.model import codec

ScalarName = Literal[
    "bool", "int8", "int16", "int32", "int64", "float", "double", "string", "binary",
    "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]",
]  # fmt: skip


@dataclass(frozen=True)
class Scalar:
    name: ScalarName

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal:
    """Exact numbers: 1 ≤ precision ≤ 38, 0 ≤ scale ≤ precision."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal128({self.precision}, {self.scale})"


@dataclass(frozen=True)
class Array:
    item: DataType

    def __str__(self) -> str:
        return f"list<item: {self.item}>"


@dataclass(frozen=True)
class Struct:
    """Only from files; fields in file order."""

    fields: tuple[tuple[str, DataType], ...]

    def __str__(self) -> str:
        return "struct<" + ", ".join(f"{name}: {kind}" for name, kind in self.fields) + ">"


DataType = Scalar | Decimal | Array | Struct

BOOL = Scalar("bool")
INT8, INT16, INT32, INT64 = Scalar("int8"), Scalar("int16"), Scalar("int32"), Scalar("int64")
FLOAT, DOUBLE = Scalar("float"), Scalar("double")
INTEGERS = (INT8, INT16, INT32, INT64)
FLOATS = (FLOAT, DOUBLE)
STRING, BINARY = Scalar("string"), Scalar("binary")
DATE = Scalar("date32[day]")
TIMESTAMP_NTZ, TIMESTAMP = Scalar("timestamp[us]"), Scalar("timestamp[us, tz=UTC]")

SCALARS = (BOOL, INT8, INT16, INT32, INT64, FLOAT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP_NTZ, TIMESTAMP)
_BY_NAME = {str(scalar): scalar for scalar in SCALARS}

#: Type names accepted in ``columns.types`` and formats in addition to Arrow's own.
_SPEC_NAMES = {
    "boolean": BOOL, "tinyint": INT8, "byte": INT8, "smallint": INT16, "short": INT16, "int": INT32, "integer": INT32,
    "bigint": INT64, "long": INT64, "real": FLOAT, "float": FLOAT, "double": DOUBLE, "text": STRING, "varchar": STRING,
    "bytes": BINARY, "date": DATE, "timestamp_ntz": TIMESTAMP_NTZ, "timestamp": TIMESTAMP, "timestamptz": TIMESTAMP,
}  # fmt: skip
_SPARK_NAMES = {
    BOOL: "BOOLEAN", INT8: "TINYINT", INT16: "SMALLINT", INT32: "INT", INT64: "BIGINT", FLOAT: "FLOAT",
    DOUBLE: "DOUBLE", STRING: "STRING", BINARY: "BINARY", DATE: "DATE", TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
    TIMESTAMP: "TIMESTAMP",
}  # fmt: skip
_DECIMAL = re.compile(r"(?:decimal|numeric|decimal128)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_ARRAY = re.compile(r"(?:list<(?:item|element): (.+)>|array<(.+)>)")


def parse(text: str) -> DataType:
    """Parses a type in Arrow's form or in that of a spec. Raises ``ValueError`` for an unknown type."""
    plain = text.strip()
    if plain in _BY_NAME:
        return _BY_NAME[plain]
    lowered = plain.lower()
    if lowered in _SPEC_NAMES:
        return _SPEC_NAMES[lowered]
    if match := _DECIMAL.fullmatch(lowered):
        precision, scale = int(match[1]), int(match[2] or 0)
        if not (1 <= precision <= 38 and scale <= precision):
            raise ValueError(f"{text}: precision must be 1 to 38 and scale at most the precision")
        return Decimal(precision, scale)
    if match := _ARRAY.fullmatch(plain):
        return Array(parse(match[1] or match[2]))
    if plain.startswith("struct<") and plain.endswith(">"):
        return Struct(tuple(_fields(plain[7:-1])))
    raise ValueError(f"unknown type {text!r}")


codec.has_form(DataType, str, parse)


def _fields(inner: str) -> list[tuple[str, DataType]]:
    """Splits ``a: int64, b: struct<…>`` at the commas and colons of the outer level."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(inner):
        depth += (char in "<([") - (char in ">)]")
        if char == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    parts.append(inner[start:])
    return [_field(part.strip()) for part in parts if part.strip()]


def _field(text: str) -> tuple[str, DataType]:
    name, colon, kind = text.partition(": ") if ": " in text else text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is no field of a struct: it has no type")
    return name.strip(), parse(kind)


def spark_ddl(kind: DataType) -> str:
    """The type in Spark SQL; source: Spark's SQL reference, Data Types."""
    match kind:
        case Scalar():
            return _SPARK_NAMES[kind]
        case Decimal(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case Array(item):
            return f"ARRAY<{spark_ddl(item)}>"
        case Struct(fields):
            return "STRUCT<" + ", ".join(f"`{name}`: {spark_ddl(of)}" for name, of in fields) + ">"
        case _:
            assert_never(kind)


def short(kind: DataType) -> str:
    """The type as shown in a plan: ``decimal(12,2)``, ``timestamp``, ``array<bigint>``."""
    return spark_ddl(kind).lower()


def is_or_holds(kind: DataType, *wanted: DataType) -> bool:
    """Whether it is one of ``wanted``, or an array or a struct with one of them at any depth."""
    match kind:
        case Array(item):
            return is_or_holds(item, *wanted)
        case Struct(fields):
            return any(is_or_holds(of, *wanted) for _, of in fields)
        case _:
            return kind in wanted


def fields_alike(kind: DataType) -> tuple[str, str] | None:
    """The first two fields of one struct, at any depth of ``kind``, whose names differ in nothing but case, if any."""
    match kind:
        case Array(item):
            return fields_alike(item)
        case Struct(fields):
            seen: dict[str, str] = {}
            for name, of in fields:
                if name.lower() in seen:
                    return seen[name.lower()], name
                seen[name.lower()] = name
                if inside := fields_alike(of):
                    return inside
    return None


def is_number(*kinds: DataType) -> bool:
    """Whether one of ``kinds`` is a type of numbers."""
    return any(isinstance(kind, Decimal) or kind in (*INTEGERS, *FLOATS) for kind in kinds)


def is_wider(new: DataType, old: DataType) -> bool:
    """Whether ``new`` represents every value of ``old`` exactly (byte→…→long, float→double, decimal growing in both
    parts, date→timestamp_ntz). Whether a target can make the change is for the target to declare."""
    match old, new:
        case Decimal(p, s), Decimal(q, t):
            return (q, t) != (p, s) and t >= s and q - t >= p - s
        case _:
            return (old, new) in _WIDER


def keeps_order(new: DataType, old: DataType) -> bool:
    """Whether a column changed from ``old`` to ``new`` keeps its values and their order: ``new`` is wider, or an exact
    number with at least as many decimal places. (Values that do not fit into fewer digits make the change itself
    fail.)"""
    then, now = _places(old), _places(new)
    return new == old or is_wider(new, old) or (then is not None and now is not None and now >= then)


def _places(kind: DataType) -> int | None:
    """Decimal places of an exact number; None for other types."""
    if isinstance(kind, Decimal):
        return kind.scale
    return 0 if kind in _INTS else None


_INTS = (INT8, INT16, INT32, INT64)
_WIDER = {(old, new) for at, old in enumerate(_INTS) for new in _INTS[at + 1 :]} | {
    (FLOAT, DOUBLE),
    (DATE, TIMESTAMP_NTZ),
}
