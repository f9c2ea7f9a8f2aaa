"""The check `in`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.expect.expectation import RowExpectation, literal, quoted


@dataclass(frozen=True, kw_only=True)
class OneOf(RowExpectation):
    """The column's values are among those listed."""

    key = "in"
    schema = {
        "type": "array",
        "minItems": 1,
        "items": {"type": ["string", "number", "boolean"]},
        "description": "The allowed values.",
    }
    takes_column = True

    values: tuple[Any, ...]

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        return {"values": tuple(argument)}

    def holds(self) -> str:
        return f"{quoted(self.column)} IN ({', '.join(map(literal, self.values))})"
