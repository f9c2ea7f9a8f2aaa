"""Transactions of every kind: prepared, spilled, rolled back, of other origins, with clocks that were set back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import psycopg
import pytest

from tests.e2e.streams.targets import DeltaPlace, logged, must_be_history, must_equal
from tests.e2e.streams.test_tables import ONE, begun, execute, insert

pytestmark = pytest.mark.server
LOG = '  log: {from: "cdc:public.one", to: "lake:log", mode: append}\n'
HISTORY = '  history: {from: "cdc:public.one", to: "lake:history", mode: scd2}\n'


@pytest.mark.full
def test_a_prepared_transaction_counts_once_it_has_committed(tmp_path: Path, postgres_database: str) -> None:
    flow, lake = begun(tmp_path, postgres_database, ONE + LOG), DeltaPlace(tmp_path / "lake")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        for number in (10, 11):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO one VALUES (%s, 'prepared')", [number])
            connection.execute(f"PREPARE TRANSACTION 'number {number}'".encode())
        try:
            insert(postgres_database, 12, ["one"])
            flow.apply()
            assert logged(lake, "log", ["_op", "id"]) == [("I", 12)]
        finally:
            connection.execute("ROLLBACK PREPARED 'number 11'")
            connection.execute("COMMIT PREPARED 'number 10'")
    insert(postgres_database, 13, ["one"])
    flow.apply()
    assert logged(lake, "log", ["_op", "id"]) == [("I", 12), ("I", 10), ("I", 13)]
    must_equal(postgres_database, lake, ["one"])


@pytest.mark.full
def test_transactions_larger_than_the_servers_memory(tmp_path: Path, postgres_database: str) -> None:
    """Two of them at a time, one with a part that was rolled back; a third is rolled back as a whole."""
    flow = begun(tmp_path, postgres_database, ONE)
    name = postgres_database.rpartition("/")[2]
    execute(postgres_database, f"ALTER DATABASE \"{name}\" SET logical_decoding_work_mem = '64kB'")
    many = "INSERT INTO one SELECT n, 'row ' || n FROM generate_series(%s::int, %s::int) n"
    connections = [psycopg.connect(postgres_database) for _ in range(3)]
    first, second, third = connections
    for start in range(100_000, 200_000, 20_000):
        first.execute(many, [start, start + 19_999])
        second.execute(many, [start + 200_000, start + 209_999])
        third.execute(many, [start + 400_000, start + 409_999])
    first.execute("SAVEPOINT here")
    first.execute("UPDATE one SET value = 'never' WHERE id < 150000")
    first.execute("ROLLBACK TO SAVEPOINT here")
    first.execute("UPDATE one SET value = 'again' WHERE id % 10 = 0")
    second.commit()
    third.rollback()
    first.commit()
    for connection in connections:
        connection.close()
    insert(postgres_database, 2, ["one"])
    flow.apply()
    must_equal(postgres_database, DeltaPlace(tmp_path / "lake"), ["one"])
    with psycopg.connect(postgres_database) as connection:
        query = "SELECT spill_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = 'flowctl_shop_cdc'"
        assert connection.execute(query).fetchone() == (True,)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["merge", "append", "scd2"])
def test_a_transaction_that_is_folded_in_parts(mode: str, tmp_path: Path, postgres_database: str) -> None:
    """Of more changes than this process decodes at the same time; keys change, and a TRUNCATE is among them."""
    execute(postgres_database, "CREATE TABLE many (id int PRIMARY KEY, value int)")
    many = f'  many: {{from: "cdc:public.many", to: "lake:many", mode: {mode}}}\n'
    flow = begun(tmp_path, postgres_database, ONE + many)
    execute(postgres_database, "INSERT INTO many SELECT n, 0 FROM generate_series(1, 1000) n")
    flow.apply()
    with psycopg.connect(postgres_database) as connection:
        connection.execute("UPDATE many SET value = 1 WHERE id < 500")
        connection.execute("TRUNCATE many")
        connection.execute("INSERT INTO many SELECT n, n FROM generate_series(1, 700000) n")
        connection.execute("UPDATE many SET value = -n FROM generate_series(1, 700000, 2) n WHERE id = n")
        connection.execute("UPDATE many SET id = -id WHERE id <= 2000")
        connection.execute("DELETE FROM many WHERE id % 1000 = 7")
    execute(postgres_database, "UPDATE many SET value = value WHERE id = 5000")
    flow.apply()
    sums = "SELECT count(*) AS n, sum(id) AS ids, sum(value) AS total, sum(cast(id AS bigint) * value) AS both FROM"
    where = "WHERE is_current" if mode == "scd2" else ""
    (found,) = DeltaPlace(tmp_path / "lake").query("many", f"{sums} t {where}")
    with psycopg.connect(postgres_database) as connection:
        ((count, *expected),) = connection.execute(f"{sums} many".encode()).fetchall()
    if mode == "append":
        assert found["n"] == 1000 + 499 + 1 + 700_000 + 350_000 + 2000 + 698 + 1
    else:
        assert list(found.values()) == [count, *map(int, expected)]


def test_transactions_from_elsewhere_with_clocks_of_their_own(tmp_path: Path, postgres_database: str) -> None:
    """A server that replicates another one commits with that one's time, which may be long ago."""
    flow = begun(tmp_path, postgres_database, ONE + LOG + HISTORY)
    execute(postgres_database, "UPDATE one SET value = 'here' WHERE id = 1")
    flow.apply()
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("SELECT pg_replication_origin_create('elsewhere')")
        try:
            connection.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
            connection.execute("BEGIN")
            connection.execute("SELECT pg_replication_origin_xact_setup('0/1', '2020-01-01T00:00:00Z')")
            connection.execute("UPDATE one SET value = 'elsewhere' WHERE id = 1")
            connection.execute("INSERT INTO one VALUES (7, 'elsewhere')")
            connection.execute("COMMIT")
            connection.execute("SELECT pg_replication_origin_session_reset()")
        finally:
            connection.execute("SELECT pg_replication_origin_drop('elsewhere')")
    insert(postgres_database, 8, ["one"])
    flow.apply()
    lake, then = DeltaPlace(tmp_path / "lake"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    must_equal(postgres_database, lake, ["one"])
    assert [(op, id, at == then) for op, id, at in logged(lake, "log", ["_op", "id", "_committed_at"])] == [
        ("U", 1, False),
        ("U", 1, True),
        ("I", 7, True),
        ("I", 8, False),
    ]
    must_be_history(postgres_database, lake, "one", "history", ["id"])
