"""What the log has beside rows: DDL, statements, other forms of events; and what a stream refuses to read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from flowctl.changes.segment import Op
from flowctl.connectors.mysql.changes import protocol
from flowctl.connectors.mysql.changes.ddl import meanings
from flowctl.connectors.mysql.changes.events import Query
from flowctl.connectors.mysql.client import client
from flowctl.errors import StoppedByPolicy, TransientError
from flowctl.model.position import order_of, place_from_text
from flowctl.model.table_info import Column, ObjectName
from flowctl.model.types import INT32
from tests.connectors.captured import STREAM, BatchLimits
from tests.connectors.mysql.changes.streaming import Captured
from tests.connectors.mysql.conftest import Script

ONE, TWO = ObjectName(("one",)), ObjectName(("two",))
ID = (Column("id", INT32),)
DROP = "ALTER TABLE one DROP value"
FILES = replace(STREAM, options={"position": "file"})


@pytest.fixture(params=[STREAM, pytest.param(FILES, marks=pytest.mark.full)], ids=["gtid", "file"])
def begun(request: pytest.FixtureRequest, mysql_database: str, script: Script, tmp_path: Path) -> Captured:
    return begin(request.param, mysql_database, script, tmp_path)


def begin(stream: Any, url: str, script: Script, folder: Path) -> Captured:
    script("CREATE TABLE one (id int PRIMARY KEY, value text); CREATE TABLE two (id int PRIMARY KEY)")
    captured = Captured(url, folder, [ONE, TWO], stream)
    with captured.begin():
        pass
    return captured


@contextmanager
def setting(script: Script, name: str, value: str) -> Iterator[None]:
    """Of the server, for sessions that begin now."""
    ((before,),) = script(f"SELECT @@global.{name}")
    script(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        script(f"SET GLOBAL {name} = '{before}'" if isinstance(before, str) else f"SET GLOBAL {name} = {before}")


def ops(captured: Captured, object: ObjectName = ONE) -> list[tuple[str, int | None]]:
    rows = captured.changes(ID, ["id"], object).rows.to_pylist()
    return [(Op(row["_flowctl_op"]).name, row["id"]) for row in rows]


def test_changes_of_whole_tables_are_at_their_place(begun: Captured, script: Script) -> None:
    script(
        "TRUNCATE one; INSERT INTO one VALUES (1, 'a'); DROP TABLE one; CREATE TABLE one (id int PRIMARY KEY);"
        "INSERT INTO one VALUES (2); CREATE TABLE three (id int PRIMARY KEY); RENAME TABLE one TO four, three TO one;"
        "INSERT INTO one VALUES (3); CREATE OR REPLACE TABLE two (id int PRIMARY KEY); INSERT INTO two VALUES (7)"
    )
    begun.capture()
    assert ops(begun) == [
        ("TRUNCATE", None), ("INSERT", 1), ("TRUNCATE", None), ("INSERT", 2), ("REPLACED", None), ("REPLACED", None),
        ("INSERT", 3),
    ]  # fmt: skip
    assert ops(begun, TWO) == [("TRUNCATE", None), ("INSERT", 7)]


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
def test_a_table_that_exchanges_its_rows_with_a_partition_has_others(begun: Captured, script: Script) -> None:
    script(
        "CREATE TABLE parts (id int PRIMARY KEY, value text)"
        " PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (10)); INSERT INTO one VALUES (1, 'a');"
        "ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE one; INSERT INTO one VALUES (12, 'b');"
        "ALTER TABLE parts CONVERT TABLE one TO PARTITION q VALUES LESS THAN (20);"
        "ALTER TABLE parts CONVERT PARTITION p TO TABLE one; INSERT INTO one VALUES (3, 'c')"
    )
    begun.capture()
    assert ops(begun) == [
        ("INSERT", 1), ("REPLACED", None), ("INSERT", 12), ("REPLACED", None), ("REPLACED", None), ("INSERT", 3),
    ]  # fmt: skip


def test_transactions_are_whole_and_rolled_back_ones_are_not_there(begun: Captured, script: Script) -> None:
    script(
        "BEGIN; INSERT INTO one VALUES (1, 'a'); SAVEPOINT here; INSERT INTO one VALUES (2, 'b');"
        "ROLLBACK TO SAVEPOINT here; INSERT INTO two VALUES (1); COMMIT;"
        "BEGIN; INSERT INTO one VALUES (3, 'c'); ROLLBACK;"
        "CREATE TEMPORARY TABLE one_t AS SELECT * FROM one; DROP TEMPORARY TABLE one_t; DELETE FROM one"
    )
    begun.capture(BatchLimits(1, 10**9))
    assert ops(begun) == [("INSERT", 1), ("DELETE", 1)]
    first, second = begun.changes(ID, ["id"], ONE).rows["_flowctl_lsn"].to_pylist()
    assert begun.changes(ID, ["id"], TWO).rows["_flowctl_lsn"].to_pylist() == [first] and first < second


def test_a_capture_continues_where_a_batch_has_ended(begun: Captured, script: Script) -> None:
    for number in range(1, 9):
        script(f"INSERT INTO one VALUES ({number}, 'a'); FLUSH BINARY LOGS")
        if number % 3 == 0:
            begun.capture(BatchLimits(1, 10**9))
    begun.capture()
    assert ops(begun) == [("INSERT", number) for number in range(1, 9)]
    positions = [batch.upper for batch in begun.log.between(-1, begun.capture().batch)]
    orders = [order_of(position) for position in positions]
    assert orders == sorted(orders)
    assert [place_from_text(str(position)) for position in positions] == positions


def test_commits_of_one_second_have_an_order_that_a_second_reading_repeats(begun: Captured, script: Script) -> None:
    """More than 1 MB of log in one second, the second before it, and a new file; landed at once, and one by one."""
    second, commits = 2_000_000_000, 20  # behind the moment's own time
    for number in range(commits):
        script(
            f"SET timestamp = {second - (number == 4)}; REPLACE INTO one VALUES (1, REPEAT('x', 60000 + {number}));"
            + ("FLUSH BINARY LOGS" if number == 15 else "")
        )
    copied = begun.folder / "copied"
    shutil.copytree(begun.folder / "state", copied / "state")
    begun.capture()
    again = replace(begun, folder=copied)
    again.capture(BatchLimits(1, 10**9))
    read = [one.changes(ID, ["id"], ONE).rows for one in (begun, again)]
    assert read[0] == read[1]
    inserted = [row for row in read[0].to_pylist() if row["_flowctl_op"] != Op.DELETE]
    times = [row["_flowctl_event_at"] for row in inserted]
    assert len(set(times)) == commits and times == sorted(times)
    seconds = [int(row["_flowctl_committed_at"].timestamp()) for row in inserted]
    assert seconds == [second - (number == 4) for number in range(commits)]


def test_a_row_in_a_compressed_event(begun: Captured, script: Script) -> None:
    with setting(script, "log_bin_compress", "ON"), setting(script, "log_bin_compress_min_len", "10"):
        script(f"INSERT INTO one VALUES (1, '{'long ' * 100}'); UPDATE one SET id = 2; DELETE FROM one; TRUNCATE one")
    begun.capture()
    assert ops(begun) == [("INSERT", 1), ("UPDATE", 2), ("DELETE", 2), ("TRUNCATE", None)]


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
@pytest.mark.parametrize("checksum", ["NONE", "CRC32"])
def test_a_log_with_and_without_checksums(checksum: str, begun: Captured, script: Script) -> None:
    with setting(script, "binlog_checksum", checksum):
        script("INSERT INTO one VALUES (1, 'a')")
        begun.capture()
    script("INSERT INTO one VALUES (2, 'a')")
    begun.capture()
    assert ops(begun) == [("INSERT", 1), ("INSERT", 2)]


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ("SET binlog_format = STATEMENT; INSERT INTO one VALUES (1, 'a')", "without the rows that it has changed"),
        ("SET binlog_format = STATEMENT; UPDATE two SET id = 3", "without the rows that it has changed"),
        ("SET binlog_row_image = MINIMAL; INSERT INTO one (id) VALUES (1); DELETE FROM one", "binlog_row_image"),
        ("XA START 'x'; INSERT INTO one VALUES (1, 'a'); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'", "XA transaction"),
        ("SET gtid_seq_no = 900000000; INSERT INTO two VALUES (1); SET gtid_seq_no = 800000000; DELETE FROM two;"
         "SET gtid_seq_no = 900000001; INSERT INTO two VALUES (2)",
         "not in the order of its GTIDs"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_exactly_stops_the_stream(
    statements: str, why: str, begun: Captured, script: Script
) -> None:
    script(statements)
    with pytest.raises(StoppedByPolicy, match=why):
        begun.capture()
    if "gtid" in statements:
        script("RESET MASTER")  # the next numbers would be beyond all others


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
def test_rows_without_names_of_columns_stop_the_stream(begun: Captured, script: Script) -> None:
    with setting(script, "binlog_row_metadata", "NO_LOG"):
        script("INSERT INTO one VALUES (1, 'a')")
    with pytest.raises(StoppedByPolicy, match="without the names of its columns"):
        begun.capture()


def test_a_transaction_larger_than_what_is_held(begun: Captured, script: Script, monkeypatch: Any) -> None:
    monkeypatch.setattr("flowctl.storage.lander.RUN_BYTES", 100_000)
    script(
        "BEGIN; INSERT INTO one SELECT seq, REPEAT('x', 50) FROM seq_1_to_20000; DELETE FROM one WHERE id > 3; COMMIT"
    )
    batch = begun.capture()
    assert batch.changes == 20000 + 19997 and len(batch.segments) > 5
    assert ops(begun)[:2] == [("INSERT", 1), ("INSERT", 2)]


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
def test_a_second_reader_with_the_same_id_ends_the_first(begun: Captured, mysql_database: str) -> None:
    newest = begun.log.newest()
    assert newest is not None
    with protocol.reading(client({"url": mysql_database}), "cdc", 4711, str(newest.upper)) as first:
        events = first.events()
        next(events)
        with protocol.reading(client({"url": mysql_database}), "cdc", 4711, str(newest.upper)) as second:
            next(second.events())
            with pytest.raises(TransientError, match="something else reads the log as server_id 4711"):
                for _ in range(10):
                    next(events)


def told(text: str) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    return [(one.what, one.tables) for one in meanings(Query("db", text))]


@pytest.mark.parametrize(
    ("text", "what", "tables"),
    [
        ("TRUNCATE TABLE `a`.`b c`", "emptied", [("a", "b c")]),
        ("drop table if exists a, b.c /* generated by server */", "emptied", [("db", "a"), ("b", "c")]),
        ("DROP DATABASE IF EXISTS `shop`", "emptied", [("shop", "")]),
        ("create or replace table q (a int)", "emptied", [("db", "q")]),
        ("create or replace database `shop` comment 'x'", "emptied", [("shop", "")]),
        ("/*M! CREATE OR REPLACE */ SCHEMA shop", "emptied", [("shop", "")]),
        ("RENAME TABLE a TO b, `x`.y WAIT 5 TO z", "replaced", [("db", "a"), ("db", "b"), ("x", "y"), ("db", "z")]),
        ('ALTER TABLE "a" ADD c int, RENAME AS "b"', "replaced", [("db", "a"), ("db", "b")]),
        ("ALTER TABLE a TRUNCATE PARTITION p", "replaced", [("db", "a")]),
        ("ALTER IGNORE TABLE a ADD UNIQUE (b)", "replaced", [("db", "a")]),
        ("ALTER ONLINE IGNORE TABLE IF EXISTS a ADD UNIQUE (b)", "replaced", [("db", "a")]),
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE b", "replaced", [("db", "a"), ("db", "b")]),
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE `x`.`b c`", "replaced", [("db", "a"), ("x", "b c")]),
        ("ALTER TABLE a CONVERT TABLE x.b TO PARTITION p VALUES LESS THAN (7)", "replaced", [("db", "a"), ("x", "b")]),
        ("alter table a convert partition p to table b", "replaced", [("db", "a"), ("db", "b")]),
        ("ALTER TABLE a IMPORT PARTITION p, q TABLESPACE", "replaced", [("db", "a")]),
        ("ALTER TABLE a DISCARD PARTITION ALL TABLESPACE", "replaced", [("db", "a")]),
        ("ALTER TABLE a CONVERT TO CHARACTER SET utf8mb4, DROP `PARTITION`", "altered", [("db", "a")]),
        ("ALTER TABLE a RENAME COLUMN b TO c, RENAME INDEX i TO j", "altered", [("db", "a")]),
        ("ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (b)", "unkeyed", [("db", "a")]),
        ("ALTER TABLE a ADD b int, DROP INDEX `PRIMARY`", "unkeyed", [("db", "a")]),
        ("DROP INDEX `PRIMARY` ON x.a", "unkeyed", [("x", "a")]),
        ("DROP INDEX i ON a", "other", []),
        ("ALTER TABLE a ADD COLUMN b int, RENAME INDEX i TO j", "other", []),
        ("CREATE TABLE `to` (a int COMMENT 'RENAME TABLE x TO y')", "other", []),
        ("DROP TEMPORARY TABLE IF EXISTS `a`", "other", []),
        ("CREATE OR REPLACE TEMPORARY TABLE a (a int)", "other", []),
        ("CREATE OR REPLACE TABLE temporary (a int)", "emptied", [("db", "temporary")]),
        ("DROP TABLE temporary", "emptied", [("db", "temporary")]),
        ("TRUNCATE tables", "emptied", [("db", "tables")]),
        ("RENAME TABLE a TO temporary, b TO a", "replaced", [("db", name) for name in ("a", "temporary", "b", "a")]),
        ("ALTER TABLE a RENAME temporary", "replaced", [("db", "a"), ("db", "temporary")]),
        ("RENAME USER tables TO a", "other", []),
        ("CREATE TABLE a (b int) SELECT 1 AS b", "unlogged", [("db", "a")]),
        ("CREATE TABLE x.a LIKE b", "other", []),
        ("CREATE TABLE a AS TABLE b", "unlogged", [("db", "a")]),
        ("CREATE TABLE a AS VALUES ROW(1)", "unlogged", [("db", "a")]),
        ("CREATE TABLE a AS VALUES (1, 2), (3, 4)", "unlogged", [("db", "a")]),
        ("CREATE TABLE a AS (VALUES (1))", "unlogged", [("db", "a")]),
        ("CREATE TABLE a (b int) PARTITION BY RANGE (b) (PARTITION p VALUES LESS THAN (7))", "other", []),
        ("LOAD DATA INFILE 'x' INTO TABLE a", "unlogged", []),
        ("SELECT `db`.`f`()", "unlogged", []),
        ("INSERT INTO mysql.rds_heartbeat2(id, value) values (1,17) ON DUPLICATE KEY UPDATE value = 17", "other", []),
        ("DELETE FROM `mysql`.`rds_sysinfo` where name = 'x'", "other", []),
        ("DELETE a FROM mysql.x JOIN a", "unlogged", []),
        ("INSERT INTO mysql.x SELECT f()", "unlogged", []),
        ("FLUSH RELAY LOGS", "other", []),
        ("SET STATEMENT max_statement_time=1 FOR INSERT INTO a VALUES (1)", "unlogged", []),
        ("/*!50003 INSERT */ INTO a VALUES ('it''s; -- not')", "unlogged", []),
        ("-- a comment\nupdate a set b = 1", "unlogged", []),
        ("ROLLBACK TO SAVEPOINT x", "other", []),
        ("XA COMMIT X'61',X'',1", "end", []),
        ("# Dummy event", "other", []),
    ],
)
def test_what_a_statement_means(text: str, what: str, tables: list[tuple[str, str]]) -> None:
    assert told(text)[0] == (what, tuple(tables))


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("ALTER TABLE a DROP b, ADD b text AFTER id", ["b"]),
        ("ALTER TABLE IF EXISTS x.`a` WAIT 5 DROP COLUMN IF EXISTS `b c`, drop d restrict", ["b c", "d"]),
        ("alter table a change b c int, CHANGE COLUMN C c bigint, RENAME COLUMN d TO b", ["b", "d"]),
        ("ALTER TABLE a ADD (b decimal(9,2), c int), DROP `key`, DROP system, MODIFY d int", ["key", "system"]),
        ("ALTER TABLE a DROP KEY k, DROP PRIMARY KEY, DROP FOREIGN KEY f, DROP SYSTEM VERSIONING, DROP CHECK c", []),
        ("ALTER TABLE a DROP CONSTRAINT c, DROP INDEX IF EXISTS i, ADD CHECK (b > 1), DROP PERIOD FOR p", []),
        ("ALTER TABLE a ENGINE = InnoDB", []),
    ],
)
def test_columns_that_a_statement_ends(text: str, ended: list[str]) -> None:
    assert [name for one in meanings(Query("db", text)) for name in one.columns] == ended


@pytest.mark.parametrize(
    ("text", "strict", "ended", "converted"),
    [
        ("ALTER TABLE a MODIFY g int AS (b * 3) STORED", True, ["g"], []),
        ("ALTER TABLE a CHANGE COLUMN g G int GENERATED ALWAYS AS (b * 3) VIRTUAL, MODIFY b bigint", True, ["g"], []),
        ("ALTER TABLE a MODIFY COLUMN IF EXISTS b int NOT NULL, CHANGE c c int unsigned", False, [], ["b", "c"]),
        ("ALTER TABLE a MODIFY b int NOT NULL, MODIFY e enum('x'), CONVERT TO CHARACTER SET latin1", True, [], []),
        ("ALTER TABLE a MODIFY b text CHARACTER SET latin1, CHANGE c d int NOT NULL", False, ["c", "b"], []),
        ("ALTER TABLE a MODIFY b text CHARSET utf8mb4, ADD d int NOT NULL, ALTER c SET DEFAULT 3", False, [], ["b"]),
        ("ALTER TABLE a MODIFY b text COLLATE latin1_bin, MODIFY c varchar(9) ASCII", False, ["b", "c"], []),
        ("ALTER TABLE a MODIFY b text COLLATE utf8mb4_bin, MODIFY c text COLLATE uca1400_ai_ci", False, [], ["b", "c"]),
        ("ALTER TABLE a MODIFY b varchar(20) DEFAULT (CAST(NOW() AS CHAR))", True, [], []),
    ],
)
def test_columns_that_a_statement_may_convert(text: str, strict: bool, ended: list[str], converted: list[str]) -> None:
    found = meanings(Query("db", text, strict))
    assert [name for one in found for name in one.columns] == ended
    assert [name for one in found for name in one.converted] == converted


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
@pytest.mark.parametrize(
    ("alter", "ended", "converted"),
    [
        ("SET sql_mode = ''; ALTER TABLE one MODIFY value text NOT NULL", (), ("value",)),
        ("SET sql_mode = ''; ALTER TABLE one CONVERT TO CHARACTER SET latin1", ("value",), ()),
        ("SET sql_mode = ''; ALTER TABLE one CONVERT TO CHARACTER SET utf8mb4", None, None),
        ("ALTER TABLE one MODIFY value text NOT NULL, CONVERT TO CHARACTER SET latin1", None, None),
    ],
)
def test_what_a_session_converts_depends_on_its_mode(
    alter: str, ended: tuple[str, ...] | None, converted: tuple[str, ...], begun: Captured, script: Script
) -> None:
    script(alter)
    begun.capture()
    newest = begun.log.newest()
    landed = newest.table(ONE) if newest is not None else None
    shapes = [begun.log.shape(digest) for digest in landed.shapes.values()] if landed is not None else []
    assert [(shape.ended, shape.converted) for shape in shapes] == ([] if ended is None else [(ended, converted)])


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
def test_the_end_of_a_column_is_at_its_place(begun: Captured, script: Script) -> None:
    script(
        "INSERT INTO one VALUES (1, 'a'); ALTER TABLE one DROP COLUMN value; ALTER TABLE one ADD COLUMN value text;"
        "INSERT INTO one VALUES (2, 'b')"
    )
    begun.capture()
    assert ops(begun) == [("INSERT", 1), ("ALTERED", None), ("INSERT", 2)]


@pytest.mark.parametrize("begun", [STREAM], indirect=True)
def test_an_alter_in_two_phases_counts_once_and_only_where_it_ends(begun: Captured, script: Script) -> None:
    script("INSERT INTO one VALUES (1, 'a'), (2, 'a')")
    for alter in ("ALTER TABLE one DROP value, ADD other int NOT NULL DEFAULT 0, ADD UNIQUE (other)", DROP):
        with suppress(pymysql.err.IntegrityError):
            script(f"SET binlog_alter_two_phase = ON; {alter}")
    begun.capture()
    assert ops(begun) == [("INSERT", 1), ("INSERT", 2), ("ALTERED", None)]
