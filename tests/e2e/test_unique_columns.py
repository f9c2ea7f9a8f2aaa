"""Targets whose owner has made a column unique, and rows that exchange its values: each next step works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from tests.e2e.flows import Flow, Row, postgres_rows, sqlite_rows, sqlite_script

FLOW = """\
version: 1
flow: people
state: ./state
spark: {{url: sail}}
connections:
  source: {{type: sqlite, path: ./source.db}}
  out: {target}
tables:
  people: {{from: source:people, to: "out:people", mode: merge, key: [id]}}
"""

Kind = Literal["sqlite", "postgres"]


class People:
    """The flow, its target's own statements, and its rows."""

    def __init__(self, kind: Kind, folder: Path, url: str) -> None:
        secret = url.replace("etl-secret", "${secret:env:PG_PASSWORD}")
        target = "{type: sqlite, path: ./out.db}" if kind == "sqlite" else f'{{type: postgres, url: "{secret}"}}'
        self.flow = Flow(folder, {"PG_PASSWORD": "etl-secret"})
        self.flow.write(FLOW.format(target=target))
        self.kind, self.url = kind, url
        sqlite_script(folder / "source.db", "CREATE TABLE people (id INTEGER, email TEXT)")
        self.become("one", "two", "three")
        self.flow.apply()

    def become(self, *emails: str) -> None:
        """Those of the source, with ids from 1."""
        rows = ", ".join(f"({id}, '{email}')" for id, email in enumerate(emails, 1))
        sqlite_script(self.flow.folder / "source.db", f"DELETE FROM people; INSERT INTO people VALUES {rows}")

    def execute(self, statement: str) -> None:
        if self.kind == "sqlite":
            sqlite_script(self.flow.folder / "out.db", statement)
        else:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(statement)

    def agrees(self) -> bool:
        return self.rows() == sqlite_rows(self.flow.folder / "source.db", "SELECT id, email FROM people")

    def rows(self) -> list[Row]:
        query = "SELECT id, email FROM people"
        if self.kind == "sqlite":
            return sqlite_rows(self.flow.folder / "out.db", query)
        return postgres_rows(self.url, query)


INDEX = "CREATE UNIQUE INDEX unique_email ON people (email)"
CONSTRAINT = "ALTER TABLE people ADD CONSTRAINT unique_email UNIQUE (email)"


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "unique", "statements"),
    [
        ("sqlite", INDEX, ["DROP INDEX"]),
        pytest.param("postgres", INDEX, ["ALTER TABLE", "DROP INDEX"], marks=pytest.mark.full),
        pytest.param("postgres", CONSTRAINT, ["ALTER TABLE", "ALTER TABLE"], marks=pytest.mark.full),
    ],
)
def test_rows_that_exchange_unique_values(
    tmp_path: Path, postgres_database: str, kind: Kind, unique: str, statements: list[str]
) -> None:
    people = People(kind, tmp_path, postgres_database)
    people.execute(unique)
    people.become("two", "one", "three")
    told = people.flow.apply(expect=4).err
    assert "people has a unique constraint, unique_email" in told and "--full-refresh people" in told
    people.flow.apply("--full-refresh", "people")
    assert people.agrees()

    people.become("three", "one", "new")  # the third gives it up to the first
    ways = _statements(people.flow.apply(expect=4).err)
    assert [" ".join(way.split()[:2]) for way in ways] == statements
    people.execute(ways[0])
    people.flow.apply()
    assert people.agrees()
    if kind == "postgres":
        people.become("one", "three", "new")
        people.flow.apply()
        assert people.agrees()
        people.become("same", "same", "new")
        (way,) = _statements(people.flow.apply(expect=4).err)
        people.execute(way)
        people.flow.apply()
        assert people.agrees()


def _statements(told: str) -> list[str]:
    """Those of SQL that an error names."""
    return [way for way in re.findall("`(.*?)`", told) if not way.startswith("flowctl")]
