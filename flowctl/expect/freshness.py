"""The check `freshness`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.expect.expectation import BatchColumns, BatchExpectation, quoted
from flowctl.model import types
from flowctl.model.units import seconds


@dataclass(frozen=True, kw_only=True)
class Freshness(BatchExpectation):
    """The newest row of a batch is at most ``within`` seconds old. A column without a time zone is read in ``zone``, or
    else in ``cursor.zone``: read as UTC, its age would be wrong by the zone's offset."""

    key = "freshness"
    of_newest = True
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["column", "within"],
        "properties": {
            "column": {"type": "string", "minLength": 1, "description": "The column with the time."},
            "within": {"$ref": "#/$defs/duration", "description": "How old its greatest value may be."},
            "zone": {
                "$ref": "#/$defs/zone",
                "description": "The time zone of a column without one. Absent: `cursor.zone`; "
                "one of them is required then.",
            },
        },
        "description": "How old the newest of the rows that a run reads may be; a run without new rows checks nothing.",
    }

    within: float
    zone: str | None = None

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        return {**argument, "within": seconds(argument["within"])}

    def refuse(self, columns: BatchColumns) -> tuple[str, str] | None:
        if not self._is_local(columns) or self.zone or columns.zone:
            return None
        hint = f"Write freshness: {{column: {self.column}, within: …, zone: Europe/Amsterdam}} (UTC for times in UTC)"
        return f'freshness: "{self.column}" has no time zone, so its age is not known', hint

    def measure(self, columns: BatchColumns) -> str:
        kind = "TIMESTAMP_NTZ" if self._is_local(columns) else "TIMESTAMP"
        return f"max(CAST({quoted(self.column)} AS {kind}))"

    def problem(self, found: Any, columns: BatchColumns, now: dt.datetime) -> str | None:
        newest = self.newest(found, columns)
        if newest is None:
            return f'no value in "{self.column}"'
        age = (now - newest).total_seconds()
        is_old = age > self.within
        return f'newest "{self.column}" is {age:,.0f} s old, at most {self.within:,.0f} s allowed' if is_old else None

    def newest(self, found: str | None, columns: BatchColumns) -> dt.datetime | None:
        """The newest time of a batch, with its time zone."""
        from zoneinfo import ZoneInfo

        zone = (self.zone or columns.zone if self._is_local(columns) else None) or "UTC"  # sessions run in UTC
        return dt.datetime.fromisoformat(found).replace(tzinfo=ZoneInfo(zone)) if found else None

    def _is_local(self, columns: BatchColumns) -> bool:
        return columns.types.get(self.column) in (types.TIMESTAMP_NTZ, types.DATE)
