"""The portable scd2 SELECT against the definition, in SQLite's own engine: many histories, and each named case."""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.sqlite.types import declared
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql import scd2
from flowctl.sql.observations import observations
from flowctl.sql.versioning import Versioning, kept_columns, observed_columns
from tests.examples import examples
from tests.sql.history import Batch, Observation, Version, histories, plain, versions
from tests.sql.query_plans import assert_linear

TYPED = (
    Column("id", types.INT64),
    Column("part", types.STRING),
    Column("state", types.STRING),
    Column("note", types.STRING),
    Column("valid_from", types.INT64),
)
COLUMNS = ("id", "part", "state", "note", "valid_from", "valid_to", "is_current", "row_hash")
BATCH_COLUMNS = ("id", "part", "state", "note", "valid_from", "row_hash", "op", "detected")
KEY, COMPARED = ("id", "part"), ("state",)
KEPT = kept_columns(TYPED, KEY, COMPARED, BATCH_COLUMNS)
NEXT_ARRIVAL = scd2.next_arrival(("observed",), "sqlite")
OBSERVED = ", ".join(f'"{column.name}" {declared(column.type)}' for column in observed_columns(TYPED, KEY, KEPT))


class Table:
    """One versions table with its sidecar in an SQLite of its own, written as a SQL target writes them; ``quick``:
    the first batch is told that it is the first."""

    def __init__(self, quick: bool = True) -> None:
        self.quick = quick
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.executescript(
            f"""
            CREATE TABLE versions (id INTEGER, part TEXT, state TEXT, note TEXT, valid_from INTEGER, valid_to INTEGER,
                                   is_current INTEGER, row_hash TEXT);
            CREATE TABLE observed ({OBSERVED});
            CREATE TABLE batch (id INTEGER, part TEXT, state TEXT, note TEXT, valid_from INTEGER, row_hash TEXT,
                                op TEXT, detected INTEGER);
            """
        )

    def write(self, rows: Sequence[tuple[int, Observation]], now: int | None = None) -> int:
        """Commits one batch of (key, observation); returns how many versions were touched."""
        run = self.database.execute
        run("DELETE FROM batch")
        self.database.executemany(
            "INSERT INTO batch VALUES (?, 'x', ?, ?, ?, ?, ?, ?)",
            [
                (
                    key,
                    seen.state,
                    seen.note,
                    seen.at,
                    seen.state and f"#{seen.state}",
                    "U" if seen.state else "D",
                    seen.detected,
                )
                for key, seen in rows
            ],
        )
        arrival, *hashed = run(NEXT_ARRIVAL).fetchone()
        change = scd2.after(versioning(arrival, now, first=self.quick and arrival == 1), hashed)
        observe, differ, remove, add = statements(change)
        run("BEGIN")
        run(observe)
        run(differ)
        touched = run("SELECT count(*) FROM changes").fetchone()[0]
        assert run(unobserved(change)).fetchone() == (0,), "what goes was observed once"
        run(remove)
        run(add)
        run("DROP TABLE changes")
        run("COMMIT")
        return int(touched)

    def versions(self, key: int = 1) -> list[Version]:
        rows = self.database.execute(
            "SELECT valid_from, valid_to, state, note, is_current, row_hash FROM versions WHERE id = ?"
            " ORDER BY valid_from",
            (key,),
        ).fetchall()
        for _, valid_to, state, _, is_current, row_hash in rows:
            assert bool(is_current) == (valid_to is None) and row_hash == f"#{state}"
        return [Version(*row[:4]) for row in rows]

    def observation_count(self) -> int:
        return int(self.database.execute("SELECT count(*) FROM observed").fetchone()[0])


def versioning(arrival: int, now: int | None = None, *, first: bool = False) -> Versioning:
    return Versioning(
        ("versions",), ("batch",), ("observed",), COLUMNS, BATCH_COLUMNS, KEY, arrival, "op", "detected",
        None if now is None else str(now), first, KEPT, COMPARED,
    )  # fmt: skip


@functools.cache
def unobserved(change: Versioning) -> str:
    return scd2.unobserved(change, ("changes",), "sqlite")


@functools.cache
def statements(change: Versioning) -> tuple[str, str, str, str]:
    return (
        f"INSERT INTO observed {observations(change, 'sqlite')}",
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
        table.write([(key, seen) for seen in batch.rows], batch.moment)


def row(at: int, state: str, note: str | None = None) -> Observation:
    return Observation(at, state, note=note)


def flagged(at: int) -> Observation:
    return Observation(at, None)


def missing(at: int) -> Observation:
    return Observation(at, None, detected=True)


@settings(max_examples=examples(30), deadline=None)
@given(histories(), st.booleans())
def test_any_history_gives_the_table_of_the_definition(batches: list[Batch], quick: bool) -> None:
    table = Table(quick)
    for number, batch in enumerate(batches, 1):
        table.write([(1, seen) for seen in batch.rows], batch.moment)
        found = table.versions()
        assert found == versions(batches[:number])
        assert all(
            one.valid_to is not None and one.valid_to <= next.valid_from for one, next in itertools.pairwise(found)
        )
        assert sum(version.valid_to is None for version in found) <= 1
    kept, last = table.observation_count(), batches[-1]
    assert table.write([(1, seen) for seen in last.rows], last.moment) == 0
    assert table.observation_count() == kept
    table.database.close()


@settings(max_examples=examples(15), deadline=None)
@given(
    st.dictionaries(st.integers(1, 9), st.tuples(st.sampled_from(["A", "B", "C", None]), st.text("xy", max_size=1))),
    st.data(),
)
def test_any_split_and_order_gives_the_same_table(rows: dict[int, tuple[str | None, str]], data: st.DataObject) -> None:
    """Deletions that the source reports at their own event time too, and columns that are not compared."""
    made = [Observation(at, state, note=note if state else None) for at, (state, note) in sorted(rows.items())]
    shuffled = data.draw(st.permutations(made))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(shuffled)))) | {len(shuffled)})
    table = Table()
    write_all(table, plain([shuffled[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]))
    assert table.versions() == versions(plain([made]))
    table.database.close()


CASES: dict[str, tuple[list[tuple[Observation, ...]], list[Version]]] = {
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
    "re-appearing after a flagged deletion leaves a gap": (
        [(row(1, "A"),), (flagged(4),), (row(6, "A"),)], [Version(1, 4, "A"), Version(6, None, "A")]),
    "a late row does not cancel a flagged deletion": (
        [(row(1, "A"),), (flagged(4),), (row(2, "B"),)], [Version(1, 2, "A"), Version(2, 4, "B")]),
    "deleted before it was ever seen": ([(flagged(4),), (row(2, "A"),)], [Version(2, 4, "A")]),
    "a version has the row that it begins with": (
        [(row(1, "A", "first"),), (row(5, "A", "touched"),), (row(3, "B", "late"),)],
        [Version(1, 3, "A", "first"), Version(3, 5, "B", "late"), Version(5, None, "A", "touched")]),
    "a version that an equal late row moves has the row of its new beginning": (
        [(row(5, "A", "first"),), (row(2, "A", "late"),)], [Version(2, None, "A", "late")]),
    "a version that begins again later has the row of then": (
        [(row(5, "A", "five"),), (row(3, "A", "three"),), (row(4, "B"),)],
        [Version(3, 4, "A", "three"), Version(4, 5, "B"), Version(5, None, "A", "five")]),
}  # fmt: skip
#: The same with the moment at which each batch is read.
TIMED_CASES: dict[str, tuple[list[tuple[int, Observation]], list[Version]]] = {
    "deleted by detection is closed at the detection": ([(2, row(1, "A")), (7, missing(7))], [Version(1, 7, "A")]),
    "re-appearing after a detected deletion leaves a gap": (
        [(2, row(1, "A")), (4, missing(4)), (7, row(6, "A"))], [Version(1, 4, "A"), Version(6, None, "A")]),
    "a key that is back with its old event time leaves a gap": (
        [(2, row(1, "A")), (7, missing(7)), (9, row(1, "A"))], [Version(1, 7, "A"), Version(9, None, "A")]),
    "a key that is back with an older row leaves a gap": (
        [(6, row(5, "A")), (7, missing(7)), (9, row(2, "B"))],
        [Version(2, 5, "B"), Version(5, 7, "A"), Version(9, None, "B")][1:]),
    "a key that is back is read again": (
        [(2, row(1, "A")), (7, missing(7)), (9, row(1, "A")), (11, row(1, "A"))],
        [Version(1, 7, "A"), Version(9, None, "A")]),
    "a key that is back is deleted again": (
        [(2, row(1, "A")), (7, missing(7)), (9, row(1, "A")), (12, missing(12))],
        [Version(1, 7, "A"), Version(9, 12, "A")]),
    "a key that is back changes before its return was seen": (
        [(2, row(1, "A")), (7, missing(7)), (9, row(1, "A")), (11, row(8, "B"))],
        [Version(1, 7, "A"), Version(9, 11, "A"), Version(11, None, "B")]),
    "a row of the detection's own moment replaces it": (
        [(2, row(1, "A")), (7, missing(7)), (7, row(7, "A"))], [Version(1, None, "A")]),
    "an event time ahead of the detection: it was never valid": (
        [(2, row(20, "A")), (7, missing(7))], []),
    "an event time ahead of the detection, observed once": (
        [(2, row(1, "A")), (3, row(20, "B")), (7, missing(7)), (8, missing(8))],
        [Version(1, 20, "A")]),
    "deleted at its own event time by a later batch: as in one batch": (
        [(2, row(1, "A")), (3, row(5, "B")), (4, flagged(5)), (9, row(9, "C"))],
        [Version(1, 5, "A"), Version(9, None, "C")]),
    "an event time ahead of the detection, back before it": (
        [(2, row(20, "A")), (7, missing(7)), (9, row(20, "A"))], [Version(20, None, "A")]),
    "flagged without a newer event time is closed at the detection": (
        [(2, row(1, "A")), (7, flagged(1))], [Version(1, 7, "A")]),
    "flagged without a newer event time, read again": (
        [(2, row(1, "A")), (7, flagged(1)), (9, flagged(1))], [Version(1, 7, "A")]),
    "a flag taken back without a newer event time leaves a gap": (
        [(2, row(1, "A")), (7, flagged(1)), (9, row(1, "A"))], [Version(1, 7, "A"), Version(9, None, "A")]),
    "flagged after it was back": (
        [(2, row(1, "A")), (7, missing(7)), (9, row(1, "A")), (11, flagged(8))],
        [Version(1, 7, "A"), Version(9, 11, "A")]),
    "a restored key has the row that was restored": (
        [(2, row(1, "A", "old")), (7, missing(7)), (9, row(1, "A", "new"))],
        [Version(1, 7, "A", "old"), Version(9, None, "A", "new")]),
}  # fmt: skip
TIMED = {name: [Batch(moment, (seen,)) for moment, seen in rows] for name, (rows, _) in TIMED_CASES.items()}
#: Batches and versions of all cases, by name.
ALL_CASES = {
    **{name: (plain(rows), expected) for name, (rows, expected) in CASES.items()},
    **{name: (batches, TIMED_CASES[name][1]) for name, batches in TIMED.items()},
}


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("batches, expected", ALL_CASES.values(), ids=ALL_CASES)
def test_named_case(quick: bool, batches: list[Batch], expected: list[Version]) -> None:
    table = Table(quick)
    assert versions(batches) == expected
    write_all(table, batches)
    assert table.versions() == expected
    table.database.close()


def test_observations_of_an_older_version_count_as_they_did(table: Table) -> None:
    """They say neither when they take effect nor what the columns held that are not compared; a row cancels the
    detected deletions that it follows."""
    write_all(table, [Batch(2, (row(1, "A", "first"),)), Batch(7, (missing(7),))])
    table.database.execute(
        "INSERT INTO observed SELECT id, part, _event_at, row_hash, _deleted, _detected, 3, NULL, NULL, NULL, NULL,"
        " NULL FROM observed WHERE NOT _deleted"
    )
    table.database.execute(
        f"UPDATE observed SET _effective_at = NULL, _values = NULL, _hashed = NULL, {KEPT[0].place} = NULL"
    )
    write_all(table, [Batch(11, (row(10, "B", "new"),)), Batch(12, (row(5, "A", "touched"),))])
    assert table.versions() == [Version(1, 10, "A", "first"), Version(10, None, "B", "new")]
    write_all(table, [Batch(14, (missing(14),)), Batch(16, (row(10, "B", "back"),))])
    assert table.versions()[1:] == [Version(10, 14, "B", "new"), Version(16, None, "B", "back")]


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


def test_sqlite_runs_nothing_for_every_row(table: Table) -> None:
    """20,000 rows of 20,000 took three quarters of a minute, and four times as many sixteen times as long."""
    table.write([(key, row(1, "A")) for key in range(100)])
    for first in (False, True):
        change = versioning(2, 7, first=first)
        observe, differ, remove, add = statements(change)
        plans = [differ.removeprefix("CREATE TEMP TABLE changes AS "), observe]
        table.database.execute(f"CREATE TEMP TABLE IF NOT EXISTS changes AS {plans[0]}")
        there = scd2.standing(change, ("changes",), "sqlite")
        table.database.execute(f"CREATE TEMP TABLE IF NOT EXISTS there AS {there}")
        in_place = scd2.applied_in_place(change, ("changes",), ("there",), "sqlite")
        for statement in (*plans, unobserved(change), remove, add, there, *in_place):
            assert_linear(table.database, statement)


def test_columns_may_have_any_name(table: Table) -> None:
    """Names of our own within the statements begin with ``_flowctl_``."""
    database = table.database
    typed = tuple(Column(name, types.STRING) for name in ("_place", "_state", "_values", "_deleted", "valid_from"))
    columns = ("_place", "_state", "_values", "_deleted", *COLUMNS[-4:])
    batch_columns = ("_place", "_state", "_values", "_deleted", *BATCH_COLUMNS[-4:])
    kept = kept_columns(typed, ("_place",), ("_state",), batch_columns)
    observed = ", ".join(f'"{column.name}"' for column in observed_columns(typed, ("_place",), kept))
    database.executescript(
        f"""
        DROP TABLE versions; DROP TABLE observed; DROP TABLE batch;
        CREATE TABLE versions (_place, _state, _values, _deleted, valid_from, valid_to, is_current, row_hash);
        CREATE TABLE observed ({observed});
        CREATE TABLE batch (_place, _state, _values, _deleted, valid_from, row_hash, op, detected);
        """
    )
    for arrival, state in enumerate("AB", 1):
        database.execute("DELETE FROM batch")
        database.execute(f"INSERT INTO batch VALUES (1, '{state}', 'x', 'd', {arrival}, '#{state}', 'U', FALSE)")
        change = Versioning(
            ("versions",), ("batch",), ("observed",), columns, batch_columns, ("_place",), arrival, "op", "detected",
            first=arrival == 1, kept=kept, compared=("_state",),
        )  # fmt: skip
        for statement in statements(change):
            database.execute(statement)
        database.execute("DROP TABLE changes")
    found = database.execute(
        "SELECT _place, _state, _values, _deleted, valid_from, valid_to FROM versions ORDER BY valid_from"
    )
    assert found.fetchall() == [(1, "A", "x", "d", 1, 2), (1, "B", "x", "d", 2, None)]
