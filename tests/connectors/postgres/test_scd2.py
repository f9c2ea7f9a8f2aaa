"""The portable scd2 SELECT in PostgreSQL's own engine: many random histories, each a key of its own."""

from __future__ import annotations

import datetime as dt

import psycopg
import pytest

from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.postgres.target import CHANGE_SETTINGS
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql import dialects, scd2
from flowctl.sql.observations import observations
from flowctl.sql.versioning import Versioning, kept_columns, observed_columns
from tests.sql.history import Observation, Version, moment_of, random_histories, versions
from tests.sql.test_scd2 import BATCH_COLUMNS, CASES, COLUMNS, COMPARED, KEY, TYPED, plain

OF_TIME = (*TYPED[:-1], Column("valid_from", types.TIMESTAMP))
KEPT = kept_columns(OF_TIME, KEY, COMPARED, BATCH_COLUMNS)
TABLES = f"""
    CREATE TABLE versions (id bigint, part text, state text, note text, valid_from timestamptz, valid_to timestamptz,
                           is_current boolean, row_hash text);
    CREATE TABLE observed ({POSTGRES.listed(observed_columns(OF_TIME, KEY, KEPT))});
    CREATE TABLE batch (id bigint, part text, state text, note text, valid_from timestamptz, row_hash text, op text,
                        detected boolean);
"""


def day(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, number, tzinfo=dt.UTC)


def versioning(arrival: int, now: int = 1, *, first: bool) -> Versioning:
    return Versioning(
        ("public", "versions"), ("batch",), ("observed",), COLUMNS, BATCH_COLUMNS, KEY, arrival, "op", "detected",
        dialects.moment(day(now).isoformat(), "postgres"), first, KEPT, COMPARED,
    )  # fmt: skip


def write(connection: psycopg.Connection, rows: list[tuple[int, Observation]], now: int, *, first: bool) -> None:
    run = connection.execute
    run("TRUNCATE batch")
    connection.cursor().executemany(
        "INSERT INTO batch VALUES (%s, 'x', %s, %s, %s, %s, %s, %s)",
        [
            (
                key,
                seen.state,
                seen.note,
                day(seen.at),
                seen.state and f"#{seen.state}",
                "U" if seen.state else "D",
                seen.detected,
            )
            for key, seen in rows
        ],
    )
    (arrival, *hashed) = run(scd2.next_arrival(("observed",), "postgres")).fetchone() or (0,)
    change = scd2.after(versioning(arrival, now, first=first), hashed)
    run(f"INSERT INTO observed {observations(change, 'postgres')}")
    run(f"CREATE TEMP TABLE changes AS {scd2.difference(change, 'postgres')}")
    assert run(scd2.unobserved(change, ("changes",), "postgres")).fetchone() == (0,)
    run(scd2.removal(change, ("changes",), "postgres"))
    run(scd2.addition(change, ("changes",), "postgres"))
    run("DROP TABLE changes")


@pytest.mark.parametrize("quick", [False, True])
def test_random_histories_and_every_named_case(postgres_database: str, quick: bool) -> None:
    cases = [plain(rows) for rows, _ in CASES.values()]
    histories = dict(enumerate([*cases, *random_histories(600, seed=5)]))
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(TABLES)
        for number in range(max(map(len, histories.values()))):
            step = {key: batches[number] for key, batches in histories.items() if number < len(batches)}
            rows = [(key, seen) for key, batch in step.items() for seen in batch.rows]
            write(connection, rows, moment_of(number), first=quick and number == 0)
        found_rows = connection.execute(
            "SELECT id, extract(day FROM valid_from)::int, extract(day FROM valid_to)::int, state, note, is_current,"
            " row_hash FROM versions ORDER BY id, valid_from"
        ).fetchall()
    found: dict[int, list[Version]] = {key: [] for key in histories}
    for key, valid_from, valid_to, state, note, is_current, row_hash in found_rows:
        assert is_current == (valid_to is None) and row_hash == f"#{state}"
        found[key].append(Version(valid_from, valid_to, state, note))
    assert found == {key: versions(batches) for key, batches in histories.items()}


@pytest.mark.parametrize("known", [False, True], ids=["without statistics", "with statistics"])
def test_no_row_is_compared_with_each(postgres_database: str, known: bool) -> None:
    """300,000 rows took minutes when PostgreSQL expected a few hundred."""
    with psycopg.connect(postgres_database) as connection:
        connection.execute(TABLES)
        connection.execute(
            "INSERT INTO batch SELECT n, 'x', n::text, 'y', now(), md5(n::text), 'U', false"
            " FROM generate_series(1, 3000) n;"
            "INSERT INTO observed SELECT id, part, valid_from, row_hash, false, false, 1, valid_from FROM batch"
        )
        for setting in CHANGE_SETTINGS:
            connection.execute(f"SET LOCAL {setting}")
        if known:
            connection.execute("ANALYZE batch; ANALYZE observed")
        change = versioning(1, first=False)
        connection.execute(f"CREATE TEMP TABLE changes AS {scd2.difference(change, 'postgres')}")
        connection.execute(f"CREATE TEMP TABLE there AS {scd2.standing(change, ('changes',), 'postgres')}")
        statements = [
            observations(change, "postgres"),
            scd2.difference(change, "postgres"),
            scd2.unobserved(change, ("changes",), "postgres"),
            scd2.removal(change, ("changes",), "postgres"),
            scd2.standing(change, ("changes",), "postgres"),
            *scd2.applied_in_place(change, ("changes",), ("there",), "postgres"),
        ]
        for statement in statements:
            steps = "\n".join(step for (step,) in connection.execute(f"EXPLAIN {statement}").fetchall())
            assert "Nested Loop" not in steps and "Unique" not in steps, steps
            assert "SubPlan" not in steps.replace("hashed SubPlan", ""), steps
