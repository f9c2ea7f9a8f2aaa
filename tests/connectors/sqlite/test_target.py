"""What only an SQLite target has: a file that may be locked, copied or not there yet."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from decimal import Decimal
from pathlib import Path

import pytest

from flowctl.connectors.sql import timeouts
from flowctl.errors import StateConflict, TableError, TransientError
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName
from flowctl.model.types import Array
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import describe
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.test_target_history import COLUMNS as HISTORY
from tests.connectors.test_target_history import seen
from tests.connectors.writing import COLUMNS, Writer, gone, row, upserts

#: The engine hands over a batch as in every suite of targets; what happens then is the database's.
pytestmark = pytest.mark.long_on_spark

ROW = {"id": 1, "name": "a", "amount": None}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["sqlite"](request, tmp_path, scratch) as opened:
        yield opened


@pytest.fixture
def outsider(writer: Writer) -> Iterator[sqlite3.Connection]:
    """Somebody else's connection to the file."""
    writer.write([ROW], 1)
    connection = sqlite3.connect(writer.place.options["path"], isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("made", "note", "next_step"),
    [
        ("CREATE INDEX i ON t (id); CREATE VIEW v AS SELECT * FROM t; ALTER TABLE t ADD d AS (id * 2)", None, None),
        ("CREATE INDEX i ON t (n)", "in use by index i", "Drop index i, run, and recreate it"),
        (
            "CREATE VIEW v AS SELECT n FROM t; CREATE INDEX i ON t (id) WHERE n > 1;"
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT new.n; END",
            "in use by index i, view v and trigger g",
            "Drop index i, view v and trigger g, run, and recreate them",
        ),
        (
            "ALTER TABLE t ADD d AS (n * 2)",
            "a computed column, a check or a key of the table uses it",
            "Drop the computed columns that use it, run, and recreate them; "
            "else drop the table and run it with --full-refresh",
        ),
        (
            "DROP TABLE t; CREATE TABLE t (id INT, n INT UNIQUE)",
            'SQLite says: cannot drop UNIQUE column: "n"',
            "Drop the table and run it with --full-refresh",
        ),
    ],
)
def test_a_column_that_something_uses_is_not_dropped(
    place: Place, made: str, note: str | None, next_step: str | None
) -> None:
    """The plan stops exactly where SQLite would."""
    asked = SchemaChange("n", "dropped_column", types.INT32, None, "drop", "--full-refresh")
    with closing(sqlite3.connect(place.options["path"], isolation_level=None)) as connection:
        connection.executescript(f"CREATE TABLE t (id INT, n INT); {made}")
        info = describe(place.target, ObjectName(("t",)))
        (change,) = place.target.alter_statements(info, [asked])
        assert (change.action, change.note, change.next_step) == (
            ("fail", note, next_step) if note else ("drop", "", "")
        )
        with pytest.raises(sqlite3.Error) if note else nullcontext():
            connection.execute("ALTER TABLE t DROP COLUMN n")


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_locked_file_is_tried_again_later(
    writer: Writer, outsider: sqlite3.Connection, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = writer.job(2, "append")
    monkeypatch.setattr(timeouts, "FILE_LOCK", 0.1)
    outsider.execute(lock)
    with pytest.raises(TransientError, match="locked"):
        writer.place.target.write(writer.spark, writer.batch([ROW], COLUMNS), job)
    outsider.execute("ROLLBACK")
    assert writer.place.target.write(writer.spark, writer.batch([ROW], COLUMNS), job).seq == 2


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
    assert describe(target, object).identity == before
    assert writer.write([ROW], 2).target_id == before


def test_another_file_in_its_place_is_another_target(writer: Writer) -> None:
    writer.write([ROW], 1)
    job = writer.job(2, "append")
    path = Path(writer.place.options["path"])
    path.rename(path.with_suffix(".old"))
    with pytest.raises(StateConflict, match="was replaced since this sequence number was begun"):
        writer.place.target.write(writer.spark, writer.batch([ROW], COLUMNS), job)


@pytest.mark.parametrize(
    ("columns", "filled"),
    [
        ("(id INTEGER PRIMARY KEY)", {"id": "default"}),
        ("(id INTEGER PRIMARY KEY) WITHOUT ROWID", {}),
        ("(id INTEGER, other INTEGER, PRIMARY KEY (id, other))", {}),
        ("(id INT, two AS (id * 2), six AS (id * 6) STORED)", {"two": "computed", "six": "computed"}),
        (
            "(at TEXT DEFAULT CURRENT_TIMESTAMP, no INT DEFAULT NULL, id INT DEFAULT 0)",
            {"at": "default", "id": "default"},
        ),
    ],
)
def test_columns_that_the_database_fills_are_described(
    writer: Writer, outsider: sqlite3.Connection, columns: str, filled: dict[str, str]
) -> None:
    outsider.execute(f"CREATE TABLE made {columns}")
    target, object = writer.place.target, ObjectName(("made",))
    assert target is not None
    info = describe(target, object)
    assert target.filled_columns(info) == filled


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


@pytest.mark.parametrize("event", ["INSERT", "UPDATE", "DELETE"])
def test_a_trigger_that_leaves_rows_out_is_no_commit(writer: Writer, event: str) -> None:
    writer.write(upserts(row(1), row(2)), 1, "merge")
    writer.place.execute(f"CREATE TRIGGER one BEFORE {event} ON {{table}} BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(TableError, match="accepted 0 of 1 rows: one of its triggers or rules"):
        writer.write([*upserts(row(1, "b"), row(3)), gone(2)], 2, "merge")
    assert writer.committed().seq == 1
    assert sorted(writer.place.read(["id", "name"])) == [(1, "a"), (2, "a")]


@pytest.mark.parametrize("mode", ["truncate", "merge", "scd2"])
def test_a_trigger_that_keeps_what_is_replaced_is_no_commit(writer: Writer, mode: Mode) -> None:
    more = {"key": ("id",), "columns": HISTORY} if mode == "scd2" else {}
    rows = {"truncate": [row(1), row(2)], "merge": upserts(row(1), row(2)), "scd2": [seen("a", 1)]}[mode]
    writer.write(rows, 1, mode, **more)
    kept = writer.place.read(["id", "name"])
    writer.place.execute("CREATE TRIGGER one BEFORE DELETE ON {table} BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(TableError, match=f"accepted 0 of {len(kept)} rows: one of its triggers or rules"):
        writer.write(rows, 2, mode, replace=True, **more)
    assert writer.place.read(["id", "name"]) == kept


def test_a_trigger_that_leaves_out_what_is_appended_is_no_commit(writer: Writer) -> None:
    writer.write([row(1)], 1)
    writer.place.execute("CREATE TRIGGER one BEFORE INSERT ON {table} WHEN new.id = 2 BEGIN SELECT RAISE(IGNORE); END")
    for mode in ("append", "truncate"):
        with pytest.raises(TableError, match="accepted 1 of 2 rows"):
            writer.write([row(2), row(3)], 2, mode)
    assert writer.place.read(["id"]) == [(1,)]


def test_a_trigger_that_leaves_out_a_version_is_no_commit(writer: Writer) -> None:
    history = {"key": ("id",), "columns": HISTORY}
    writer.write([seen("a", 1)], 1, "scd2", **history)
    writer.place.execute(
        "CREATE TRIGGER one BEFORE INSERT ON {table} WHEN new.is_current BEGIN SELECT RAISE(IGNORE); END"
    )
    with pytest.raises(TableError, match="accepted 1 of 2 rows"):
        writer.write([seen("b", 2)], 2, "scd2", **history)
    assert writer.place.read(["name", "is_current"]) == [("a", 1)]
