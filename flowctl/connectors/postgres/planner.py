"""Estimates of PostgreSQL's planner for queries, which are not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True)
class Planned:
    """``cost`` is in the planner's units, ``rows`` and ``bytes`` are the expected size of the result."""

    cost: float
    rows: int
    bytes: int


def planned(connection: psycopg.Connection[Any], queries: Mapping[str, str]) -> dict[str, Planned]:
    """Plans all queries in one round trip; raises psycopg's errors."""
    import psycopg

    together = connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()
    with together:
        asked = {name: connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode()) for name, query in queries.items()}
        return {name: _read(cursor) for name, cursor in asked.items()}


def foreign_scans(explained: psycopg.Cursor[Any]) -> list[Mapping[str, Any]]:
    """The scans of other servers' tables in an ``EXPLAIN (FORMAT JSON)``."""
    return [node for node in _nodes(_top(explained)) if node["Node Type"] == "Foreign Scan"]


def _nodes(top: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield top
    for below in top.get("Plans", ()):
        yield from _nodes(below)


def _top(cursor: psycopg.Cursor[Any]) -> Mapping[str, Any]:
    row = cursor.fetchone()
    assert row is not None
    top: Mapping[str, Any] = row[0][0]["Plan"]
    return top


def _read(cursor: psycopg.Cursor[Any]) -> Planned:
    top = _top(cursor)
    return Planned(float(top["Total Cost"]), int(top["Plan Rows"]), int(top["Plan Rows"]) * int(top["Plan Width"]))
