"""Texts of PostgreSQL's output functions as the values that a snapshot of the same row delivers.

A snapshot selects expressions (:mod:`flowctl.connectors.postgres.columns`); a change stream sends what the type's
output function returns. They differ where a cast to text is a function of its own (``boolean``, ``inet``), and for
arrays. A value that its type cannot hold exactly is refused, without the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.postgres.types import NativeType, data_type
from flowctl.connectors.refusal import error_of, no_counterpart, refusal
from flowctl.connectors.text_columns import TIMES, as_number, from_text, unchanged
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Decimal

if TYPE_CHECKING:
    import pyarrow as pa

#: What separates the elements of an array, by the element's type; a comma for all others.
_DELIMITERS = {"box": ";"}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def typed(texts: pa.Array, wanted: Column, native: str, base: str) -> pa.Array:
    """``texts`` in the type of ``wanted``. ``native`` is the column's type, ``base`` the name of its type without
    domains, for an array that of its elements and ``[]``. Raises :class:`TableError` for a value that does not fit."""
    import pyarrow as pa

    try:
        return _typed(texts, wanted, base)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError):
        as_it_is = no_counterpart(wanted.type) if data_type(NativeType(base, -1)) == wanted.type else ""
        why = ": the array does not begin at index 1" if _has_bounds(texts, wanted) else as_it_is
        raise error_of(refusal(wanted.name, native, wanted.type, why).partition(": ")[2]) from None


def _typed(texts: pa.Array, wanted: Column, base: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = wanted.type
    if isinstance(kind, Array):
        return _arrays(texts, kind, base)
    if kind == types.STRING:
        return _as_text(texts, base)
    if kind == types.BOOL and base == "bool":
        return pc.equal(texts, "t")
    if kind == types.BINARY:
        return pa.array([None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], pa.binary())
    found = Decimal(38, 0) if base == "numeric" else data_type(NativeType(base, -1))  # of any scale
    if found == types.STRING:
        return from_text(texts, kind)
    if found == types.BOOL and types.is_number(kind):
        found, texts = types.INT8, pc.if_else(pc.equal(texts, "t"), "1", "0")
    if (found != kind or base == "numeric") and types.is_number(found) and types.is_number(kind):
        return as_number(texts, found, kind)
    if found != kind and {found, kind} <= TIMES:
        return unchanged(texts.cast(arrow_type(found)), kind)
    return texts.cast(arrow_type(kind))


def _as_text(texts: pa.Array, base: str) -> pa.Array:
    """As ``value::text`` returns it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    change = _TO_TEXT.get(base)
    if change is None:
        return texts
    if base == "bool":
        return pc.if_else(pc.equal(texts, "t"), "true", "false")
    return pa.array([None if text is None else change(text) for text in texts.to_pylist()], pa.string())


def _with_mask(address: str) -> str:
    if "/" in address:
        return address
    return f"{address}/{128 if ':' in address else 32}"


_TO_TEXT: Mapping[str, Callable[[str], str]] = {
    "bool": lambda text: "true" if text == "t" else "false",
    "inet": _with_mask,
}


def _arrays(texts: pa.Array, kind: Array, base: str) -> pa.Array:
    import pyarrow as pa

    base = base.removesuffix("[]")
    change = _TO_TEXT.get(base)
    rows: list[list[str | bytes | None] | None] = []
    for text in texts.to_pylist():
        if text is None:
            rows.append(None)
            continue
        found = elements(text, _DELIMITERS.get(base, ","))
        rows.append([one if one is None or change is None else change(one) for one in found])
    if kind.item == types.BINARY:
        rows = [row and [one and bytes.fromhex(str(one)[2:]) for one in row] for row in rows]
        return pa.array(rows, arrow_type(kind))
    return pa.array(rows, pa.list_(pa.string())).cast(arrow_type(kind))


def elements(literal: str, delimiter: str = ",") -> list[str | None]:
    """The elements of a one-dimensional array as PostgreSQL writes it; ``ValueError`` for any other."""
    if not literal.startswith("{"):
        if literal.startswith("["):
            raise ValueError("an array with bounds")
        return list(literal.split())  # int2vector, oidvector
    inside = literal[1:-1]
    if not inside:
        return []
    if '"' not in inside:
        if "{" in inside:
            raise ValueError("an array of several dimensions")
        return [None if one == "NULL" else one for one in inside.split(delimiter)]
    found: list[str | None] = []
    at = 0
    while at <= len(inside):
        if quoted := _QUOTED.match(inside, at):
            found.append(re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL))
            at = quoted.end() + 1
            continue
        end = inside.find(delimiter, at)
        end = len(inside) if end < 0 else end
        one = inside[at:end]
        if one.startswith("{"):
            raise ValueError("an array of several dimensions")
        found.append(None if one == "NULL" else one)
        at = end + 1
    return found


def _has_bounds(texts: pa.Array, wanted: Column) -> bool:
    import pyarrow.compute as pc

    return isinstance(wanted.type, Array) and bool(pc.any(pc.starts_with(texts, "[")).as_py())
