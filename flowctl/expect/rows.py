"""The check `rows`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.expect.expectation import BatchColumns, BatchExpectation


@dataclass(frozen=True, kw_only=True)
class Rows(BatchExpectation):
    """The number of rows of a batch has a minimum or a maximum."""

    key = "rows"
    schema = {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {
            "min": {"type": "integer", "minimum": 0, "description": "Minimum number of rows."},
            "max": {"type": "integer", "minimum": 0, "description": "Maximum number of rows."},
        },
        "description": "Number of rows in a batch.",
    }

    least: int | None = None
    most: int | None = None

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        return {"least": argument.get("min"), "most": argument.get("max")}

    def measure(self, columns: BatchColumns) -> str:
        return "count(1)"

    def problem(self, found: Any, columns: BatchColumns, now: dt.datetime) -> str | None:
        rows = int(found)
        if self.least is not None and rows < self.least:
            return f"{rows:,} rows, at least {self.least:,} expected"
        if self.most is not None and rows > self.most:
            return f"{rows:,} rows, at most {self.most:,} expected"
        return None
