"""What PostgreSQL's planner expects of a query, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True)
class Planned:
    """``cost`` is in the planner's units, ``rows`` and ``bytes`` are what it expects to come out."""

    cost: float
    rows: int
    bytes: int


def planned(connection: psycopg.Connection[Any], query: str) -> Planned:
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode()).fetchone()
    assert row is not None
    top = row[0][0]["Plan"]
    return Planned(float(top["Total Cost"]), int(top["Plan Rows"]), int(top["Plan Rows"]) * int(top["Plan Width"]))
