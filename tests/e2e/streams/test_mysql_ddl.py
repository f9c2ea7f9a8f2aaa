"""DDL of MySQL and MariaDB after which the rows that the log has are not enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import DeltaPlace, SqlitePlace, must_equal
from tests.e2e.streams.test_tables import ONE, begun, execute, insert

pytestmark = pytest.mark.server


@pytest.mark.full
def test_a_primary_key_that_was_dropped_and_added_again(tmp_path: Path, mysql_database: str) -> None:
    log = '  log: {from: "cdc:public.one", to: "lake:log", mode: append}\n'
    flow = begun(tmp_path, mysql_database, ONE + log, "on_table_error: detach")
    execute(
        mysql_database,
        "ALTER TABLE one DROP PRIMARY KEY; INSERT INTO one VALUES (1, 'second'); UPDATE one SET value = 'both';"
        "DELETE FROM one LIMIT 1; ALTER TABLE one ADD PRIMARY KEY (id)",
    )
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "the primary key of cdc:one was dropped" in done.words
    assert "flowctl state resnapshot flow.yaml one" in done.words
    lake = DeltaPlace(tmp_path / "lake")
    assert [row["_op"] for row in lake.dicts("log", ["_op", "_commit_lsn"])].count("U") == 2
    flow.run("state", "resnapshot", "flow.yaml", "one", "--yes", expect=0)
    flow.apply()
    insert(mysql_database, 2, ["one"])
    flow.apply()
    must_equal(mysql_database, lake, ["one"])


@pytest.mark.full
def test_a_primary_key_that_is_dropped_and_not_there_yet(tmp_path: Path, mysql_database: str) -> None:
    flow = begun(tmp_path, mysql_database, ONE.replace("mode: merge", "mode: merge, key: [id]"))
    execute(mysql_database, "ALTER TABLE one DROP PRIMARY KEY; INSERT INTO one VALUES (1, 'second')")
    assert "the primary key of cdc:one was dropped" in flow.run("apply", "flow.yaml", expect=6).words
    execute(mysql_database, "DELETE FROM one WHERE value = 'second'; ALTER TABLE one ADD PRIMARY KEY (id)")
    flow.run("apply", "flow.yaml", expect=6)
    flow.run("state", "resnapshot", "flow.yaml", "one", "--yes", expect=0)
    flow.apply()
    must_equal(mysql_database, DeltaPlace(tmp_path / "lake"), ["one"])


@pytest.mark.full
def test_columns_whose_values_a_statement_changes(tmp_path: Path, mysql_database: str) -> None:
    execute(
        mysql_database,
        "CREATE TABLE one (id int PRIMARY KEY, a int, g int AS (a * 2) STORED, w int AS (a * 2) VIRTUAL, n int, v int,"
        "e enum('x','y','b'), s varchar(9) CHARACTER SET utf8mb4, kept varchar(5), t text);"
        "INSERT INTO one (id, a, v, e, s, t) VALUES (1, 1, -5, 'b', 'ł', 'ß')",
    )
    table = '  one: {from: "cdc:public.one", to: "lite:one", mode: merge, on_schema_change: {unsent: fail}}\n'
    flow = write_flow(tmp_path, mysql_database, [], table)
    flow.apply()
    for alter, names in (
        ("SET sql_mode = ''; ALTER TABLE one MODIFY kept varchar(9), MODIFY t text CHARACTER SET utf8mb4", ""),
        ("ALTER TABLE one MODIFY g int AS (a * 3) STORED", "g"),
        ("ALTER TABLE one MODIFY w int AS (a * 3) VIRTUAL", "w"),
        ("SET sql_mode = ''; ALTER TABLE one MODIFY n int NOT NULL", "n"),
        ("SET sql_mode = ''; ALTER TABLE one MODIFY e enum('x','y')", "e"),
        ("SET sql_mode = ''; ALTER TABLE one CONVERT TO CHARACTER SET latin1", "e, s, kept and 1 more"),
    ):
        execute(mysql_database, alter, "UPDATE one SET a = a + 1")
        words = flow.apply(expect=6 if names else 0).words
        assert not names or f"rows have values in {names} that no change has sent" in words, (alter, words)
        if names:
            flow.run("state", "resnapshot", "flow.yaml", "one", "--yes", expect=0)
            flow.apply()
        must_equal(mysql_database, SqlitePlace(tmp_path / "lite.db"), ["one"])
    execute(mysql_database, "SET sql_mode = ''; ALTER TABLE one MODIFY v int unsigned", "UPDATE one SET a = a + 1")
    assert "rows have values in v that no change has sent" in flow.apply(expect=6).words
