"""How a column is selected, and its texts as Arrow: exact, or refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import require_possible
from flowctl.connectors.mysql.types import data_type, is_spatial
from flowctl.connectors.refusal import PREFIX, error_of, refusal
from flowctl.connectors.sql import values
from flowctl.connectors.text_columns import TIMES, as_number, from_text, unchanged
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Decimal, Struct
from flowctl.sql import dialects

if TYPE_CHECKING:
    import pyarrow as pa


def quoted(name: str) -> str:
    return dialects.quoted(name, "mysql")


def selected(here: Column) -> str:
    """The expression whose text is exact: MySQL shows six digits of a FLOAT, and a BIT as bytes."""
    name, native = quoted(here.name), here.native.lower()
    if native.startswith("float"):
        return f"({name} + 0e0)"
    if native.startswith("bit"):
        return f"CAST({name} AS UNSIGNED)"
    return f"HEX({name})" if is_spatial(native) else name


def converted(texts: Sequence[Any] | pa.Array, here: Column, wanted: Column) -> pa.Array:
    """As :func:`to_arrow`; bytes are no texts, and texts no bytes."""
    natural = replace(here, type=data_type(here.native))
    if types.BINARY in (natural.type, wanted.type) and natural.type != wanted.type:
        require_possible(natural, wanted)
    return to_arrow(texts, natural, wanted)


def to_arrow(texts: Sequence[Any] | pa.Array, here: Column, wanted: Column) -> pa.Array:
    """``texts`` (of one column of one batch) as ``wanted.type``; raises :class:`TableError` if one of them is not
    exactly that."""
    import pyarrow as pa

    try:
        whole = texts if isinstance(texts, pa.Array) else pa.array(texts, _raw_type(wanted.type))
        if here.type == types.STRING != wanted.type and not isinstance(wanted.type, Array | Struct):
            return from_text(whole, wanted.type)
        if here.type != wanted.type and types.is_number(here.type) and types.is_number(wanted.type):
            return as_number(whole, here.type, wanted.type)
        if here.type != wanted.type and {here.type, wanted.type} <= TIMES:
            return unchanged(_converted(whole, here.type), wanted.type)
        return _converted(whole, wanted.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise _refused(texts.to_pylist() if isinstance(texts, pa.Array) else texts, here, wanted) from error


def _raw_type(kind: DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.binary() if kind == types.BINARY else pa.string()


def _converted(texts: pa.Array, kind: DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from flowctl.connectors.decimal_text import decimals

    arrow = arrow_type(kind)
    match kind:
        case types.BOOL:
            is_true = pc.equal(texts, "1")
            if not pc.all(pc.or_(is_true, pc.equal(texts, "0")), min_count=0).as_py():
                raise ValueError
            return is_true
        case types.FLOAT:
            return unchanged(texts.cast(pa.float64()), kind)
        case types.DATE | types.TIMESTAMP_NTZ:
            return values.in_calendar(texts.cast(arrow))
        case types.TIMESTAMP:
            local = texts.cast(pa.timestamp("us"))
            return pc.assume_timezone(values.in_calendar(local), "UTC")
        case Decimal():
            return decimals(texts, arrow)
        case Array() | Struct():
            return values.to_arrow(texts.to_pylist(), kind)
        case _:
            return texts.cast(arrow)


def _refused(texts: Sequence[Any], here: Column, wanted: Column) -> TableError:
    is_time = wanted.type in (types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ)
    if is_time and any((isinstance(text, str) and "-00" in text[:10]) or text == "0000-00-00" for text in texts):
        hint = (
            f"Read it as text with `columns: {{types: {{{here.name}: string}}}}`, or such values as null with a query: "
            f"`NULLIF({here.name}, '0000-00-00')`"
        )
        text = refusal(here.name, here.native, wanted.type, ": it has a month or a day 0", hint)
    elif data_type(here.native) == types.BOOL and wanted.type == types.BOOL:
        hint = f"Read it as a number with `columns: {{types: {{{here.name}: tinyint}}}}`"
        text = refusal(here.name, here.native, wanted.type, ": it is neither 0 nor 1", hint)
    else:
        text = refusal(here.name, here.native, wanted.type)
    return error_of(text.removeprefix(PREFIX))
