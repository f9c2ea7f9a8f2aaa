"""One typed value that round-trips through JSON unchanged: the bound of a cursor, the start of an interval."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

from flowctl.model import codec, types
from flowctl.model.types import DataType

#: A digit other than 0 beyond microseconds.
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")

PythonValue = int | decimal.Decimal | float | str | dt.date | dt.datetime


@total_ordering
@dataclass(frozen=True)
class TypedValue:
    """A value with its type. Timestamps are aware UTC datetimes (``timestamp[us, tz=UTC]``) or naive ones
    (``timestamp[us]``), in microseconds. Ordering is defined between values of the same type only; text compares by
    code point, which equals the C collation of UTF-8."""

    type: DataType
    value: PythonValue

    def __lt__(self, other: TypedValue) -> bool:
        if self.type != other.type:
            raise TypeError(f"cannot order {self.type} against {other.type}")
        return self.value < other.value  # type: ignore[operator]

    def text(self) -> str:
        """Exact text: RFC 3339 with six digits for timestamps, plain digits for decimals."""
        match self.value:
            case dt.datetime() as at:
                naive = at.astimezone(dt.UTC).replace(tzinfo=None) if at.tzinfo else at
                return naive.isoformat(timespec="microseconds") + ("Z" if at.tzinfo else "")
            case decimal.Decimal() as number:
                return format(number, "f")
            case dt.date() as day:
                return day.isoformat()
            case float() as number:
                return repr(number)
            case value:
                return str(value)

    def readable(self) -> str:
        """Text for display: ``2026-11-20 06:15:33.001 UTC``, ``2026-11-20 00:00``."""
        if not isinstance(self.value, dt.datetime):
            return self.text()
        naive = self.value.astimezone(dt.UTC).replace(tzinfo=None) if self.value.tzinfo else self.value
        text = naive.isoformat(" ", timespec="microseconds").rstrip("0").rstrip(".").removesuffix(":00")
        return f"{text} UTC" if self.value.tzinfo else text


def is_cursor_type(kind: DataType) -> bool:
    """Whether :func:`from_text` parses values of ``kind``: booleans, bytes and what has parts cannot be a cursor."""
    of_time = (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE)
    return isinstance(kind, types.Decimal) or kind in (*types.INTEGERS, *types.FLOATS, *of_time, types.STRING)


def to_json(typed: TypedValue) -> dict[str, str]:
    return {"type": str(typed.type), "value": typed.text()}


def from_json(document: Mapping[str, Any]) -> TypedValue:
    kind, text = document["type"], document["value"]
    if not (isinstance(kind, str) and isinstance(text, str)):
        raise ValueError(f"type and value are texts: {kind!r}, {text!r}")
    return from_text(types.parse(kind), text)


codec.has_form(TypedValue, to_json, from_json)


def from_text(kind: DataType, text: str) -> TypedValue:
    """Parses the output of :meth:`TypedValue.text` and :meth:`TypedValue.readable`, and values of ``cursor.start``.
    Raises ``ValueError`` for anything else."""
    if kind == types.TIMESTAMP:
        at = dt.datetime.fromisoformat(text.removesuffix(" UTC"))
        return TypedValue(kind, (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).astimezone(dt.UTC))
    if kind == types.TIMESTAMP_NTZ:
        at = dt.datetime.fromisoformat(text)
        if at.tzinfo is not None:
            at = at.astimezone(dt.UTC).replace(tzinfo=None)
        return TypedValue(kind, at)
    if kind == types.DATE:
        return TypedValue(kind, dt.date.fromisoformat(text))
    if kind in types.INTEGERS:
        return TypedValue(kind, _integer(text))
    if isinstance(kind, types.Decimal):
        return TypedValue(kind, decimal.Decimal(text))
    if kind in (types.FLOAT, types.DOUBLE):
        return TypedValue(kind, float(text))
    if kind == types.STRING:
        return TypedValue(kind, text)
    raise ValueError(f"{kind} cannot be a cursor")


def from_person(kind: DataType, text: str) -> TypedValue:
    """As :func:`from_text`, of a bound that a person has written. Also raises ``ValueError`` for a timestamp that would
    be moved: with a zone where the cursor has none, or with digits beyond microseconds."""
    if kind == types.TIMESTAMP_NTZ and dt.datetime.fromisoformat(text).tzinfo is not None:
        raise ValueError(f"{text} has a time zone, and the column has none")
    if kind in (types.TIMESTAMP, types.TIMESTAMP_NTZ) and _FINER.search(text):
        raise ValueError(f"{text} has digits beyond microseconds")
    return from_text(kind, text)


def _integer(text: str) -> int:
    """Drivers of databases fail with a larger one."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{text} is beyond the range of bigint")
    return number
