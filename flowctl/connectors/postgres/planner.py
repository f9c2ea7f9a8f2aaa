"""What PostgreSQL's planner expects of a query, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
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


def planned_rows(connection: psycopg.Connection[Any], queries: Mapping[str, str]) -> dict[str, int]:
    """The rows of each, all asked in one round trip; none where PostgreSQL cannot tell for one of them."""
    import psycopg

    together = connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()
    try:
        with together:
            asked = {name: _explained(connection, query) for name, query in queries.items()}
            return {name: _planned(cursor).rows for name, cursor in asked.items()}
    except psycopg.Error:  # an estimate is not worth a run
        return {}


def planned(connection: psycopg.Connection[Any], query: str) -> Planned:
    return _planned(_explained(connection, query))


def _explained(connection: psycopg.Connection[Any], query: str) -> psycopg.Cursor[Any]:
    return connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode())


def _planned(cursor: psycopg.Cursor[Any]) -> Planned:
    row = cursor.fetchone()
    assert row is not None
    top = row[0][0]["Plan"]
    return Planned(float(top["Total Cost"]), int(top["Plan Rows"]), int(top["Plan Rows"]) * int(top["Plan Width"]))
