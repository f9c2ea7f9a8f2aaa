"""Histories whose columns come and go: what is absent was not read, and is not null."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from flowctl.sql import scd2
from tests.sql.test_scd2 import BATCH_COLUMNS, COLUMNS, NEXT_ARRIVAL, Table, statements, unobserved, versioning


@dataclass
class Columned:
    """A table with a further compared column, which batches may lack."""

    database: sqlite3.Connection

    def write(self, at: int, state: str, city: str | None, **fields: Any) -> list[tuple[Any, ...]]:
        """One row; returns the versions. ``fields`` are those of the change."""
        run = self.database.execute
        arrival, *hashed = run(NEXT_ARRIVAL).fetchone()
        change = replace(
            versioning(arrival, 100 + arrival, first=arrival == 1),
            columns=(*COLUMNS, "city"),
            batch_columns=(*BATCH_COLUMNS, "city"),
            compared=("state", "city"),
        )
        run("DELETE FROM batch")
        row_hash = f"#{state}" + (f"+{city}" if city else "")
        run("INSERT INTO batch VALUES (1, 'x', ?, NULL, ?, ?, 'U', FALSE, ?)", (state, at, row_hash, city))
        change = scd2.after(replace(change, **fields), hashed)
        observe, differ, *apply = statements(change)
        run(observe)
        run(differ)
        assert run(unobserved(change)).fetchone() == (0,)
        for statement in apply:
            run(statement)
        run("DROP TABLE changes")
        return run("SELECT valid_from, valid_to, state, city FROM versions ORDER BY valid_from").fetchall()


@pytest.fixture
def columned() -> Iterator[Columned]:
    database = Table().database
    database.executescript("ALTER TABLE versions ADD COLUMN city TEXT; ALTER TABLE batch ADD COLUMN city TEXT")
    yield Columned(database)
    database.close()


def test_columns_that_come_and_go_change_no_version(columned: Columned) -> None:
    """A column that is gone is no observation of null, one that is new was not observed before."""
    write, database = columned.write, columned.database
    gone = {"batch_columns": BATCH_COLUMNS, "compared": ("state",)}
    assert write(1, "A", None, **gone) == [(1, None, "A", None)]
    assert write(1, "A", "x", new=("city",)) == [(1, None, "A", None)]  # a default
    assert write(1, "A", "x") == [(1, None, "A", None)]
    assert write(3, "A", "x") == [(1, 3, "A", None), (3, None, "A", "x")]
    assert write(1, "B", "x") == [(1, 3, "B", "x"), (3, None, "A", "x")]  # another row of that time
    assert write(3, "A", None) == [(1, 3, "B", "x"), (3, None, "A", None)]  # null, and not absent
    assert write(3, "A", "y")[-1] == (3, None, "A", "y")
    before = database.execute("SELECT * FROM versions ORDER BY valid_from").fetchall()
    for at in (3, 5, 5, 7):
        write(at, "A", None, **gone)
    assert database.execute("SELECT * FROM versions ORDER BY valid_from").fetchall() == before
    assert write(9, "C", None, **gone)[1:] == [(3, 9, "A", "y"), (9, None, "C", None)]
    assert write(11, "A", None, **gone)[-1] == (11, None, "A", "y")  # as a version of it had it last


def test_what_was_absent_is_not_taken_for_null_in_later_runs(columned: Columned) -> None:
    """Also where no run knows any more that the column was new, or that it was gone."""
    write = columned.write
    gone = {"batch_columns": BATCH_COLUMNS, "compared": ("state",)}
    write(1, "A", None, **gone)
    write(3, "B", "x")  # the first run with the column reads only what is newer
    assert write(1, "A", "x") == [(1, 3, "A", None), (3, None, "B", "x")]  # a full refresh, much later
    write(5, "C", None, **gone)
    assert write(5, "C", "x")[-1] == (5, None, "C", None)  # back
    assert write(5, "C", "x")[-1] == (5, None, "C", None)
    assert write(5, "C", "y")[-1] == (5, None, "C", "y")  # it was x
    write(7, "D", None)
    assert write(7, "D", "z")[-1] == (7, None, "D", "z")  # it was null
    write(7, "D", None, **gone)
    assert write(7, "D", "y")[-1] == (7, None, "D", "y")  # absent in between, and z before
