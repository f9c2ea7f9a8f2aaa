"""Whether the values of `deletes: {detect: flag}` can be values of the flag's column at all: otherwise no row would be
deleted, or each run would fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.model.value import from_text
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.plan.projection import read_columns
from flowctl.plan.shape import known_columns
from flowctl.spec.spec import DetectFlag

#: Texts that an engine reads as a boolean.
_BOOLEANS = ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0")


def unusable_flag(case: Case) -> Stop | None:
    """Stops if the column has a type of which none of the values is."""
    flag, column = case.table.deletes, _flag_column(case)
    if not isinstance(flag, DetectFlag) or column is None or any(_is_one(each, column.type) for each in flag.values):
        return None
    what = f'deletes.column: "{column.name}" is {types.short(column.type)}, of which no value is {_listed(flag.values)}'
    if column.type == types.BOOL or types.is_number(column.type):
        return Stop(what, "Write the values that mean deleted in deletes.values", "deletes.column")
    made = f"`{column.name} IS NOT NULL AS is_deleted`"
    hint = f"Read a view or a query that makes a flag of it, such as {made}, and name the flag and its values"
    return Stop(what, hint, "deletes.column")


def flag_notes(case: Case) -> Iterator[str]:
    """A text column may hold `true`, but rather `Y` or `deleted`."""
    flag, column = case.table.deletes, _flag_column(case)
    if not isinstance(flag, DetectFlag) or column is None or column.type != types.STRING:
        return
    if flag.values == (True,) and "deletes.values" not in case.table.marks:
        yield (
            f'deletes.column: "{column.name}" is text, and only the text "true" means deleted; '
            "write other values in deletes.values"
        )


def _flag_column(case: Case) -> Column | None:
    """As it is read; None if that is not known yet."""
    table, source = case.table, case.observed.source
    there = source.columns if source else known_columns(case) or ()
    if not isinstance(table.deletes, DetectFlag):
        return None
    return next((one for one in read_columns(table, there) if one.name == table.deletes.column), None)


def _is_one(value: Any, kind: DataType) -> bool:
    """Whether the engine makes a value of ``kind`` of it."""
    if kind == types.STRING or (kind == types.BINARY and isinstance(value, str)):
        return True
    if kind == types.BOOL:
        return not isinstance(value, str) or value.strip().lower() in _BOOLEANS
    if types.is_number(kind) and not isinstance(value, str):
        return True
    with contextlib.suppress(ValueError, ArithmeticError):
        return isinstance(value, str) and from_text(kind, value.strip()) is not None
    return False


def _listed(values: tuple[Any, ...]) -> str:
    return " or ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
