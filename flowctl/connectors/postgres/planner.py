"""What PostgreSQL's planner expects of queries, without running them."""

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


def planned(connection: psycopg.Connection[Any], queries: Mapping[str, str]) -> dict[str, Planned]:
    """All asked in one round trip. Empty when one of them fails: what it costs is not worth a run."""
    import psycopg

    together = connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()
    try:
        with together:
            asked = {
                name: connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode()) for name, query in queries.items()
            }
            return {name: _read(cursor) for name, cursor in asked.items()}
    except psycopg.Error:
        return {}


def _read(cursor: psycopg.Cursor[Any]) -> Planned:
    row = cursor.fetchone()
    assert row is not None
    top = row[0][0]["Plan"]
    return Planned(float(top["Total Cost"]), int(top["Plan Rows"]), int(top["Plan Rows"]) * int(top["Plan Width"]))
