"""Append over changing sources, by command line: every row once, or the table stops and its next steps work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows, sqlite_script

FLOW = """
version: 1
flow: logs
state: state
spark: {url: sail}
connections:
  src: {type: sqlite, path: src.db}
  dst: {type: sqlite, path: dst.db}
defaults: {to: dst, mode: append, cursor: {column: at}}
tables:
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


def start(flow: Flow, **tables: str) -> None:
    """A flow over these tables, each with lines `a` and `b` at 1 and `c` at 2, after its first run."""
    flow.write(FLOW + "".join(f"  {name}: {{from: src:{name}{more}}}\n" for name, more in tables.items()))
    for name in tables:
        change(flow, f"CREATE TABLE {name} (at INTEGER, line TEXT, host TEXT)")
        change(flow, f"INSERT INTO {name} VALUES (1, 'a', 'h'), (1, 'b', 'h'), (2, 'c', 'h')")
    flow.apply()


def change(flow: Flow, script: str) -> None:
    sqlite_script(flow.folder / "src.db", script)


def lines(flow: Flow, table: str) -> str:
    return "".join(line for (line,) in sqlite_rows(flow.folder / "dst.db", f"SELECT line FROM {table}"))


def hint(flow: Flow, table: str) -> str:
    (step,) = flow.plan("--select", table, expect=6)["steps"]
    return str(step["hint"])


def test_changed_columns_and_late_equal_rows_neither_double_nor_lose_rows(flow: Flow) -> None:
    start(flow, added="", excluded="", equal="", dropped="", renamed="")
    change(flow, "ALTER TABLE added ADD COLUMN level TEXT DEFAULT 'info'; INSERT INTO added VALUES (3, 'd', 'h', 'x')")
    change(flow, "INSERT INTO excluded VALUES (2, 'C', 'g'), (3, 'd', 'h')")
    change(flow, "INSERT INTO equal VALUES (2, 'c', 'h'), (2, 'c', 'h'), (3, 'd', 'h')")
    change(flow, "ALTER TABLE dropped DROP COLUMN host; INSERT INTO dropped VALUES (3, 'd')")
    change(flow, "ALTER TABLE renamed RENAME COLUMN host TO machine; INSERT INTO renamed VALUES (3, 'd', 'h')")
    flow.write(flow.spec.read_text().replace("src:excluded", "src:excluded, columns: {exclude: [host]}"))
    flow.run("state", "set", "flow.yaml", "excluded", "--accept-definition", "--yes", expect=0)
    flow.apply(expect=6)
    assert (lines(flow, "added"), lines(flow, "excluded"), lines(flow, "equal")) == ("abcd", "Cabcd", "abcccd")
    assert (lines(flow, "dropped"), lines(flow, "renamed")) == ("abc", "abc")
    assert "`flowctl state set flow.yaml dropped --position 2`" in hint(flow, "dropped")
    assert "--full-refresh renamed" in hint(flow, "renamed")
    flow.run("state", "set", "flow.yaml", "dropped", "--position", "2", "--yes", expect=0)
    flow.apply("--select", "dropped", "--select", "renamed", "--full-refresh", "renamed")
    assert (lines(flow, "dropped"), lines(flow, "renamed")) == ("abcd", "abcd")
