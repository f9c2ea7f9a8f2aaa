"""Unique constraints of a target's owner: each statement that the error names lets the same number through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowctl.errors import TableError
from flowctl.model.mode import Mode
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import Writer, row, upserts

#: The engine hands over a batch as in every suite of targets; what happens then is the database's.
pytestmark = pytest.mark.long_on_spark

#: The constraint, and how many statements the error names.
KINDS = {
    "sqlite": [
        ("CREATE UNIQUE INDEX one ON {table} (name)", 1),
        ("CREATE UNIQUE INDEX one ON {table} (name, amount IS NULL)", 1),
        ('CREATE UNIQUE INDEX "a ""b" ON {table} (name) WHERE id > 0', 1),
    ],
    "postgres": [
        ("CREATE UNIQUE INDEX one ON {table} (name)", 2),
        ("CREATE UNIQUE INDEX one ON {table} (name DESC)", 1),
        ("CREATE UNIQUE INDEX one ON {table} (name text_pattern_ops)", 1),
        ("CREATE UNIQUE INDEX one ON {table} (lower(name))", 1),
        ('CREATE UNIQUE INDEX "a ""B%s" ON {table} (name) WHERE id > 0', 1),
        ('ALTER TABLE {table} ADD CONSTRAINT "a ""B" UNIQUE (name) INCLUDE (id)', 2),
        ("ALTER TABLE {table} ADD PRIMARY KEY (name)", 2),
        ("ALTER TABLE {table} ADD UNIQUE (name); CREATE TABLE child (name text REFERENCES {table} (name))", 0),
    ],
}
CASES = [(kind, constraint, count) for kind, some in KINDS.items() for constraint, count in some]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES[request.param](request, tmp_path, scratch) as opened:
        yield opened


def refused(writer: Writer, rows: list[dict[str, object]], seq: int, mode: Mode) -> TableError:
    with pytest.raises(TableError, match="has a unique constraint, ") as raised:
        writer.write(rows, seq, mode)
    return raised.value


def statements(error: TableError) -> list[str]:
    return re.findall("`(.*?)`", error.hint)


@pytest.mark.parametrize(("place", "constraint", "count"), CASES, indirect=["place"])
def test_rows_that_exchange_values(writer: Writer, constraint: str, count: int) -> None:
    writer.write(upserts(row(1, "a"), row(2, "b")), 1, "merge")
    writer.place.execute(constraint)
    exchanged = upserts(row(1, "b"), row(2, "a"))
    ways = statements(refused(writer, exchanged, 2, "merge"))
    assert len(ways) == count
    if not ways:
        return
    writer.place.execute(ways[0])
    writer.write(exchanged, 2, "merge")
    assert sorted(writer.place.read(["id", "name"])) == [(1, "b"), (2, "a")]
    if len(ways) == 2:
        assert ways[0].endswith("DEFERRABLE")
        twice = refused(writer, upserts(row(3, "a")), 3, "merge")
        assert "if the source does not have it twice; " in twice.hint
        (way,) = statements(twice)
        writer.place.execute(way)
        writer.write(upserts(row(3, "a")), 3, "merge")


@pytest.mark.parametrize("place", ["duckdb", "sqlite", "postgres"], indirect=True)
def test_rows_that_are_twice(writer: Writer) -> None:
    writer.write([row(1, "a")], 1)
    writer.place.execute("CREATE UNIQUE INDEX one ON {table} (name)")
    appended = refused(writer, [row(2, "a")], 2, "append")
    assert "another row of the table has its value" in appended.message and "--full-refresh" in appended.hint
    replaced = refused(writer, [row(2, "b"), row(3, "b")], 2, "truncate")
    assert "the source has its value in two rows" in replaced.message and "--full-refresh" not in replaced.hint
    writer.write([row(2, "a")], 2, "truncate")


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_constraint_of_the_table_itself(writer: Writer) -> None:
    """SQLite drops none: only the table without it."""
    columns = "id INTEGER PRIMARY KEY, name TEXT, amount TEXT, UNIQUE (name, amount)"
    writer.write([{**row(1, "a"), "amount": None}], 1)
    writer.place.execute("DROP TABLE {table}")
    writer.place.execute(f"CREATE TABLE {{table}} ({columns})")
    writer.write([row(1, "a")], 2)
    told = refused(writer, [row(1, "b")], 3, "append")
    assert "PRIMARY KEY (id)" in told.message and "write to a table without it" in told.hint


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_a_constraint_of_another_table_is_none_of_this(writer: Writer) -> None:
    writer.write([row(1, "a")], 1)
    writer.place.execute("CREATE TABLE log (name TEXT UNIQUE)")
    if writer.place.type == "sqlite":
        body = "BEGIN INSERT INTO log VALUES (new.name); END"
    else:
        function = "CREATE FUNCTION logged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN new; END $$"
        writer.place.execute(function.replace("{}", "INSERT INTO log VALUES (new.name);"))
        body = "FOR EACH ROW EXECUTE FUNCTION logged()"
    writer.place.execute(f"CREATE TRIGGER logging AFTER INSERT ON {{table}} {body}")
    with pytest.raises(TableError) as raised:
        writer.write([row(2, "a"), row(3, "a")], 2)
    assert "has a unique constraint, " not in raised.value.message
