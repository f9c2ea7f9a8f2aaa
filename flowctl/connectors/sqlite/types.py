"""SQLite's declared types: text that SQLite largely ignores, but that flowctl enforces for every value.

SQLite derives only an *affinity* from a declared type. Two traps determine the names used here: ``DECIMAL(12,2)``
has numeric affinity and stores '1.10' as the binary float 1.1, so flowctl's own decimals are declared
``DECIMAL_TEXT(12,2)`` (text affinity, exact); and there is no 32-bit float or integer, so ``FLOAT4`` and ``INT4``
carry the width. Source: sqlite.org, "Datatypes In SQLite", section 3.1.
"""

from __future__ import annotations

import re
from typing import assert_never

from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct


def declared(kind: DataType) -> str:
    """The declared type that :func:`data_type` reads back as ``kind``; lossless for every type."""
    match kind:
        case Scalar():
            return _DECLARED[kind]
        case Decimal(precision, scale):
            return f"DECIMAL_TEXT({precision},{scale})"
        case Array() | Struct():
            return '"' + f"JSON {kind}".replace('"', '""') + '"'
        case _:
            assert_never(kind)


def data_type(declared: str) -> DataType:
    """The type that the values of a column with this declared type must fit. Unknown types are read as text."""
    if declared.startswith("JSON "):
        return types.parse(declared[5:])
    words = re.sub(r"\s+", " ", declared.strip().upper())
    name, _, arguments = words.partition("(")
    name = name.strip()
    if name in _BY_NAME and not (name == "TIMESTAMP" and words.endswith("WITH TIME ZONE")):
        return _BY_NAME[name]
    if name in ("DECIMAL", "NUMERIC", "DECIMAL_TEXT"):
        return _decimal(arguments)
    if words.startswith("TIMESTAMP") and words.endswith("WITH TIME ZONE"):
        return types.TIMESTAMP
    return _by_affinity(name)


def makes_numbers(declared: str) -> bool:
    """Whether a column of this type has numeric affinity, so that SQLite stores a text that looks like a number as
    one. ``ANY`` of a STRICT table has not."""
    words = declared.upper()
    keeps_texts = not words.strip() or any(part in words for part in ("CHAR", "CLOB", "TEXT", "BLOB"))
    return "INT" in words or not keeps_texts


def _decimal(arguments: str) -> DataType:
    """Only text is exact without a precision, or outside the range of decimals."""
    numbers = [int(number) for number in re.findall(r"-?\d+", arguments)]
    match numbers:
        case [precision] if 1 <= precision <= 38:
            return Decimal(precision, 0)
        case [precision, scale] if 1 <= precision <= 38 and 0 <= scale <= precision:
            return Decimal(precision, scale)
        case _:
            return types.STRING


def _by_affinity(name: str) -> DataType:
    """SQLite's own rules, in its order, for names such as ``UNSIGNED BIG INT`` or ``NATIVE CHARACTER``."""
    for part, kind in (
        ("INT", types.INT64),
        ("CHAR", types.STRING),
        ("CLOB", types.STRING),
        ("TEXT", types.STRING),
        ("BLOB", types.BINARY),
        ("REAL", types.DOUBLE),
        ("FLOA", types.DOUBLE),
        ("DOUB", types.DOUBLE),
    ):
        if part in name:
            return kind
    return types.STRING


_DECLARED: dict[DataType, str] = {
    types.BOOL: "BOOLEAN",
    types.INT8: "TINYINT",
    types.INT16: "SMALLINT",
    types.INT32: "INT4",
    types.INT64: "BIGINT",
    types.FLOAT: "FLOAT4",
    types.DOUBLE: "DOUBLE",
    types.STRING: "TEXT",
    types.BINARY: "BLOB",
    types.DATE: "DATE",
    types.TIMESTAMP_NTZ: "TIMESTAMP",
    types.TIMESTAMP: "TIMESTAMPTZ",
}
_BY_NAME: dict[str, DataType] = {
    **{name: kind for kind, name in _DECLARED.items()},
    "BOOL": types.BOOL,
    "INT2": types.INT16,
    "DATETIME": types.TIMESTAMP_NTZ,
    "TIMESTAMP WITHOUT TIME ZONE": types.TIMESTAMP_NTZ,
}
