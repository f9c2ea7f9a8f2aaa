"""A value that a target cannot store: its table alone fails, and the next steps that are named work in a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import SqlitePlace
from tests.e2e.streams.test_tables import execute

pytestmark = [pytest.mark.server, pytest.mark.full]

NUMBERS = '  numbers: {from: "cdc:public.numbers", to: "lite:numbers", mode: merge}\n'
OTHERS = '  others: {from: "cdc:public.others", to: "lite:others", mode: merge}\n'


def test_the_column_is_left_out(tmp_path: Path, postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE numbers (id int PRIMARY KEY, value float8, text text)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO numbers VALUES (1, 1.5, 'a')",
    )
    flow = write_flow(tmp_path, postgres_database, [], NUMBERS + OTHERS, "on_table_error: detach")
    flow.apply()
    execute(postgres_database, "INSERT INTO numbers VALUES (2, 'NaN', 'b')", "INSERT INTO others VALUES (2)")
    done = flow.run("apply", "flow.yaml", expect=4)
    there = SqlitePlace(tmp_path / "lite.db")
    assert "in a stream, leave the column out with `columns.exclude`" in done.words
    assert there.rows("others", ["id"]) == [("2",)]
    flow.write(flow.spec.read_text().replace("mode: merge}", "mode: merge, columns: {exclude: [value]}}", 1))
    done = flow.run("apply", "flow.yaml", expect=6)
    assert "flowctl state set flow.yaml numbers --accept-definition" in done.words
    flow.run("state", "set", "flow.yaml", "numbers", "--accept-definition", "--yes", expect=0)
    flow.apply()
    assert there.rows("numbers", ["id", "value", "text"]) == [("1", "1.5", "a"), ("2", None, "b")]
