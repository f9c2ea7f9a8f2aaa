"""Append over changing sources, by command line: every row once, or the table stops and its next steps work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows, sqlite_script

pytestmark = pytest.mark.server

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


def set_position(flow: Flow, table: str, *options: str) -> None:
    flow.run("state", "set", "flow.yaml", table, "--position", *options, "--yes", expect=0)


def hint(flow: Flow, table: str) -> str:
    (step,) = flow.plan("--select", table, expect=6)["steps"]
    return str(step["hint"])


@pytest.mark.full
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
    set_position(flow, "dropped", "2")
    of_renamed = 'src:renamed, on_schema_change: {dropped_column: "null"}'  # the old name's values are replaced, too
    flow.write(flow.spec.read_text().replace("src:renamed", of_renamed))
    flow.apply("--select", "dropped", "--select", "renamed", "--full-refresh", "renamed")
    assert (lines(flow, "dropped"), lines(flow, "renamed")) == ("abcd", "abcd")


def test_a_source_that_was_emptied_refilled_or_made_anew_stops_append_and_each_next_step_works(flow: Flow) -> None:
    start(flow, again="", refilled="", emptied="", anew="", purged="", old="")
    remade = "CREATE TABLE {0} (at INTEGER, line TEXT, host TEXT); INSERT INTO {0} VALUES (1, 'x', 'h')"
    for table in ("again", "refilled"):
        change(flow, f"DROP TABLE {table}; {remade.format(table)}")
    change(flow, "DELETE FROM emptied")
    change(flow, f"DROP TABLE anew; {remade.format('anew')}, (2, 'y', 'h'), (3, 'z', 'h')")
    for table in ("purged", "old"):
        change(flow, f"DELETE FROM {table}; INSERT INTO {table} VALUES (3, 'd', 'h')")
    flow.apply(expect=6)
    assert {lines(flow, table) for table in ("again", "refilled", "emptied", "anew", "purged", "old")} == {"abc"}
    assert "guard: {allow_purged: true}" in hint(flow, "old")
    flow.write(flow.spec.read_text().replace("src:old", "src:old, guard: {allow_purged: true}"))
    assert "--position beginning --append-again`" in hint(flow, "again")
    set_position(flow, "again", "beginning", "--append-again")
    assert "--position 1 --append-again`" in hint(flow, "refilled")
    set_position(flow, "refilled", "1", "--append-again")
    set_position(flow, "emptied", "2")
    assert "--position 2`" in hint(flow, "purged")
    set_position(flow, "purged", "2")
    for table, line in (("again", "n"), ("refilled", "n"), ("emptied", "n")):
        change(flow, f"INSERT INTO {table} VALUES (3, '{line}', 'h')")
    flow.apply("--full-refresh", "anew")
    assert [lines(flow, table) for table in ("again", "refilled", "emptied", "anew", "purged", "old")] == [
        "abcnx", "abcn", "abcn", "xyz", "abcd", "abcd"
    ]  # fmt: skip
    assert set(flow.actions().values()) == {"none"}


MERGE = """
  moved: {from: src:moved, mode: merge, key: [line], cursor: {column: at}}
  history: {from: src:moved, mode: scd2, key: [line], cursor: {column: at}, scd2: {valid_from: at_time}}
"""


@pytest.mark.full
def test_a_merge_finds_the_row_that_moved_back_behind_its_position(flow: Flow) -> None:
    flow.write(FLOW.replace("mode: append, cursor: {column: at}", "").replace("dst, }", "dst}") + MERGE)
    change(flow, "CREATE TABLE moved (at INTEGER, line TEXT, host TEXT, at_time TIMESTAMP)")
    rows = ", ".join(f"({n}, '{line}', 'h', '2026-01-0{n} 00:00:00')" for n, line in ((1, "a"), (2, "b"), (5, "c")))
    change(flow, f"INSERT INTO moved VALUES {rows}")
    flow.apply()
    change(flow, "UPDATE moved SET at = 1, host = 'new', at_time = '2026-01-06 00:00:00' WHERE line = 'c'")
    flow.apply()
    assert sqlite_rows(flow.folder / "dst.db", "SELECT line, host FROM moved") == [("a", "h"), ("b", "h"), ("c", "new")]
    current = "SELECT line, host FROM history WHERE is_current"
    assert sqlite_rows(flow.folder / "dst.db", current) == [("a", "h"), ("b", "h"), ("c", "new")]
    change(flow, "INSERT INTO moved VALUES (3, 'd', 'h', '2026-01-07 00:00:00'); DELETE FROM moved WHERE line = 'b'")
    flow.apply()
    assert ("d", "h") in sqlite_rows(flow.folder / "dst.db", "SELECT line, host FROM moved")
    assert set(flow.actions().values()) == {"none"}


@pytest.mark.full
def test_a_number_given_up_does_not_hide_how_far_the_target_has_come(flow: Flow) -> None:
    """The target's newest number is a void when the state is rolled back."""
    start(flow, log="")
    change(flow, "INSERT INTO log VALUES (3, 'd', 'h')")
    flow.apply()
    before = flow.run("state", "history", "flow.yaml", "--format", "json", expect=0).json()["versions"]
    change(flow, "INSERT INTO log VALUES (4, 'e', 'h')")
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=-9)
    set_position(flow, "log", "3")
    flow.apply(env={"FLOWCTL_CRASH_AT": "before_intent"}, expect=-9)
    commits = sqlite_rows(flow.folder / "dst.db", "SELECT seq, void FROM _flowctl_commits")
    assert commits[-1] == (3, 1)
    flow.run("state", "rollback", "flow.yaml", "--to", str(before[-3]["serial"]), "--yes", expect=0)
    assert "state adopt" in hint(flow, "log")
    flow.run("state", "adopt", "flow.yaml", "log", "--yes", expect=0)
    flow.apply()
    assert lines(flow, "log") == "abcde"
