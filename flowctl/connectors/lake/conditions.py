"""Conditions on rows: simple comparisons of columns with values, evaluated by an engine, by this process, or against a
file's statistics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, assert_never

from flowctl.sql import dialects

if TYPE_CHECKING:
    import pyarrow.compute as pc

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
#: Column, operator, and an integer, a short text, a decimal or a date.
Term = tuple[str, Operator, int | str | Decimal | dt.date]
#: Met if all terms of at least one part are.
Condition = Sequence[Sequence[Term]]
NEVER: Condition = ()
ALWAYS: Condition = ((),)


def columns_of(condition: Condition) -> list[str]:
    return list(dict.fromkeys(name for part in condition for name, _, _ in part))


def quoted(name: str) -> str:
    """``name`` as an identifier of Spark SQL."""
    return dialects.quoted(name, "spark")


def sql(condition: Condition) -> str:
    """As Spark SQL; the values must be numbers or texts."""
    parts = [" AND ".join(map(_sql, part)) or "TRUE" for part in condition]
    return f"({' OR '.join(f'({part})' for part in parts)})" if parts else "FALSE"


def _sql(term: Term) -> str:
    name, operator, value = term
    text = dialects.text(value, "spark") if isinstance(value, str) else str(value)
    return f"{quoted(name)} {operator} {text}"


def expression(condition: Condition) -> pc.Expression:
    """As a pyarrow expression; the condition must have terms."""
    import pyarrow.parquet as pq

    return pq.filters_to_expression([[(name, _PYTHON.get(op, op), value) for name, op, value in p] for p in condition])


_PYTHON = {"=": "=="}


def may_match(condition: Condition, lows: Mapping[str, Any], highs: Mapping[str, Any]) -> bool:
    """Whether a row may meet the condition whose values are within these bounds, by column. A column without bounds
    may have any value; days may be text."""
    return any(all(_may_hold(term, lows, highs) for term in part) for part in condition)


def _may_hold(term: Term, lows: Mapping[str, Any], highs: Mapping[str, Any]) -> bool:
    name, operator, value = term
    low, high = lows.get(name), highs.get(name)
    if isinstance(value, dt.date):
        low, high = _date(low), _date(high)
    if low is None or high is None:
        return True
    match operator:
        case "=":
            return bool(low <= value <= high)
        case "!=":
            return not (low == value == high)
        case "<":
            return bool(low < value)
        case "<=":
            return bool(low <= value)
        case ">":
            return bool(high > value)
        case ">=":
            return bool(high >= value)
        case _:
            assert_never(operator)


def _date(text: Any) -> dt.date | None:
    """None for a date that Python cannot represent."""
    if isinstance(text, dt.date):
        return text
    try:
        return dt.date.fromisoformat(text)
    except (TypeError, ValueError):
        return None
