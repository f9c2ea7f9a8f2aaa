"""DuckDB's expressions that return a column in the requested type, exactly or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.connectors.duckdb.types import children, data_type, ddl, is_plain_text, parsed
from flowctl.connectors.exact import require_possible, text_shape
from flowctl.connectors.refusal import refusal
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct
from flowctl.sql import dialects

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

#: Types whose values are compared as text: a cast from them reads text.
_TEXTS = ("varchar", "enum", "uuid", "bit", "bignum")
#: Integers and timestamps of other sizes, which fit their type or are refused.
_FITTED = ("hugeint", "uhugeint", "timestamp_s", "timestamp_ms")


def exact(found: Column, wanted: DataType) -> str:
    """The value of ``found``, a column as described, as ``wanted``. Raises :class:`TableError` if there is no such
    conversion; a value that is not exactly of that type fails the query with a refusal."""
    native, value = parsed(found.native), quoted(found.name)
    natural = data_type(native)
    column = Column(found.name, natural, native=found.native)
    if wanted == natural:
        return _carried(value, native, column)
    if natural == types.BINARY or (wanted != types.STRING and isinstance(natural, Array | Struct)):
        require_possible(column, Column(found.name, wanted))
    if wanted == types.STRING:
        return _text(value, native)
    require_possible(Column(found.name, types.STRING), Column(found.name, wanted))
    if native.id in _TEXTS:
        return _from_text(f"CAST({value} AS VARCHAR)", column, wanted)
    return _checked(value, f"CAST({{}} AS {found.native}) = {value}", column, wanted)


def quoted(name: str) -> str:
    return dialects.quoted(name, "duckdb")


def refused(column: Column, wanted: DataType, because: str = "") -> str:
    """An expression that fails with flowctl's text."""
    return f"error({dialects.text(refusal(column.name, column.native, wanted, because), 'duckdb')})"


def _carried(value: str, native: DuckDBPyType, column: Column, depth: int = 0) -> str:
    """``value`` as :func:`data_type` of its type."""
    kind = data_type(native)
    if native.id in _FITTED:
        return _checked(value, "{} IS NOT NULL", column, kind)
    match kind:
        case Array():
            child, name = children(native)["child"], f"x{depth}"
            listed = f"CAST({value} AS {child}[])" if native.id == "array" else value
            item = _carried(name, child, column, depth + 1)
            return listed if item == name else f"list_transform({listed}, lambda {name}: {item})"
        case Struct():
            packed, is_same = [], True
            for name, of in children(native).items():
                part = f"struct_extract({value}, {dialects.text(name, 'duckdb')})"
                packed.append(f"{quoted(name)} := {_carried(part, of, column, depth)}")
                is_same &= packed[-1].endswith(f" := {part}")
            return value if is_same else f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(packed)}) END"
        case types.STRING if not is_plain_text(native):
            return _text(value, native)
        case _ if ddl(kind).lower() == native.id or native.id == "decimal":
            return value
        case _:
            return f"CAST({value} AS {ddl(kind)})"


def _text(value: str, native: DuckDBPyType) -> str:
    """Canonical text; JSON for what has parts."""
    is_nested = native.id in ("list", "array", "struct", "map", "union", "variant")
    return f"CAST(to_json({value}) AS VARCHAR)" if is_nested else f"CAST({value} AS VARCHAR)"


def _from_text(text: str, column: Column, wanted: DataType) -> str:
    """DuckDB's own cast rounds 1.5 to 2, and reads 1e999 as infinity."""
    same = f"regexp_full_match({text}, {dialects.text(text_shape(wanted), 'duckdb')}) AND {{}} IS NOT NULL"
    if wanted in (types.FLOAT, types.DOUBLE):
        same += f" AND (NOT isinf({{}}) OR contains({text}, 'Infinity'))"
    return _checked(text, same, column, wanted)


def _checked(value: str, test: str, column: Column, wanted: DataType) -> str:
    """``value`` cast to ``wanted`` if ``test``, in which ``{}`` is the result, is true; a refusal if not."""
    cast = f"TRY_CAST({value} AS {ddl(wanted)})"
    is_same = test.replace("{}", cast)
    return f"CASE WHEN {value} IS NULL OR coalesce({is_same}, false) THEN {cast} ELSE {refused(column, wanted)} END"
