"""What only an SQLite target has: a file that may be locked, copied or not there yet."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from flowctl.connectors import bounds
from flowctl.connectors.base import Scratch
from flowctl.errors import StateConflict, TransientError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array
from tests.connectors.target_matrix import Place, sqlite
from tests.connectors.writing import COLUMNS, Writer, upserts

ROW = {"id": 1, "name": "a", "amount": None}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Scratch) -> Iterator[Place]:
    with sqlite(request, tmp_path, scratch) as opened:
        yield opened


@pytest.fixture
def outsider(writer: Writer) -> Iterator[sqlite3.Connection]:
    """Somebody else's connection to the file."""
    writer.write([ROW], 1)
    connection = sqlite3.connect(writer.place.options["path"], isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_locked_file_is_tried_again_later(
    writer: Writer, outsider: sqlite3.Connection, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = writer.job(2, "append")
    monkeypatch.setattr(bounds, "SQLITE_LOCK", 0.1)
    outsider.execute(lock)
    with pytest.raises(TransientError, match="locked"):
        writer.place.target.write(writer.spark, writer.frame([ROW], COLUMNS), job)
    outsider.execute("ROLLBACK")
    assert writer.place.target.write(writer.spark, writer.frame([ROW], COLUMNS), job).seq == 2


def test_a_reader_that_is_in_the_middle_keeps_its_moment(writer: Writer, outsider: sqlite3.Connection) -> None:
    outsider.execute("PRAGMA journal_mode = WAL")
    outsider.execute("BEGIN")
    table = f'"{writer.place.object}"'
    assert outsider.execute(f"SELECT id FROM {table}").fetchall() == [(1,)]
    writer.write([{**ROW, "id": 2}], 2, "truncate")
    assert outsider.execute(f"SELECT id FROM {table}").fetchall() == [(1,)]
    outsider.execute("COMMIT")
    assert outsider.execute(f"SELECT id FROM {table}").fetchall() == [(2,)]


def test_a_file_stays_the_same_target_when_it_is_moved(writer: Writer) -> None:
    target, object = writer.place.target, writer.place.object
    before = writer.write([ROW], 1).target_id
    path = Path(writer.place.options["path"])
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)
    assert target.describe([object])[object].identity == before
    assert writer.write([ROW], 2).target_id == before


def test_another_file_in_its_place_is_another_target(writer: Writer) -> None:
    writer.write([ROW], 1)
    job = writer.job(2, "append")
    path = Path(writer.place.options["path"])
    path.rename(path.with_suffix(".old"))
    with pytest.raises(StateConflict, match="intent was for"):
        writer.place.target.write(writer.spark, writer.frame([ROW], COLUMNS), job)


def test_columns_that_others_have_added_keep_their_values(writer: Writer) -> None:
    writer.write(upserts(ROW), 1, "merge")
    writer.place.execute("ALTER TABLE {table} ADD COLUMN theirs TEXT DEFAULT 'kept'")
    writer.write(upserts({**ROW, "name": "b"}, {**ROW, "id": 2}), 2, "merge")
    assert sorted(writer.place.read(["id", "name", "theirs"])) == [(1, "b", "kept"), (2, "a", "kept")]


def test_arrays_of_arrays_come_back(writer: Writer) -> None:
    columns = (Column("id", types.INT64), Column("nested", Array(Array(types.Decimal(4, 1)))))
    nested = [[Decimal("1.5"), None], [], None]
    writer.write([{"id": 1, "nested": nested}], 1, columns=columns)
    (found,) = writer.place.target.scan(writer.spark, writer.place.object, columns).collect()
    assert found["nested"] == nested
