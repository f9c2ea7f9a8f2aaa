"""Columns that come while a stream is followed: no plan sees them before their rows, and each policy holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import sqlite_rows
from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import SqlitePlace, source_rows
from tests.e2e.streams.test_follow import wait_for
from tests.e2e.streams.test_tables import execute

pytestmark = pytest.mark.server
POLICIES = ("note", "resnapshot", "fail")
FAST = "batch: {every: 1s}, on_table_error: detach"
TABLE = '  {0}: {{from: "cdc:public.one", to: "lite:{0}", mode: merge, on_schema_change: {{unsent: {0}}}}}\n'
TABLES = "".join(TABLE.format(policy) for policy in POLICIES)
UNSENT = "rows have values in z that no change has sent"


@pytest.mark.full
@pytest.mark.parametrize(
    "alter",
    [
        pytest.param(["ALTER TABLE one ADD COLUMN z int DEFAULT 5"], id="default"),
        pytest.param(
            ["ALTER TABLE one ADD COLUMN z int NOT NULL DEFAULT 5", "ALTER TABLE one ADD COLUMN y int"],
            id="two at once",
        ),
    ],
)
def test_a_column_that_comes_with_values(alter: list[str], tmp_path: Path, source_url: str) -> None:
    execute(source_url, "CREATE TABLE one (id int PRIMARY KEY, value varchar(9))")
    execute(source_url, "INSERT INTO one VALUES (1, 'a'), (2, 'b')")
    flow = write_flow(tmp_path, source_url, [], TABLES, FAST)
    lite, log = SqlitePlace(tmp_path / "lite.db"), tmp_path / "follow.log"
    flow.apply()
    with log.open("w") as output:
        process = flow.start("apply", "flow.yaml", "--follow", output=output)
    try:
        execute(source_url, "UPDATE one SET value = 'first'")
        wait_for(lambda: all("first" in str(lite.rows(policy, ["value"])) for policy in POLICIES))  # it was planned
        execute(source_url, "UPDATE one SET value = 'before' WHERE id = 2", *alter)
        execute(source_url, "UPDATE one SET value = 'after' WHERE id = 1")
        wait_for(lambda: "z" in columns(lite, "resnapshot") and "z" in columns(lite, "note"))
        execute(source_url, "UPDATE one SET value = 'last' WHERE id = 2")
        names = ["id", "value", "z"]
        wait_for(lambda: lite.rows("resnapshot", names) == source_rows(source_url, "one", names))
        wait_for(lambda: "last" in {value for _, value, _ in lite.rows("note", names)})
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 6  # one table is stopped
    said = log.read_text()
    assert said.count(f"note: note: {UNSENT}") == 1
    assert said.count(f"one: {UNSENT} (on_schema_change.unsent: fail)") == 1
    assert "z" not in columns(lite, "fail")
    assert UNSENT in flow.apply(expect=6).words


def columns(lite: SqlitePlace, table: str) -> list[str]:
    return [row[1] for row in sqlite_rows(lite.file, f"PRAGMA table_info({table})")]
