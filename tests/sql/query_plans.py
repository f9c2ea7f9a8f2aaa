"""What SQLite makes of a statement: it has neither hash joins nor a second chance."""

from __future__ import annotations

import sqlite3
from collections import Counter


def assert_linear(database: sqlite3.Connection, statement: str) -> None:
    """No row is compared with each: nothing is run for every row, and of two tables one is looked up in an index."""
    steps = database.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    assert steps and not any("CORRELATED" in step for *_, step in steps), steps
    # Two scans below one step are a loop in a loop; what has an index is a SEARCH.
    scans = Counter(parent for _, parent, _, step in steps if step.startswith("SCAN"))
    assert max(scans.values()) == 1, steps
