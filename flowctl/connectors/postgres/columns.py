"""PostgreSQL's expressions that return a column in the requested type, exactly or not at all."""

from __future__ import annotations

import re

from flowctl.connectors.postgres.types import ddl
from flowctl.connectors.refusal import refusal
from flowctl.connectors.sql.parts import Transfer
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Decimal, Struct
from flowctl.sql import dialects


def transfer(wanted: Column, found: Column) -> Transfer:
    """``found`` is the described column, ``wanted`` has the type to deliver; ``TableError`` if there is no
    conversion."""
    value = quoted(found.name)
    if wanted.type == types.STRING:
        plain = found.type == types.STRING and not found.as_text
        return Transfer(wanted, found.native, value if plain else f"{value}::text")
    if isinstance(found.type, Array) and wanted.type == found.type:
        return Transfer(wanted, found.native, _from_one(value, wanted, found))
    return Transfer(wanted, found.native, value if wanted.type == found.type else _converted(value, wanted, found))


def _from_one(value: str, wanted: Column, found: Column) -> str:
    """The array, or an error if its first index is not 1: lists have no bounds, so they would be lost silently. The
    system's vector types always start at 0."""
    if found.native in ("int2vector", "oidvector"):
        return value
    raised = _raised(wanted, found, ": the array does not begin at index 1")
    # Cast one by one, elements of char(n) would lose their trailing blanks.
    is_padded = any(
        map(_PADDED.match, (found.native, found.portable))
    )  # a domain hides it in the first, a query in the other
    kept = f"{value}::text::text[]" if is_padded else value
    return f"(CASE WHEN array_lower({value}, 1) <> 1 THEN CASE WHEN {raised} THEN {kept} END ELSE {kept} END)"


_PADDED = re.compile(r"(character\(|bpchar)")


def texts_of(array: str) -> str:
    """An array as a JSON array of its elements' texts."""
    return f"array_to_json({array}::text[])::text"


def quoted(name: str) -> str:
    return dialects.quoted(name, "postgres")


def text_literal(text: str) -> str:
    return dialects.text(text, "postgres")


def _converted(value: str, wanted: Column, found: Column) -> str:
    """The value in the type that the spec requests: PostgreSQL converts it, and the result must convert back to the
    same value."""
    if isinstance(wanted.type, Array | Struct) or isinstance(found.type, Array) or wanted.type == types.BINARY:
        raise TableError(
            f"column {found.name} ({found.native}) cannot be read as {types.short(wanted.type)}",
            hint="Read it as it is, or as string",
        )
    text = found.type == types.STRING
    cast = f"({value}::text)::{ddl(wanted.type)}" if text else f"{value}::{ddl(wanted.type)}"
    tests = []
    if types.BOOL in (found.type, wanted.type) and types.is_number(found.type, wanted.type):
        is_flag = found.type == types.BOOL  # only integer has casts from and to boolean
        cast = f"({value}::integer)::{ddl(wanted.type)}" if is_flag else f"({value} = 1)"
        tests += [] if is_flag else [f"{value} IN (0, 1)"]
    elif text and isinstance(wanted.type, Decimal):
        tests.append(f"({value}::text)::numeric = {cast}")
    elif not text:
        tests.append(f"({cast})::{found.native} = {value}")
    if isinstance(wanted.type, Decimal):
        tests.append(f"{cast} <> 'NaN'")
    if not tests:
        return f"({cast})"
    return (
        f"(CASE WHEN {value} IS NULL OR {' AND '.join(tests)} THEN {cast} WHEN {_raised(wanted, found)} THEN NULL END)"
    )


def _raised(wanted: Column, found: Column, because: str = "") -> str:
    """A condition that fails with flowctl's text. It depends on the row's value, or the planner would evaluate it
    immediately."""
    message = text_literal(refusal(found.name, found.native, wanted.type, because))
    return f"({message} || left({quoted(found.name)}::text, 0))::integer IS NULL"
