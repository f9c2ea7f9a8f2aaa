"""The check `sql`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.expect.expectation import RowExpectation


@dataclass(frozen=True, kw_only=True)
class Sql(RowExpectation):
    """A condition in Spark SQL holds for every row."""

    key = "sql"
    schema = {"type": "string", "minLength": 1, "description": "Spark SQL condition that holds for every row."}
    gaps = {"sail": "integer overflow is not detected there"}

    condition: str

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        return {"condition": argument}

    def reads(self, column: str) -> bool:
        """By its name: the condition is not parsed."""
        return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", self.condition, re.IGNORECASE) is not None

    def holds(self) -> str:
        return f"({self.condition}\n)"  # it may end with a comment
