"""SQLite's file: one that is missing, that is no database, whose writer was killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from flowctl.connectors.sqlite.database import open_database, translated
from flowctl.errors import TableError, TransientError
from tests.connectors.reading import opened, table


@pytest.mark.parametrize(
    ("content", "message"), [(None, "there is no SQLite file"), ("just text, not a database", "is not an SQLite file")]
)
def test_what_is_not_there_is_not_made(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "other.db"
    if content is not None:
        file.write_text(content * 100)
    with opened("sqlite", path=str(file)) as connector, pytest.raises(TableError, match=message):
        connector.source.describe([table("t")])
    assert file.exists() == (content is not None)


def test_a_file_whose_writer_was_killed_in_its_commit(tmp_path: Path) -> None:
    """SQLite undoes the transaction at the next access, which a connection that only reads cannot do."""
    path = tmp_path / "killed.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(number, "x" * 500) for number in range(2000)])
        connection.commit()
    killed = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 5")
connection.execute("BEGIN")
connection.execute("UPDATE t SET b = ''")
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", killed, str(path)], check=False)
    assert path.with_name("killed.db-journal").exists()
    with open_database(path, "ro") as connection:
        assert connection.execute("SELECT count(*), min(b) FROM t").fetchone() == (2000, "x" * 500)


def test_a_lock_inside_this_process_is_tried_again_later(tmp_path: Path) -> None:
    """`SQLITE_LOCKED`: a statement of the same connection still reads the table."""
    path = tmp_path / "busy.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2)")
        reading = connection.execute("SELECT a FROM t")
        assert reading.fetchone() == (1,)
        with pytest.raises(TransientError, match="is locked"), translated(path):
            connection.execute("DROP TABLE t")
        reading.close()
