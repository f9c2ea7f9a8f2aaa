"""What a stream needs of the server and of its tables: each problem is named with the statement that repairs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flowctl.connectors.mysql.changes.names import server_id_of
from flowctl.model.table_info import ObjectName
from tests.connectors.captured import STREAM
from tests.connectors.mysql.changes.streaming import Captured
from tests.connectors.mysql.changes.test_capture import setting
from tests.connectors.mysql.conftest import Script
from tests.services import mariadb

ONE = ObjectName(("one",))


def problems(url: str, folder: Path, *objects: ObjectName) -> list[tuple[str, str]]:
    captured = Captured(url, folder, objects)
    info = captured.source.describe_stream(captured.stream, objects)
    return [(one.what, one.repair) for one in info.problems]


@pytest.mark.parametrize(
    ("name", "value", "what", "repair"),
    [
        ("binlog_format", "'MIXED'", "binlog_format is MIXED", "SET GLOBAL binlog_format = ROW"),
        ("binlog_row_image", "'MINIMAL'", "binlog_row_image is MINIMAL", "SET GLOBAL binlog_row_image = FULL"),
        ("binlog_row_metadata", "'NO_LOG'", "binlog_row_metadata is NO_LOG", "SET GLOBAL binlog_row_metadata = FULL"),
    ],
)
def test_settings_that_lose_something_are_named(
    name: str, value: str, what: str, repair: str, mysql_database: str, script: Script, tmp_path: Path
) -> None:
    assert problems(mysql_database, tmp_path) == []
    with setting(script, name, value):
        ((found, statement),) = problems(mysql_database, tmp_path)
    assert what in found and statement.startswith(repair)


def test_missing_rights_are_named(mysql_database: str, script: Script, tmp_path: Path) -> None:
    name = mysql_database.rpartition("/")[2]
    script("CREATE TABLE one (id int PRIMARY KEY)")
    script(f"CREATE USER reader@127.0.0.1 IDENTIFIED BY 'r-secret'; GRANT SELECT ON \"{name}\".* TO reader@127.0.0.1")
    try:
        url = mysql_database.replace("etl:my-etl-secret", "reader:r-secret")
        found = dict(problems(url, tmp_path, ONE))
        assert found == {
            "reader@127.0.0.1 may not replicate": "GRANT REPLICATION SLAVE ON *.* TO 'reader'@'127.0.0.1'",
            "reader@127.0.0.1 may not look at the binary log": "GRANT BINLOG MONITOR ON *.* TO 'reader'@'127.0.0.1'",
        }
        for statement in found.values():
            script(statement)
        assert problems(url, tmp_path, ONE) == []
        captured = Captured(url, tmp_path, [ONE])  # these rights are all that it takes
        with captured.begin():
            pass
        script("INSERT INTO one VALUES (1)")
        assert captured.capture().changes == 1
    finally:
        script("DROP USER reader@127.0.0.1")


@pytest.fixture
def reader(mysql_database: str, script: Script) -> Iterator[str]:
    """The URL of a user with the documented rights only."""
    script("CREATE USER reader@127.0.0.1 IDENTIFIED BY 'r-secret'")
    script("GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO reader@127.0.0.1")
    yield mysql_database.replace("etl:my-etl-secret", "reader:r-secret")
    script("DROP USER reader@127.0.0.1")


def test_a_replica_that_does_not_log_what_it_replicates(
    reader: str, mysql_database: str, script: Script, tmp_path: Path
) -> None:
    assert problems(reader, tmp_path) == []
    script("SET GLOBAL gtid_slave_pos = '9-9-9'; CHANGE MASTER 'up' TO MASTER_HOST = '127.0.0.1'")
    try:
        ((what, repair),) = problems(mysql_database, tmp_path)  # stopped: it may go on at any time
        assert what.startswith("the server is a replica") and repair.startswith("Set log_slave_updates = ON")
        script("RESET SLAVE 'up' ALL")
        assert problems(mysql_database, tmp_path) == []  # promoted
        ((what, repair),) = problems(reader, tmp_path)
        assert "may not see whether it still does" in what
        script(repair.partition(",")[0])
        assert problems(reader, tmp_path) == []
    finally:
        script("SET GLOBAL gtid_slave_pos = ''")


@pytest.mark.parametrize(
    ("statements", "what", "repair"),
    [
        ("CREATE VIEW one AS SELECT 1 AS id", "one is no table", "Exclude it"),
        ("CREATE TABLE one (id int PRIMARY KEY) ENGINE = MyISAM", "the engine MyISAM", "ENGINE = InnoDB"),
        ("CREATE TABLE one (id int PRIMARY KEY) WITH SYSTEM VERSIONING", "one is system-versioned", "Exclude it"),
        (
            "CREATE TABLE up (id int PRIMARY KEY); CREATE TABLE one (id int PRIMARY KEY, up int,"
            " CONSTRAINT to_up FOREIGN KEY (up) REFERENCES up (id) ON DELETE SET NULL)",
            "the foreign key to_up of one changes its rows by ON DELETE SET NULL",
            "DROP FOREIGN KEY `to_up`",
        ),
    ],
)
def test_tables_whose_log_is_not_whole_are_named(
    statements: str, what: str, repair: str, mysql_database: str, script: Script, tmp_path: Path
) -> None:
    script(statements)
    ((found, statement),) = problems(mysql_database, tmp_path, ONE)
    assert what in found and repair in statement


def test_server_ids_are_no_others(mysql_database: str, tmp_path: Path) -> None:
    captured = Captured(mysql_database, tmp_path, [], replace(STREAM, options={"server_id": 1}))
    (found,) = captured.source.describe_stream(captured.stream, []).problems
    assert found.what == "server_id 1 is the server's own"
    assert server_id_of(STREAM) == server_id_of(STREAM) != server_id_of(replace(STREAM, name="other"))


@pytest.mark.full
def test_a_server_that_logs_nothing_or_not_this_database(tmp_path: Path) -> None:
    with mariadb.created() as made:
        with made.started({"skip-log-bin": "1"}) as url:
            assert problems(url, tmp_path)[0][0] == "the server writes no binary log"
        with made.started({"wsrep-on": "ON"}) as url:
            ((found, _),) = problems(url, tmp_path)
            assert found.startswith("the server is a node of a Galera cluster")
        with made.started({"wsrep-on": "ON", "log-slave-updates": "ON"}) as url:
            assert problems(url, tmp_path) == []
        with made.started({"binlog-do-db": "other", "binlog-expire-logs-seconds": "3600"}) as url:
            made.administer("CREATE TABLE flowctl.one (id int PRIMARY KEY)")
            ((found, _),) = problems(url, tmp_path, ONE)
            assert found == "the server does not log the database flowctl (binlog_do_db)"
            captured = Captured(url, tmp_path, [ONE])
            (advice,) = captured.source.describe_stream(captured.stream, []).advice
            assert "purges its log after 1h" in advice.what
