"""Changes by their order in the source, in SQLite: whatever is sent again and however it is cut into batches, the table
is what the newest change of each key says, and a history has each change once."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql import scd2
from flowctl.sql.difference import SOURCE_ORDER, Upsert, apply_statements, difference
from flowctl.sql.observations import observations
from flowctl.sql.versioning import Versioning, kept_columns, observed_columns

MERGED = Upsert(
    target=("t",),
    batch=("s",),
    columns=("id", "name", "_deleted_at", SOURCE_ORDER),
    batch_columns=("id", "name", SOURCE_ORDER, "op"),
    key=("id",),
    compared=("name",),
    operation="op",
    deleted_at="2026-01-02T03:04:05Z",
    is_ordered=True,
)
TYPED = (
    Column("id", types.INT64),
    Column("name", types.STRING),
    Column("valid_from", types.INT64),
    Column(SOURCE_ORDER, types.STRING),
)
COLUMNS = ("id", "name", "valid_from", "valid_to", "is_current", "row_hash", SOURCE_ORDER)
BATCH_COLUMNS = ("id", "name", "valid_from", "row_hash", "op", "detected", SOURCE_ORDER)
KEPT = kept_columns(TYPED, ("id",), ("name",), BATCH_COLUMNS)


MERGING = (difference(MERGED, "sqlite"), *apply_statements(MERGED, ("changes",), "sqlite"))


@dataclass(frozen=True)
class Change:
    """``name`` None: a deletion."""

    order: str
    id: int
    name: str | None


@st.composite
def deliveries(draw: st.DrawFn) -> list[list[Change]]:
    """Batches of changes in the order of their source, but with parts that are sent again, more than once."""
    seen = draw(st.lists(st.tuples(st.integers(1, 2), st.sampled_from(["A", "B", None])), min_size=1, max_size=8))
    log = [Change(f"{at:03}", id, name) for at, (id, name) in enumerate(seen)]
    sent, at = [], 0
    while at < len(log):
        start = at - draw(st.integers(0, at))
        at = draw(st.integers(start + 1, len(log)))
        sent += log[start:at]
    cuts = sorted(draw(st.sets(st.integers(1, len(sent)), max_size=4)) | {len(sent)})
    return [sent[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]


def newest(changes: Iterable[Change]) -> dict[int, Change]:
    found: dict[int, Change] = {}
    for change in changes:
        if change.id not in found or change.order >= found[change.id].order:
            found[change.id] = change
    return found


@settings(deadline=None)
@given(deliveries())
def test_a_merge_ends_at_the_newest_change_of_each_key(batches: list[list[Change]]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        run = database.execute
        run("CREATE TABLE t (id, name, _deleted_at, _source_order)")
        run("CREATE TABLE s (id, name, _source_order, op)")
        sent: list[Change] = []
        for batch in batches:
            sent += batch
            run("DELETE FROM s")
            rows = [(one.id, one.name, one.order, "U" if one.name else "D") for one in newest(batch).values()]
            database.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", rows)
            run(f"CREATE TEMP TABLE changes AS {MERGING[0]}")
            for statement in MERGING[1:]:
                run(statement)
            run("DROP TABLE changes")
            found = run("SELECT id, _source_order, CASE WHEN _deleted_at IS NULL THEN name END FROM t ORDER BY 1")
            wanted = sorted((one.id, one.order, one.name) for one in newest(sent).values())
            assert found.fetchall() == wanted
            assert run(MERGING[0]).fetchall() == [], "what is applied again changes nothing"


@settings(deadline=None)
@given(deliveries(), st.booleans())
def test_a_history_has_each_change_once(batches: list[list[Change]], quick: bool) -> None:
    """Each message has a later time than all before it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        run = database.execute
        run("CREATE TABLE t (id, name, valid_from, valid_to, is_current, row_hash, _source_order)")
        run(f"CREATE TABLE o ({', '.join(column.name for column in observed_columns(TYPED, ('id',), KEPT))})")
        run("CREATE TABLE s (id, name, valid_from, row_hash, op, detected, _source_order)")
        first: dict[Change, int] = {}
        time = 0
        for number, batch in enumerate(batches, 1):
            rows, before = [], {}
            for change in batch:
                time += 1
                first.setdefault(change, time)
                if change.order > before.get(change.id, ""):  # as the batch is made
                    before[change.id] = change.order
                    op = "U" if change.name else "D"
                    rows.append((change.id, change.name, time, change.name, op, 0, change.order))
            apply_versions(database, rows, number, quick and number == 1)
            found = run("SELECT id, valid_from, valid_to, name FROM t ORDER BY 1, 2").fetchall()
            assert found == sorted(versions(first))


def versions(first: dict[Change, int]) -> list[tuple[int, int, int | None, str]]:
    """Of the changes at the times of their first messages."""
    found = []
    for id in {change.id for change in first}:
        steps: list[tuple[int, str | None]] = []
        for change, at in sorted(first.items(), key=lambda one: one[1]):
            if change.id == id and (not steps or steps[-1][1] != change.name):
                steps.append((at, change.name))
        ends: Sequence[int | None] = [*(at for at, _ in steps[1:]), None]
        found += [(id, at, end, name) for (at, name), end in zip(steps, ends, strict=True) if name is not None]
    return found


def apply_versions(
    database: sqlite3.Connection, rows: Sequence[tuple[object, ...]], number: int, *, is_first: bool
) -> None:
    run = database.execute
    run("DELETE FROM s")
    database.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    observe, *statements = versioning(number, is_first)
    for _ in range(2):  # read again under the same number, it adds nothing
        kept = run("SELECT count(*) FROM o").fetchone()
        run(observe)
        if is_first:
            break
    else:
        assert run("SELECT count(*) FROM o").fetchone() == kept
    for statement in statements:
        run(statement)
    run("DROP TABLE changes")


@functools.cache
def versioning(number: int, is_first: bool) -> tuple[str, ...]:
    change = Versioning(
        ("t",), ("s",), ("o",), COLUMNS, BATCH_COLUMNS, ("id",), number, "op", "detected",
        first=is_first, kept=KEPT, compared=("name",), order=next(one for one in KEPT if one.name == SOURCE_ORDER),
    )  # fmt: skip
    return (
        f"INSERT INTO o {observations(change, 'sqlite')}",
        f"CREATE TEMP TABLE changes AS {scd2.difference(change, 'sqlite')}",
        scd2.removal(change, ("changes",), "sqlite"),
        scd2.addition(change, ("changes",), "sqlite"),
    )
