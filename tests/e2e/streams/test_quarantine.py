"""Rows in quarantine, and updates that do not send all values of a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import SqlitePlace, must_equal
from tests.e2e.streams.test_tables import execute

pytestmark = [pytest.mark.server, pytest.mark.full]

TABLE = (
    '  notes: {from: "cdc:public.notes", to: "lite:notes", mode: merge,'
    " expect: [{column: n, between: [0, 9], on_fail: quarantine}]}\n"
)


def test_an_older_long_value_does_not_come_back(tmp_path: Path, postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE notes (id int PRIMARY KEY, n int, big text)",
        "ALTER TABLE notes ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO notes VALUES (1, 1, repeat('A', 5000))",
    )
    flow = write_flow(tmp_path, postgres_database, [], TABLE)
    flow.apply()
    execute(postgres_database, "UPDATE notes SET n = 2, big = repeat('a', 5000)")
    flow.apply()
    execute(postgres_database, "UPDATE notes SET n = -1, big = repeat('B', 5000)")
    flow.apply()
    execute(postgres_database, "UPDATE notes SET n = 5")
    words = flow.apply(expect=6).words
    assert "did not send long values that are unchanged" in words and "state resnapshot … notes" in words
    execute(postgres_database, "ALTER TABLE notes REPLICA IDENTITY FULL")
    flow.run("state", "resnapshot", "flow.yaml", "notes", "--yes", expect=0)
    flow.apply()
    execute(postgres_database, "UPDATE notes SET n = 6")
    flow.apply()
    must_equal(postgres_database, SqlitePlace(tmp_path / "lite.db"), ["notes"])
