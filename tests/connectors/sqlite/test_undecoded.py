"""Text that is not UTF-8 fails its table, and no message shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.source import Relation
from flowctl.connectors.sqlite.source import SqliteSource
from flowctl.errors import TableError
from tests.connectors.reading import captured_rows, opened, table


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Any]:
    with opened("sqlite", base_dir=str(tmp_path), path="shop.db") as connector:
        yield connector.source


@pytest.mark.parametrize(("options", "where"), [("", r", first in rowid 2$"), (" WITHOUT ROWID", "$")])
def test_text_that_is_not_utf8_is_not_shown(
    database: sqlite3.Connection, source: SqliteSource, options: str, where: str
) -> None:
    database.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, email TEXT){options}")
    database.execute("INSERT INTO t VALUES (1, 'a'), (2, CAST(x'6dfc6c6c65722e736563726574' AS TEXT)), (3, x'ff')")
    with pytest.raises(TableError, match=f"column email holds text that is not UTF-8{where}") as refused:
        captured_rows(source, table("t"))
    assert "secret" not in f"{refused.value} {refused.value.hint}" and "hex()" in refused.value.hint
    as_hex = Relation(None, query="SELECT id, hex(email) AS email FROM t")
    assert [row["email"] for row in captured_rows(source, as_hex)] == ["61", "6DFC6C6C65722E736563726574", "FF"]


def test_nor_is_it_where_a_position_or_a_target_is_looked_at(
    database: sqlite3.Connection, source: SqliteSource
) -> None:
    database.execute("CREATE TABLE t (at TEXT)")
    database.execute("INSERT INTO t VALUES (CAST(x'6dfc6c6c65722e736563726574' AS TEXT))")
    with pytest.raises(TableError, match="column at holds text that is not UTF-8") as refused, source.reading() as read:
        read.execute("SELECT at FROM t").fetchall()
    assert "secret" not in str(refused.value)
