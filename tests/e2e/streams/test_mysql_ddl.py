"""DDL of MySQL and MariaDB after which the rows that the log has are not enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.targets import DeltaPlace, must_equal
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
