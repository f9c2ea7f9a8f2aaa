"""The check `between`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.expect.expectation import RowExpectation, literal, quoted


@dataclass(frozen=True, kw_only=True)
class Between(RowExpectation):
    """The column's values lie between two bounds, inclusive."""

    key = "between"
    schema = {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"type": ["string", "number"]},
        "description": "Lowest and highest allowed value.",
    }
    takes_column = True

    low: str | float
    high: str | float

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        low, high = argument
        return {"low": low, "high": high}

    @classmethod
    def flaw(cls, argument: Any) -> tuple[str, str] | None:
        match argument:
            case [str() as low, str() as high]:
                is_ordered = low <= high
            case [int() | float() as low, int() | float() as high]:
                is_ordered = low <= high
            case _:
                is_ordered = False
        hint = "Write the lower value first, both numbers or both text"
        return None if is_ordered else ("no value lies within the bounds of `between`", hint)

    def holds(self) -> str:
        column = quoted(self.column)
        return f"{column} >= {literal(self.low)} AND {column} <= {literal(self.high)}"
