"""The check `not_null`."""

from __future__ import annotations

from dataclasses import dataclass

from flowctl.expect.expectation import RowExpectation, quoted


@dataclass(frozen=True, kw_only=True)
class NotNull(RowExpectation):
    """The column is never null."""

    key = "not_null"
    schema = {"const": True, "description": "The column is never null."}
    takes_column = True

    def holds(self) -> str:
        return f"{quoted(self.column)} IS NOT NULL"
