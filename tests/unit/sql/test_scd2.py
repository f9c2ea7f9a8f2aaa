"""The portable scd2 SELECT against the definition, in SQLite's own engine: many histories, and each named case."""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.sql import scd2
from tests.history import Batch, Observation, Version, histories, versions
from tests.unit.sql.query_plans import assert_linear

COLUMNS = ("id", "part", "state", "valid_from", "valid_to", "is_current", "row_hash")
BATCH_COLUMNS = ("id", "part", "state", "valid_from", "row_hash", "op", "detected")
NEXT_ARRIVAL = scd2.next_arrival(("observed",), "sqlite")


class Table:
    """One versions table with its sidecar in an SQLite of its own, written as a SQL target writes them; ``quick``:
    the first batch is told that it is the first."""

    def __init__(self, quick: bool = True) -> None:
        self.quick = quick
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.executescript(
            """
            CREATE TABLE versions (id INTEGER, part TEXT, state TEXT, valid_from INTEGER, valid_to INTEGER,
                                   is_current INTEGER, row_hash TEXT);
            CREATE TABLE observed (id INTEGER, part TEXT, _event_at INTEGER, row_hash TEXT, _deleted INTEGER,
                                   _detected INTEGER, _arrival INTEGER);
            CREATE TABLE batch (id INTEGER, part TEXT, state TEXT, valid_from INTEGER, row_hash TEXT, op TEXT,
                                detected INTEGER);
            """
        )

    def write(self, rows: Sequence[tuple[int, Observation]], now: int | None = None) -> int:
        """Commits one batch of (key, observation); returns how many versions were touched."""
        run = self.database.execute
        run("DELETE FROM batch")
        self.database.executemany(
            "INSERT INTO batch VALUES (?, 'x', ?, ?, ?, ?, ?)",
            [
                (key, seen.state, seen.at, seen.state and f"#{seen.state}", "U" if seen.state else "D", seen.detected)
                for key, seen in rows
            ],
        )
        arrival = run(NEXT_ARRIVAL).fetchone()[0]
        change = scd2.Versioning(
            ("versions",), ("batch",), ("observed",), COLUMNS, BATCH_COLUMNS, ("id", "part"), arrival, "op", "detected",
            None if now is None else str(now), first=self.quick and arrival == 1,
        )  # fmt: skip
        observe, differ, remove, add = statements(change)
        run("BEGIN")
        run(observe)
        run(differ)
        touched = run("SELECT count(*) FROM changes").fetchone()[0]
        run(remove)
        run(add)
        run("DROP TABLE changes")
        run("COMMIT")
        return int(touched)

    def versions(self, key: int = 1) -> list[Version]:
        rows = self.database.execute(
            "SELECT valid_from, valid_to, state, is_current, row_hash FROM versions WHERE id = ? ORDER BY valid_from",
            (key,),
        ).fetchall()
        for _, valid_to, state, is_current, row_hash in rows:
            assert bool(is_current) == (valid_to is None) and row_hash == f"#{state}"
        return [Version(*row[:3]) for row in rows]

    def observation_count(self) -> int:
        return int(self.database.execute("SELECT count(*) FROM observed").fetchone()[0])


@functools.cache
def statements(change: scd2.Versioning) -> tuple[str, str, str, str]:
    return (
        f"INSERT INTO observed {scd2.observations(change, 'sqlite')}",
        f"CREATE TEMP TABLE changes AS {scd2.difference(change, 'sqlite')}",
        scd2.removal(change, ("changes",), "sqlite"),
        scd2.addition(change, ("changes",), "sqlite"),
    )


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.database.close()


def write_all(table: Table, batches: Sequence[Batch], key: int = 1) -> None:
    for batch in batches:
        table.write([(key, seen) for seen in batch])


def row(at: int, state: str) -> Observation:
    return Observation(at, state)


def flagged(at: int) -> Observation:
    return Observation(at, None)


def missing(at: int) -> Observation:
    return Observation(at, None, detected=True)


@settings(max_examples=600, deadline=None)
@given(histories(), st.booleans())
def test_any_history_gives_the_table_of_the_definition(batches: list[Batch], quick: bool) -> None:
    table = Table(quick)
    for number, batch in enumerate(batches, 1):
        table.write([(1, seen) for seen in batch])
        found = table.versions()
        assert found == versions(batches[:number])
        assert all(
            one.valid_to is not None and one.valid_to <= next.valid_from for one, next in itertools.pairwise(found)
        )
        assert sum(version.valid_to is None for version in found) <= 1
    kept = table.observation_count()
    assert table.write([(1, seen) for seen in batches[-1]]) == 0
    if not any(seen.detected for seen in batches[-1]) or len(batches[-1]) == 1:
        assert table.observation_count() == kept
    table.database.close()


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.integers(1, 9), st.sampled_from("ABC"), min_size=1, max_size=9), st.data())
def test_any_split_and_order_gives_the_same_table(rows: dict[int, str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations([row(at, state) for at, state in rows.items()]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(shuffled)))) | {len(shuffled)})
    table = Table()
    write_all(table, [tuple(shuffled[start:end]) for start, end in zip([0, *cuts], cuts, strict=False)])
    assert table.versions() == versions([tuple(row(at, rows[at]) for at in sorted(rows))])
    table.database.close()


CASES: dict[str, tuple[list[Batch], list[Version]]] = {
    "new key": ([(row(1, "A"),)], [Version(1, None, "A")]),
    "changed": ([(row(1, "A"),), (row(2, "B"),)], [Version(1, 2, "A"), Version(2, None, "B")]),
    "unchanged": ([(row(1, "A"),), (row(2, "A"),)], [Version(1, None, "A")]),
    "changed back": (
        [(row(1, "A"),), (row(2, "B"),), (row(3, "A"),)],
        [Version(1, 2, "A"), Version(2, 3, "B"), Version(3, None, "A")],
    ),
    "several versions in one batch": (
        [(row(1, "A"), row(2, "B"), row(3, "C"))],
        [Version(1, 2, "A"), Version(2, 3, "B"), Version(3, None, "C")],
    ),
    "late row before the first": ([(row(5, "A"),), (row(2, "B"),)], [Version(2, 5, "B"), Version(5, None, "A")]),
    "late row before the first, equal to it": ([(row(5, "A"),), (row(2, "A"),)], [Version(2, None, "A")]),
    "late row between two": (
        [(row(1, "A"),), (row(5, "B"),), (row(3, "C"),)],
        [Version(1, 3, "A"), Version(3, 5, "C"), Version(5, None, "B")],
    ),
    "late row equal to its predecessor": (
        [(row(1, "A"),), (row(5, "B"),), (row(3, "A"),)],
        [Version(1, 5, "A"), Version(5, None, "B")],
    ),
    "late row equal to its successor": (
        [(row(1, "A"),), (row(5, "B"),), (row(3, "B"),)],
        [Version(1, 3, "A"), Version(3, None, "B")],
    ),
    "late row splits a run of equals": (
        [(row(1, "A"),), (row(5, "A"),), (row(3, "B"),)],
        [Version(1, 3, "A"), Version(3, 5, "B"), Version(5, None, "A")],
    ),
    "same event time, the later arrival wins": ([(row(1, "A"),), (row(1, "B"),)], [Version(1, None, "B")]),
    "same event time takes the start away from a run": (
        [(row(1, "A"), row(5, "A")), (row(1, "B"),)],
        [Version(1, 5, "B"), Version(5, None, "A")],
    ),
    "deleted by flag is closed at its event time": ([(row(1, "A"),), (flagged(4),)], [Version(1, 4, "A")]),
    "deleted by detection is closed at the detection": ([(row(1, "A"),), (missing(7),)], [Version(1, 7, "A")]),
    "a row read after a detected deletion cancels it": ([(row(5, "A"),), (missing(7),), (row(2, "B"),)],
        [Version(2, 5, "B"), Version(5, None, "A")]),
    "a row of the detection's own moment replaces it": ([(row(1, "A"),), (missing(7),), (row(7, "A"),)],
        [Version(1, None, "A")]),
    "re-appearing after a detected deletion leaves a gap": (
        [(row(1, "A"),), (missing(4),), (row(6, "A"),)], [Version(1, 4, "A"), Version(6, None, "A")]),
    "re-appearing after a flagged deletion leaves a gap": (
        [(row(1, "A"),), (flagged(4),), (row(6, "A"),)], [Version(1, 4, "A"), Version(6, None, "A")]),
    "a late row does not cancel a flagged deletion": (
        [(row(1, "A"),), (flagged(4),), (row(2, "B"),)], [Version(1, 2, "A"), Version(2, 4, "B")]),
    "deleted before it was ever seen": ([(flagged(4),), (row(2, "A"),)], [Version(2, 4, "A")]),
    "detected again after it was cancelled": (
        [(row(1, "A"),), (missing(7),), (row(1, "A"),), (missing(7),)], [Version(1, 7, "A")]),
}  # fmt: skip


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("batches, expected", CASES.values(), ids=CASES)
def test_named_case(quick: bool, batches: list[Batch], expected: list[Version]) -> None:
    table = Table(quick)
    assert versions(batches) == expected
    write_all(table, batches)
    assert table.versions() == expected
    table.database.close()


def test_only_what_changes_is_touched(table: Table) -> None:
    table.write([(key, row(1, "A")) for key in range(100)])
    assert table.write([(key, row(2, "B" if key == 7 else "A")) for key in range(100)]) == 2
    assert table.versions(7) == [Version(1, 2, "A"), Version(2, None, "B")]


def test_a_table_read_in_full_every_day_keeps_its_sidecar_small(table: Table) -> None:
    """``valid_from: now``: equal rows are not observed again, and still a change is seen."""
    for day in range(1, 6):
        table.write([(key, row(day, "A")) for key in range(10)], now=day)
    assert table.observation_count() == 10
    table.write([(key, row(6, "B")) for key in range(10)], now=6)
    assert table.versions(3) == [Version(1, 6, "A"), Version(6, None, "B")]


def test_columns_that_are_not_compared_come_from_the_row_of_the_version(table: Table) -> None:
    """A column the batch no longer has is null in new versions and stays in old ones."""
    table.write([(1, row(1, "A"))])
    change = scd2.Versioning(
        ("versions",), ("batch",), ("observed",), (*COLUMNS, "gone"), BATCH_COLUMNS, ("id", "part"), 2, "op", "detected"
    )
    table.database.execute("ALTER TABLE versions ADD COLUMN gone TEXT")
    table.database.execute("UPDATE versions SET gone = 'kept'")
    table.database.execute("UPDATE batch SET valid_from = 3, state = 'B', row_hash = '#B'")
    table.database.execute(f"INSERT INTO observed {scd2.observations(change, 'sqlite')}")
    rows = table.database.execute(scd2.difference(change, "sqlite")).fetchall()
    assert sorted((state, gone) for _, _, state, _, _, _, _, gone, _ in rows) == [("A", "kept"), ("B", None)]


def test_sqlite_runs_nothing_for_every_row(table: Table) -> None:
    """20,000 rows of 20,000 took three quarters of a minute, and four times as many sixteen times as long."""
    table.write([(key, row(1, "A")) for key in range(100)])
    for first in (False, True):
        change = scd2.Versioning(
            ("versions",), ("batch",), ("observed",), COLUMNS, BATCH_COLUMNS, ("id", "part"), 2, "op", "detected", "7",
            first,
        )  # fmt: skip
        observe, differ, remove, add = statements(change)
        plans = [differ.removeprefix("CREATE TEMP TABLE changes AS "), observe]
        table.database.execute(f"CREATE TEMP TABLE IF NOT EXISTS changes AS {plans[0]}")
        for statement in (*plans, remove, add):
            assert_linear(table.database, statement)


def test_columns_may_have_any_name(table: Table) -> None:
    """Names of our own within the statements begin with ``_flowctl_``."""
    database = table.database
    database.executescript(
        """
        DROP TABLE versions; DROP TABLE observed; DROP TABLE batch;
        CREATE TABLE versions (_place, _state, _before, valid_from, valid_to, is_current, row_hash);
        CREATE TABLE observed (_place, _event_at, row_hash, _deleted, _detected, _arrival);
        CREATE TABLE batch (_place, _state, _before, valid_from, row_hash, op, detected);
        """
    )
    columns = ("_place", "_state", "_before", *COLUMNS[-4:])
    batch_columns = ("_place", "_state", "_before", *BATCH_COLUMNS[-4:])
    for arrival, state in enumerate("AB", 1):
        database.execute("DELETE FROM batch")
        database.execute(f"INSERT INTO batch VALUES (1, '{state}', 'x', {arrival}, '#{state}', 'U', FALSE)")
        change = scd2.Versioning(
            ("versions",), ("batch",), ("observed",), columns, batch_columns, ("_place",), arrival, "op", "detected",
            first=arrival == 1,
        )  # fmt: skip
        for statement in statements(change):
            database.execute(statement)
        database.execute("DROP TABLE changes")
    found = database.execute("SELECT _place, _state, _before, valid_from, valid_to FROM versions ORDER BY valid_from")
    assert found.fetchall() == [(1, "A", "x", 1, 2), (1, "B", "x", 2, None)]
