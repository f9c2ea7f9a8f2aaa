"""A partitioned table whose partitions come and go: new ones are followed, and what has no change stops the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, Row
from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import SqlitePlace, must_equal
from tests.e2e.streams.test_tables import execute

pytestmark = [pytest.mark.server, pytest.mark.full]

SCHEMA = """
    CREATE TABLE days (id int, day int, value text, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
    CREATE TABLE day1 PARTITION OF days FOR VALUES IN (1);
    CREATE TABLE day2 PARTITION OF days FOR VALUES IN (2);
    INSERT INTO days VALUES (1, 1, 'a'), (2, 2, 'b')
"""
DAYS = '  days: {from: "cdc:public.days", to: "lite:days", mode: merge}\n'


def begun(folder: Path, url: str) -> Flow:
    execute(url, SCHEMA)
    flow = write_flow(folder, url, [], DAYS)
    flow.apply()
    return flow


def days(folder: Path) -> list[Row]:
    return SqlitePlace(folder / "lite.db").rows("days", ["id", "day"])


def test_partitions_come_and_go(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database)
    execute(postgres_database, "CREATE TABLE day3 PARTITION OF days FOR VALUES IN (3)")
    execute(postgres_database, "INSERT INTO days VALUES (3, 3, 'c')")
    flow.apply()
    execute(postgres_database, "DROP TABLE day1", "INSERT INTO days VALUES (4, 3, 'd')")
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "public.day1 was detached or dropped" in done.words
    assert days(tmp_path) == [("1", "1"), ("2", "2"), ("3", "3")]
    flow.run("state", "resnapshot", "flow.yaml", "days", "--yes", expect=0)
    flow.apply()
    must_equal(postgres_database, SqlitePlace(tmp_path / "lite.db"), ["days"])


def test_a_target_keeps_what_the_source_has_dropped(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database)
    execute(postgres_database, "ALTER TABLE days DETACH PARTITION day1", "INSERT INTO days VALUES (4, 2, 'd')")
    flow.run("apply", "flow.yaml", expect=6)
    flow.run("state", "set", "flow.yaml", "days", "--accept-definition", "--yes", expect=0)
    flow.apply()
    assert days(tmp_path) == [("1", "1"), ("2", "2"), ("4", "2")]
    flow.write(flow.spec.read_text().replace("batch:", "on_truncate: ignore, batch:"))
    execute(postgres_database, "INSERT INTO days VALUES (5, 2, 'd')", "DROP TABLE day2")
    flow.apply()
    assert days(tmp_path) == [("1", "1"), ("2", "2"), ("4", "2"), ("5", "2")]


def test_a_table_with_children_is_read_without_the_stream(tmp_path: Path, postgres_database: str) -> None:
    """The next step of the plan."""
    execute(
        postgres_database,
        "CREATE TABLE parent (id int PRIMARY KEY, value text)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "INSERT INTO parent VALUES (1, 'p')",
        "INSERT INTO child VALUES (2, 'c')",
    )
    flow = write_flow(tmp_path, postgres_database, ["lite"])
    done = flow.run("apply", "flow.yaml", expect=6)
    step = "Exclude public.parent, and read it with an entry of its own: `from: source:public.parent`"
    assert "public.parent has the rows of public.child by inheritance" in done.words and step in done.words
    entry = '  parent: {from: "source:public.parent", to: "lite:parent", mode: merge, key: [id]}\n'
    pattern = 'from: "cdc:public.*"'
    flow.write(flow.spec.read_text().replace(pattern, f"{pattern}, exclude: [parent]") + entry)
    flow.apply()
    execute(postgres_database, "UPDATE child SET value = 'changed'", "INSERT INTO child VALUES (3, 'new')")
    flow.apply()
    there = SqlitePlace(tmp_path / "lite.db")
    assert there.rows("parent", ["id", "value"]) == [("1", "p"), ("2", "changed"), ("3", "new")]
    assert there.rows("child", ["id", "value"]) == [("2", "changed"), ("3", "new")]
