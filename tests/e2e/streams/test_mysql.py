"""What only a binary log does: it is purged, reset, moved to another server, or read by file and offset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.sources import database_of
from tests.e2e.streams.targets import DeltaPlace, must_be_history, must_equal
from tests.e2e.streams.test_follow import wait_for
from tests.e2e.streams.test_tables import ONE, begun, execute, insert
from tests.services import mariadb

pytestmark = [pytest.mark.server, pytest.mark.full]
HISTORY = '  history: {from: "cdc:public.one", to: "lake:history", mode: scd2}\n'


@pytest.fixture
def server() -> Iterator[mariadb.Server]:
    """One whose log may be purged."""
    with mariadb.server() as started:
        yield started


def purge(url: str) -> None:
    """All files but a new one. A file that a reader has open stays, and the server notices its end with a delay."""
    execute(url, "FLUSH BINARY LOGS")
    ((newest, *_),) = database_of(url).run("SHOW MASTER STATUS")

    def is_purged() -> bool:
        execute(url, f"PURGE BINARY LOGS TO '{newest}'")
        return len(database_of(url).run("SHOW BINARY LOGS")) == 1

    wait_for(is_purged)


def must_be_repaired(flow: Flow, url: str, name: str = "cdc") -> None:
    flow.run("state", "resnapshot", "flow.yaml", name, "--yes", expect=0)
    flow.apply()
    insert(url, 90, ["one"])
    flow.apply()
    must_equal(url, DeltaPlace(flow.folder / "lake"), ["one"])


def test_a_stream_by_file_and_offset(tmp_path: Path, mysql_database: str) -> None:
    flow = begun(tmp_path, mysql_database, ONE + HISTORY, "position: file, batch: {rows: 2}")
    for number in range(2, 8):
        insert(mysql_database, number, ["one"])
        execute(mysql_database, f"UPDATE one SET value = 'again' WHERE id = {number - 1}", "FLUSH BINARY LOGS")
        if number % 2:
            flow.apply()
    lake = DeltaPlace(tmp_path / "lake")
    must_equal(mysql_database, lake, ["one"])
    must_be_history(mysql_database, lake, "one", "history", ["id"])
    flow.write(flow.spec.read_text().replace("position: file", "position: gtid"))
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "positions are of another kind now" in done.words
    must_be_repaired(flow, mysql_database)


@pytest.mark.parametrize("position", ["gtid", "file"])
def test_a_history_keeps_each_version_of_a_busy_second(position: str, tmp_path: Path, mysql_database: str) -> None:
    """One second with more than 1 MB of log, and a statement that had begun a second before."""
    flow = begun(tmp_path, mysql_database, HISTORY, f"position: {position}")
    texts = [str(number) * 60_000 for number in range(10)]
    for at, text in enumerate(texts):
        second = 2_000_000_000 - (at == 5)
        execute(mysql_database, f"SET timestamp = {second}; UPDATE one SET value = '{text}' WHERE id = 1")
    flow.apply()
    lake = DeltaPlace(tmp_path / "lake")
    versions = sorted((row["valid_from"], row["value"]) for row in lake.dicts("history", ["valid_from", "value"]))
    assert [value for _, value in versions][-len(texts) :] == texts
    must_be_history(mysql_database, lake, "one", "history", ["id"])


@pytest.mark.parametrize("position", ["gtid", "file"])
def test_the_server_has_purged_its_log(position: str, server: mariadb.Server, tmp_path: Path) -> None:
    url = server.url
    flow = begun(tmp_path, url, ONE, f"position: {position}")
    insert(url, 2, ["one"])
    flow.apply()
    purge(url)
    if position == "gtid":  # nothing is missing yet
        insert(url, 3, ["one"])
        flow.apply()
    insert(url, 4, ["one"])
    purge(url)
    insert(url, 5, ["one"])
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "the position is lost: the binary log begins at" in done.words and "it was purged" in done.words
    assert "flowctl state resnapshot flow.yaml cdc" in done.words
    must_be_repaired(flow, url)


def test_a_log_that_was_reset(server: mariadb.Server, tmp_path: Path) -> None:
    url = server.url
    flow = begun(tmp_path, url, ONE)
    for number in range(2, 6):
        insert(url, number, ["one"])
    flow.apply()
    server.administer("RESET MASTER")
    insert(url, 6, ["one"])
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "before what was captured" in done.words and "it was restored" in done.words
    must_be_repaired(flow, url)


def test_a_table_that_was_renamed_is_read_again(tmp_path: Path, mysql_database: str) -> None:
    flow = begun(tmp_path, mysql_database, ONE + HISTORY)
    execute(
        mysql_database,
        "CREATE TABLE new (id int PRIMARY KEY, value text); INSERT INTO new VALUES (7, 'seven')",
        "RENAME TABLE one TO former, new TO one",
    )
    insert(mysql_database, 8, ["one"])
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "was renamed, or its rows were replaced" in done.words
    assert "flowctl state resnapshot flow.yaml one" in done.words
    flow.run("state", "resnapshot", "flow.yaml", "history", "--yes", expect=0)
    must_be_repaired(flow, mysql_database, "one")
    must_be_history(mysql_database, DeltaPlace(tmp_path / "lake"), "one", "history", ["id"])


def test_a_statement_without_its_rows_stops_the_stream(tmp_path: Path, mysql_database: str) -> None:
    flow = begun(tmp_path, mysql_database, ONE)
    execute(mysql_database, "SET tx_isolation = 'REPEATABLE-READ', binlog_format = STATEMENT; DELETE FROM one")
    for _ in range(2):
        done = flow.run("apply", "flow.yaml", expect=6)
        assert "without the rows that it has changed" in done.words
        assert "flowctl state resnapshot" in done.words
    must_be_repaired(flow, mysql_database)


def test_another_server_of_the_topology_takes_over(server: mariadb.Server, tmp_path: Path) -> None:
    """Under the same address, with other files and its own server_id, and the same GTIDs."""
    url = server.url
    flow = begun(tmp_path, url, ONE)
    insert(url, 2, ["one"])
    flow.apply()
    settings = {"server-id": "2", "log-slave-updates": "1", "log-bin": "other", "slave-skip-errors": "1007,1396"}
    with mariadb.created() as made, made.started(settings) as replica:
        there = f"MASTER_HOST='127.0.0.1', MASTER_PORT={server.port}, MASTER_USER='{mariadb.USER}'"
        made.administer(
            f"RESET MASTER; SET GLOBAL gtid_slave_pos = ''; CHANGE MASTER TO {there},"
            f" MASTER_PASSWORD='{mariadb.PASSWORD}', MASTER_USE_GTID=slave_pos; START SLAVE"
        )
        insert(url, 3, ["one"])
        ((head,),) = database_of(url).run("SELECT @@gtid_binlog_pos")
        assert database_of(replica).run(f"SELECT MASTER_GTID_WAIT('{head}', 60)") == [(0,)]
        made.administer("STOP SLAVE")
        insert(replica, 4, ["one"])
        flow.write(flow.spec.read_text().replace(f":{server.port}/", f":{made.port}/"))
        flow.apply()
        must_equal(replica, DeltaPlace(tmp_path / "lake"), ["one"])
