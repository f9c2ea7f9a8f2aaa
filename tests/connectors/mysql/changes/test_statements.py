"""Statements that are logged as such, by sessions with another `binlog_format`, and kinds of events nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pymysql
import pytest

from flowctl.connectors.mysql.changes.events import Event
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import ObjectName
from tests.connectors.mysql.changes.streaming import Captured
from tests.connectors.mysql.changes.test_xa import event, gtid, insert, query, read
from tests.connectors.mysql.conftest import Script

AS_STATEMENT = "SET binlog_format = STATEMENT, tx_isolation = 'REPEATABLE-READ';"
STOPS = "a statement in the database .* without the rows that it has changed"


@pytest.fixture
def begun(mysql_database: str, script: Script, tmp_path: Path) -> Captured:
    script("CREATE TABLE one (id int PRIMARY KEY); INSERT INTO one VALUES (1)")
    captured = Captured(mysql_database, tmp_path, [ObjectName(("one",))])
    with captured.begin():
        pass
    return captured


@pytest.fixture
def other(script: Script) -> Iterator[str]:
    """A database that the stream does not read."""
    script("CREATE DATABASE apart")
    yield "apart"
    script("DROP DATABASE apart")


def test_a_loaded_file_stops_the_stream(begun: Captured, mysql_database: str, script: Script, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("5\n6\n")
    script("SET GLOBAL local_infile = ON")
    url = urlsplit(mysql_database)
    account = {"host": url.hostname, "port": url.port, "user": url.username, "password": url.password}
    with pymysql.connect(**account, database=url.path[1:], local_infile=True, autocommit=True) as session:
        session.query("SET binlog_format = STATEMENT")
        session.query(f"LOAD DATA LOCAL INFILE '{tmp_path / 'rows.csv'}' INTO TABLE one")
    with pytest.raises(StoppedByPolicy, match=STOPS):
        begun.capture()


@pytest.mark.parametrize(
    "statement",
    ["UPDATE apart.seen SET id = 5", "USE apart; UPDATE seen SET id = 5", "USE apart; INSERT INTO written VALUES (7)"],
    ids=["view", "view in use", "trigger"],
)
def test_a_statement_through_another_database_stops_the_stream(
    statement: str, begun: Captured, other: str, script: Script
) -> None:
    ((own,),) = script("SELECT DATABASE()")
    script(
        f"USE {other}; CREATE VIEW seen AS SELECT * FROM {own}.one; CREATE TABLE written (id int);"
        f"CREATE TRIGGER copies AFTER INSERT ON written FOR EACH ROW INSERT INTO {own}.one VALUES (new.id)"
    )
    begun.capture()
    script(AS_STATEMENT + statement)
    with pytest.raises(StoppedByPolicy, match=STOPS):
        begun.capture()


def test_a_table_that_is_created_from_a_query_stops_the_stream(begun: Captured, script: Script) -> None:
    script(f"{AS_STATEMENT} CREATE OR REPLACE TABLE one AS SELECT 3 AS id")
    with pytest.raises(StoppedByPolicy, match=STOPS):
        begun.capture()


def test_statements_that_change_no_table_of_the_stream_are_passed_over(
    begun: Captured, other: str, script: Script
) -> None:
    script(
        f"{AS_STATEMENT} USE {other}; CREATE TABLE copied AS SELECT 1 AS id; TRUNCATE copied; DROP TABLE copied;"
        "CREATE TEMPORARY TABLE t (id int); DROP TEMPORARY TABLE t; FLUSH TABLES; ANALYZE TABLE mysql.proc;"
        "CREATE USER passer; GRANT SELECT ON *.* TO passer; DROP USER passer;"
        "UPDATE mysql.time_zone SET Use_leap_seconds = 'N' WHERE Time_zone_id = 0; BEGIN; SAVEPOINT s; COMMIT"
    )
    script("INSERT INTO one VALUES (2)")
    assert begun.capture().changes == 1


def test_an_unknown_kind_of_event_stops_the_stream_unless_it_may_be_passed_over(tmp_path: Path) -> None:
    def framed(kind: int, flags: bool) -> list[Event]:
        one = replace(event(kind, b"\0" * 30), is_ignorable=flags)
        return [
            gtid(2),
            query("BEGIN"),
            one,
            *insert("one", 1),
            query("COMMIT"),
            gtid(3),
            query("BEGIN"),
            query("COMMIT"),
        ]

    for kind, flags in ((199, True), (17, False), (160, False), (37, False)):
        assert len(read(framed(kind, flags), tmp_path / str(kind))) == 1
    for kind in (8, 10, 20, 172):
        with pytest.raises(StoppedByPolicy, match=f"an event of the kind {kind}, which may change rows"):
            read(framed(kind, False), tmp_path / str(kind))
