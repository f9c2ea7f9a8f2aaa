"""What one step reads: ``(lower, upper]`` over positions, fixed when the plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.model import position, value
from flowctl.model.position import Position
from flowctl.model.value import TypedValue


@dataclass(frozen=True)
class Interval:
    """``lower`` is the recorded position (None: from the beginning), ``upper`` what state records after the commit.

    For cursors the bounds that the read itself uses stand in ``read_from`` and ``read_to``: ``read_from`` is
    inclusive (ties of the last row may still arrive, and ``lag`` re-reads), ``read_to`` is inclusive for append and
    None for merge and scd2, which read everything above in one snapshot: an upper bound would starve rows that
    change faster than plan and read. Of the rows at ``read_from`` append leaves out those that the lower position says
    it has written. ``include_null`` reads rows whose cursor is null too (``cursor.nulls: always``).
    ``lag_seconds`` is only for people.
    """

    lower: Position | None
    upper: Position
    cursor_column: str | None = None
    read_from: TypedValue | None = None
    read_to: TypedValue | None = None
    include_null: bool = False
    lag_seconds: float = 0.0


def to_json(interval: Interval) -> dict[str, Any]:
    return {
        "lower": position.to_json(interval.lower) if interval.lower else None,
        "upper": position.to_json(interval.upper),
        "cursor_column": interval.cursor_column,
        "read_from": interval.read_from.to_json() if interval.read_from else None,
        "read_to": interval.read_to.to_json() if interval.read_to else None,
        "include_null": interval.include_null,
        "lag_seconds": interval.lag_seconds,
    }


def from_json(document: Mapping[str, Any]) -> Interval:
    def bound(name: str) -> TypedValue | None:
        return value.from_json(document[name]) if document[name] else None

    return Interval(
        lower=position.from_json(document["lower"]) if document["lower"] else None,
        upper=position.from_json(document["upper"]),
        cursor_column=document["cursor_column"],
        read_from=bound("read_from"),
        read_to=bound("read_to"),
        include_null=document["include_null"],
        lag_seconds=document["lag_seconds"],
    )
