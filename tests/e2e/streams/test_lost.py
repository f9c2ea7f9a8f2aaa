"""Positions from which a stream cannot go on: what it says, and that reading again repairs it."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.targets import DeltaPlace, must_equal
from tests.e2e.streams.test_tables import ONE, begun, execute, insert
from tests.services import postgres

pytestmark = pytest.mark.server
SLOT = "flowctl_shop_cdc"


def must_be_repaired(flow: Flow, url: str) -> None:
    flow.run("state", "resnapshot", "flow.yaml", "cdc", "--yes", expect=0)
    flow.apply()
    insert(url, 90, ["one"])
    flow.apply()
    must_equal(url, DeltaPlace(flow.folder / "lake"), ["one"])


def test_something_else_has_read_the_slot(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database, ONE)
    insert(postgres_database, 2, ["one"])
    execute(postgres_database, f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_flush_lsn())")
    for command in ("plan", "apply"):
        done = flow.run(command, "flow.yaml", expect=6)
        assert "the position is lost" in done.words and "flowctl state resnapshot flow.yaml cdc" in done.words
    must_be_repaired(flow, postgres_database)


@pytest.mark.full
def test_another_database_is_another_source(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database, ONE)
    server, _, name = postgres_database.rpartition("/")
    with postgres.database(f"{server}/postgres", f"{name}_other") as other:
        execute(other, "CREATE TABLE one (id int PRIMARY KEY, value text); INSERT INTO one VALUES (5, 'other')")
        flow.write(flow.spec.read_text().replace(f"/{name}", f"/{name}_other"))
        done = flow.run("apply", "flow.yaml", expect=6)
        assert "another" in done.words and "flowctl state resnapshot flow.yaml cdc" in done.words, done.words
        assert len(DeltaPlace(tmp_path / "lake").rows("one", ["id"])) == 1
        must_be_repaired(flow, other)
        execute(other, f"SELECT pg_drop_replication_slot('{SLOT}')")


@pytest.mark.full
def test_the_server_has_removed_its_log(tmp_path: Path) -> None:
    settings = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with postgres.cluster() as made, made.started(settings) as server, postgres.database(server, "shop") as url:
        flow = begun(tmp_path, url, ONE)
        execute(url, "CREATE TABLE bulk (value text)")
        with psycopg.connect(url, autocommit=True) as connection:
            until = time.monotonic() + 60
            query = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"
            while connection.execute(query, [SLOT]).fetchone() != ("lost",):
                assert time.monotonic() < until
                connection.execute("INSERT INTO bulk SELECT repeat('x', 1000) FROM generate_series(1, 40000)")
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("CHECKPOINT")
        insert(url, 2, ["one"])
        done = flow.run("apply", "flow.yaml", expect=6)
        assert "the server has removed its log (wal_status = lost)" in done.words
        must_be_repaired(flow, url)
        execute(url, f"SELECT pg_drop_replication_slot('{SLOT}')")
