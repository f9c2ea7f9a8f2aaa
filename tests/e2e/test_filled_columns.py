"""Columns of a target that flowctl does not write: the database fills them, no write touches what they hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from tests.e2e.flows import Flow, Row, postgres_rows, sqlite_rows, sqlite_script

pytestmark = pytest.mark.full

STOPPED = 6
#: Made by somebody else, then adopted; and made by flowctl, then changed by somebody else.
ADOPTED = {
    "added": "mode: append, cursor: {column: at}",
    "merged": "mode: merge, key: [id], cursor: {column: at}",
    "flagged": "mode: merge, key: [id], cursor: {column: at}, deletes: {detect: flag, column: gone, action: soft}",
    "replaced": 'mode: truncate, on_schema_change: {dropped_column: "null"}',
}
MADE = {"history": "mode: scd2, key: [id], cursor: {column: at}, scd2: {valid_from: now}", **ADOPTED}
CONNECTIONS = {"postgres": "{type: postgres, url: '${secret:env:PG_URL}'}", "sqlite": "{type: sqlite, path: target.db}"}
FILLED = {
    "postgres": "sk bigint GENERATED ALWAYS AS IDENTITY, up text GENERATED ALWAYS AS (upper(note)) STORED,"
    " ser bigserial, origin text NOT NULL DEFAULT 'here'",
    "sqlite": "sk INTEGER PRIMARY KEY, up TEXT GENERATED ALWAYS AS (upper(note)) STORED,"
    " low TEXT AS (lower(note)), origin TEXT NOT NULL DEFAULT 'here'",
}
LATER = {
    "postgres": ("sk bigint GENERATED ALWAYS AS IDENTITY", "up text GENERATED ALWAYS AS (upper(note)) STORED",
                 "origin text NOT NULL DEFAULT 'here'"),
    "sqlite": ("up TEXT GENERATED ALWAYS AS (upper(note)) VIRTUAL", "origin TEXT NOT NULL DEFAULT 'here'"),
}  # fmt: skip
#: A table by SQL reads what others have put into a table, too.
SQL = "SELECT id, up, origin FROM {{ ref('merged') }}"
REPORT = f'  report: {{from: {{sql: "{SQL}"}}, to: "dst:report", mode: truncate}}\n'


class Shop(Flow):
    """A flow with one table of each of some modes, all of one source."""

    def __init__(self, folder: Path, kind: str, url: str) -> None:
        super().__init__(folder, {"PG_URL": url})
        self.kind, self.url = kind, url
        rows = "(1, 'a', 1, 0), (2, 'b', 2, 0)"
        self.source("CREATE TABLE ev (id INTEGER PRIMARY KEY, note TEXT, at INTEGER, gone BOOLEAN)")
        self.source(f"INSERT INTO ev VALUES {rows}")

    def tables(self, modes: dict[str, str], more: str = "", report: str = "") -> None:
        listed = "".join(
            f'  {name}: {{from: src:ev, to: "dst:{name}", {mode}{more}}}\n' for name, mode in modes.items()
        )
        engine = "local[2]" if report else "sail"  # SQL needs Spark
        self.write(
            f"version: 1\nflow: shop\nstate: state\nspark: {{url: '{engine}'}}\nconnections:\n"
            f"  src: {{type: sqlite, path: source.db}}\n  dst: {CONNECTIONS[self.kind]}\ntables:\n{listed}{report}"
        )

    def source(self, script: str) -> None:
        sqlite_script(self.folder / "source.db", script)

    def target(self, script: str) -> None:
        if self.kind == "sqlite":
            sqlite_script(self.folder / "target.db", script)
            return
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(script)

    def rows(self, query: str) -> list[Row]:
        if self.kind == "sqlite":
            return sqlite_rows(self.folder / "target.db", query)
        return postgres_rows(self.url, query)

    def adopt(self, names: Sequence[str], *more: str) -> None:
        for name in names:
            self.run("state", "adopt", "flow.yaml", name, "--yes", *more, expect=0)


@pytest.mark.parametrize("kind", list(CONNECTIONS))
def test_an_adopted_table_keeps_what_the_database_fills(kind: str, tmp_path: Path, postgres_database: str) -> None:
    shop = Shop(tmp_path, kind, postgres_database)
    shop.tables(ADOPTED, report=REPORT)
    for name in ADOPTED:
        gone = ", gone boolean" if name != "flagged" else ""
        shop.target(f"CREATE TABLE {name} ({FILLED[kind]}, id bigint, note text, at bigint{gone})")
    shop.target("INSERT INTO merged (id, note, at, origin) VALUES (1, 'old', 0, 'there')")
    shop.adopt(["merged", "flagged", "replaced"])
    shop.adopt(["added"], "--position", "beginning")
    shop.apply()
    shop.source("UPDATE ev SET note = 'aa', at = 3 WHERE id = 1; INSERT INTO ev VALUES (4, 'd', 4, 0)")
    shop.apply()
    others = [(2, "b", "B", "here"), (4, "d", "D", "here")]
    assert shop.rows("SELECT id, note, up, origin FROM merged") == [(1, "aa", "AA", "there"), *others]
    assert shop.rows("SELECT id, note, up, origin FROM replaced") == [(1, "aa", "AA", "here"), *others]
    assert len(shop.rows("SELECT DISTINCT sk FROM added WHERE origin = 'here'")) == 4
    assert len(shop.rows("SELECT DISTINCT sk FROM flagged WHERE origin = 'here'")) == 3
    assert shop.actions() == dict.fromkeys(ADOPTED, "none") | {"replaced": "change", "report": "none"}
    assert shop.rows("SELECT * FROM report") == shop.rows("SELECT id, up, origin FROM merged")
    with pytest.raises((psycopg.Error, sqlite3.Error), match=r"(?i)not[ -]null"):
        shop.target("UPDATE merged SET origin = NULL")  # still refused


@pytest.mark.parametrize("kind", list(CONNECTIONS))
def test_columns_that_are_added_later_are_left_to_the_database(
    kind: str, tmp_path: Path, postgres_database: str
) -> None:
    shop = Shop(tmp_path, kind, postgres_database)
    shop.tables(MADE)
    shop.apply()
    for name in MADE:
        for column in LATER[kind]:
            shop.target(f"ALTER TABLE {name} ADD COLUMN {column}")
        shop.target(f"UPDATE {name} SET origin = 'there'")
    shop.source("UPDATE ev SET note = 'aa', at = 3 WHERE id = 1; INSERT INTO ev VALUES (4, 'd', 4, 0)")
    shop.apply()
    new, old = (4, "d", "D", "here"), (2, "b", "B", "there")
    for name in ("merged", "flagged"):
        assert shop.rows(f"SELECT id, note, up, origin FROM {name}") == [(1, "aa", "AA", "there"), old, new]
    assert shop.rows("SELECT id, note, up, origin FROM history") == [
        (1, "a", "A", "there"), (1, "aa", "AA", "here"), old, new]  # fmt: skip
    assert {row[-1] for row in shop.rows("SELECT id, origin FROM replaced")} == {"here"}
    assert old in shop.rows("SELECT id, note, up, origin FROM added")

    # A full refresh would lose what others have put into their columns, and says so.
    told = shop.plan("--full-refresh", "merged", expect=STOPPED)["steps"]
    (stopped,) = (step for step in told if step["action"] == "stop")
    assert stopped["id"] == "merged" and "replacing the content would lose its values" in stopped["reason"]
    shop.tables({**MADE, "merged": MADE["merged"] + ', on_schema_change: {dropped_column: "null"}'})
    shop.apply("--full-refresh", "merged")
    filled = [(1, "aa", "AA", "here"), (2, "b", "B", "here"), new]
    assert shop.rows("SELECT id, note, up, origin FROM merged") == filled


@pytest.mark.parametrize("kind", list(CONNECTIONS))
def test_a_column_that_takes_no_value_stops_the_plan_until_it_is_left_out(
    kind: str, tmp_path: Path, postgres_database: str
) -> None:
    shop = Shop(tmp_path, kind, postgres_database)
    modes = {name: ADOPTED[name] for name in ("added", "merged", "replaced")}
    shop.tables(modes)
    computed = "GENERATED ALWAYS AS (id + 1) STORED"
    for name in modes:
        shop.target(f"CREATE TABLE {name} (id bigint, note text, at bigint {computed}, gone boolean)")
    shop.adopt(["merged", "replaced"])
    shop.adopt(["added"], "--position", "beginning")
    told = shop.apply(expect=STOPPED).words
    assert told.count('column "at" is GENERATED ALWAYS AS, so the database takes no value for it') == 3, told
    assert "columns: {exclude: [at]}" in told
    shop.tables(modes, ", columns: {exclude: [at]}")
    shop.apply()
    for name in modes:
        assert shop.rows(f"SELECT id, at FROM {name}") == [(1, 2), (2, 3)]
    shop.tables(modes, ", columns: {rename: {at: source_at}}")
    for name in modes:
        shop.run("state", "set", "flow.yaml", name, "--accept-definition", "--yes", expect=0)
    shop.source("INSERT INTO ev VALUES (4, 'd', 4, 0)")
    shop.apply()
    for name in modes:
        assert (4, 5, 4) in shop.rows(f"SELECT id, at, source_at FROM {name}")
