"""The check `unique`."""

from __future__ import annotations

from dataclasses import dataclass

from flowctl.expect.expectation import GroupExpectation


@dataclass(frozen=True, kw_only=True)
class Unique(GroupExpectation):
    """No value of the column occurs twice in a batch."""

    key = "unique"
    schema = {"const": True, "description": "No value occurs twice in the batch."}
    takes_column = True

    def violation(self, rows: str) -> str:
        return f"{rows} > 1"
