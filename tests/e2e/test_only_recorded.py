"""A run killed between its commit and its record: the next one records the columns that were committed, whatever the
source has by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.targets import ENV, Databases, Kind, SqlPlace, kinds_with, place

KILLED, STOPPED = -9, 6
ADDED = "ALTER TABLE ev ADD COLUMN f TEXT DEFAULT 'x'; INSERT INTO ev (id, v) VALUES (2, 2)"
CHANGED = "UPDATE ev SET v = v + 1"
pytestmark = pytest.mark.full
kinds = pytest.mark.parametrize("kind", kinds_with("merge"))


class Killed(Flow):
    """A table whose run has added the column ``f`` and was killed before the commit was recorded."""

    def __init__(self, folder: Path, kind: Kind, databases: Databases) -> None:
        super().__init__(folder, ENV)
        self.there = place(kind, folder, databases).named("t")
        self.source("CREATE TABLE ev (id INTEGER PRIMARY KEY, v INTEGER); INSERT INTO ev VALUES (1, 1)")
        self.policy("keep")
        self.apply()
        self.source(ADDED)
        assert self.apply(env={"FLOWCTL_CRASH_AT": "after_commit"}, expect=None).code == KILLED

    def source(self, script: str) -> None:
        sqlite_script(self.folder / "source.db", script)

    def policy(self, dropped_column: str) -> None:
        self.write(
            "version: 1\nflow: shop\nstate: state\nspark: {url: sail}\nconnections:\n"
            f"  src: {{type: sqlite, path: source.db}}\n  dst: {self.there.connection}\n"
            f'tables:\n  t: {{from: src:ev, to: "dst:{self.there.object}", mode: merge, key: [id], '
            f'on_schema_change: {{dropped_column: "{dropped_column}"}}}}\n'
        )

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        return self.there.rows(columns)

    def changes(self) -> list[tuple[str, str]]:
        """Those of the step that reads what has come since."""
        *_, step = self.plan()["steps"]
        return [(one["column"], one["change"]) for one in step["schema"]]


@kinds
def test_a_column_dropped_since_is_one_that_the_source_has_dropped(
    kind: Kind, tmp_path: Path, databases: Databases
) -> None:
    flow = Killed(tmp_path, kind, databases)
    flow.source(f"ALTER TABLE ev DROP COLUMN f; {CHANGED}")
    assert flow.changes() == [("f", "dropped_column")]
    flow.policy("fail")
    assert "dropped_column: fail" in flow.apply(expect=STOPPED).words
    flow.policy("null")
    flow.apply()
    assert flow.rows("id", "v", "f") == [(1, 2, None), (2, 3, None)]
    flow.source("ALTER TABLE ev ADD COLUMN f TEXT DEFAULT 'y'")
    flow.apply()
    assert flow.rows("id", "v", "f") == [(1, 2, "y"), (2, 3, "y")]


@kinds
def test_a_column_renamed_since_is_one_dropped_and_one_added(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    flow = Killed(tmp_path, kind, databases)
    flow.source(f"ALTER TABLE ev RENAME COLUMN f TO g; {CHANGED}")
    assert sorted(flow.changes()) == [("f", "dropped_column"), ("g", "new_column")]
    flow.apply()
    assert flow.rows("id", "v", "f", "g") == [(1, 2, "x", "x"), (2, 3, "x", "x")]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql", "duckdb"])
def test_a_column_that_others_have_dropped_or_added_since_is_theirs(
    kind: Kind, tmp_path: Path, databases: Databases
) -> None:
    flow = Killed(tmp_path, kind, databases)
    assert isinstance(flow.there, SqlPlace)
    flow.there.run("ALTER TABLE {table} ADD COLUMN theirs int")
    flow.source(f"ALTER TABLE ev ADD COLUMN g TEXT DEFAULT 'g'; {CHANGED}")
    assert sorted(flow.changes()) == [("g", "new_column"), ("theirs", "drift")]
    flow.apply()
    assert flow.rows("id", "v", "f", "g", "theirs") == [(1, 2, "x", "g", None), (2, 3, "x", "g", None)]
    flow.source("ALTER TABLE ev ADD COLUMN h TEXT DEFAULT 'h'")
    assert flow.apply(env={"FLOWCTL_CRASH_AT": "after_commit"}, expect=None).code == KILLED
    flow.there.run("ALTER TABLE {table} DROP COLUMN h")
    assert "dropped in the target by someone else" in flow.apply(expect=STOPPED).words


@kinds
def test_the_columns_of_the_newest_attempt_are_recorded(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    """Of a sequence number that is staged again, and killed after its commit only then."""
    flow = Killed(tmp_path, kind, databases)
    flow.apply()
    flow.source(f"ALTER TABLE ev ADD COLUMN g TEXT DEFAULT 'g'; {CHANGED}")
    assert flow.apply(env={"FLOWCTL_CRASH_AT": "in_commit"}, expect=None).code == KILLED
    flow.source(f"ALTER TABLE ev ADD COLUMN h TEXT DEFAULT 'h'; {CHANGED}")
    assert flow.apply(env={"FLOWCTL_CRASH_AT": "after_commit"}, expect=None).code == KILLED
    flow.source(f"ALTER TABLE ev DROP COLUMN g; ALTER TABLE ev DROP COLUMN h; {CHANGED}")
    assert sorted(flow.changes()) == [("g", "dropped_column"), ("h", "dropped_column")]
    flow.policy("null")
    flow.apply()
    assert flow.rows("id", "v", "f", "g", "h") == [(1, 4, "x", None, None), (2, 5, "x", None, None)]
