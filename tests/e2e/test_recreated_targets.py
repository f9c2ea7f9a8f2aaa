"""A table that somebody drops and makes again under its name is another one: no run goes on as if it had its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.targets import ENV, SQL_KINDS, Databases, Kind, sql_place

pytestmark = pytest.mark.server


@pytest.mark.full
@pytest.mark.parametrize("kind", SQL_KINDS)
def test_a_table_made_again(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    flow = Flow(tmp_path, ENV)
    merged, appended = (sql_place(kind, tmp_path, databases).named(name) for name in ("merged", "appended"))
    flow.write(
        "version: 1\nflow: f\nstate: state\nspark: {url: sail}\nconnections:\n"
        f"  src: {{type: sqlite, path: src.db}}\n  out: {merged.connection}\ntables:\n"
        f"  merged: {{from: src:t, to: out:{merged.object}, mode: merge, key: [id], cursor: {{column: id}}}}\n"
        f"  appended: {{from: src:t, to: out:{appended.object}, mode: append, cursor: {{column: id}}}}\n"
    )
    sqlite_script(tmp_path / "src.db", "CREATE TABLE t (id BIGINT, note TEXT); INSERT INTO t VALUES (1, 'a')")
    flow.apply()
    for place in (merged, appended):
        place.run("ALTER TABLE {table} ADD COLUMN theirs BIGINT")
    sqlite_script(tmp_path / "src.db", "INSERT INTO t VALUES (2, 'b')")
    flow.apply()
    for place in (merged, appended):
        assert sorted(place.rows(("id", "note"))) == [(1, "a"), (2, "b")]
        place.run("DROP TABLE {table}")
        place.run("CREATE TABLE {table} (id BIGINT, note VARCHAR(20))")
    sqlite_script(tmp_path / "src.db", "INSERT INTO t VALUES (3, 'c')")
    assert flow.apply(expect=6).words.count("is another table than the one this flow has written") == 2
    assert merged.rows(("id",)) == appended.rows(("id",)) == []
    flow.run("apply", "flow.yaml", "--full-refresh", "*", expect=0)
    sqlite_script(tmp_path / "src.db", "INSERT INTO t VALUES (4, 'd')")
    flow.apply()
    for place in (merged, appended):
        assert sorted(place.rows(("id", "note"))) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
