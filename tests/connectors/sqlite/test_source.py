"""SQLite as a source: values that fit their declared type exactly, one moment, cursors in the declared type's order."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.source import ReadRequest, Relation, WatermarkRequest
from flowctl.connectors.sqlite.database import open_database, readers_of
from flowctl.connectors.sqlite.session import SqliteSession
from flowctl.connectors.sqlite.source import SqliteSource
from flowctl.connectors.sqlite.types import data_type, declared
from flowctl.errors import StatementRefused, TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, NoPosition
from flowctl.model.table_info import ObjectName
from flowctl.model.types import Array, DataType
from flowctl.model.types import Decimal as DecimalType
from flowctl.model.value import TypedValue, from_text
from tests.connectors.reading import Collected, captured_rows, describe, opened, table


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def database(file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(file, isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def source(file: Path) -> Iterator[Any]:
    with opened("sqlite", base_dir=str(file.parent), path=file.name) as connector:
        yield connector.source


_LARGE = "9" * 28 + "." + "9" * 10

#: Declared type, what it is carried as, and pairs of the stored value and the one that arrives.
FITTING: list[tuple[str, DataType, list[tuple[Any, Any]]]] = [
    ("INTEGER", types.INT64, [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)]),
    ("UNSIGNED BIG INT", types.INT64, [(7, 7)]),
    ("SMALLINT", types.INT16, [(32767, 32767)]),
    ("BOOLEAN", types.BOOL, [(0, False), (1, True)]),
    ("REAL", types.DOUBLE, [(0.1, 0.1), (3, 3.0), (float("inf"), float("inf"))]),
    ("FLOAT4", types.FLOAT, [(0.5, 0.5)]),
    ("VARCHAR(10)", types.STRING, [("", ""), ('🦆 "quoted"\n', '🦆 "quoted"\n'), ("a" * 1_000_000, "a" * 1_000_000)]),
    ("BLOB", types.BINARY, [(b"", b""), (b"\x00\xff", b"\x00\xff")]),
    ("DATE", types.DATE, [("0001-01-01", dt.date(1, 1, 1)), ("1582-10-10", dt.date(1582, 10, 10))]),
    (
        "DATETIME",
        types.TIMESTAMP_NTZ,
        [
            ("2026-03-29 02:30:00", dt.datetime(2026, 3, 29, 2, 30)),
            ("9999-12-31T23:59:59.999999", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
            ("2026-03-29", dt.datetime(2026, 3, 29)),
        ],
    ),
    (
        "TIMESTAMP WITH TIME ZONE",
        types.TIMESTAMP,
        [
            ("2026-03-29 02:30:00+02:00", dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.UTC)),
            ("2026-03-29T02:30Z", dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)),
            ("2026-03-29 02:30:00", dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)),
        ],
    ),
    ("DECIMAL(10,2)", DecimalType(10, 2), [(1, Decimal("1.00")), (0.1, Decimal("0.10")), (8.5, Decimal("8.50"))]),
    ("DECIMAL_TEXT(38,10)", DecimalType(38, 10), [(_LARGE, Decimal(_LARGE)), ("-1e-10", Decimal("-1e-10"))]),
    ("NUMERIC", types.STRING, [(1, "1"), (0.1, "0.1"), ("1.50x", "1.50x")]),
    ('"JSON list<item: int64>"', Array(types.INT64), [("[]", []), ("[1,null]", [1, None])]),
    ('"JSON list<item: double>"', Array(types.DOUBLE), [("[0.1,3]", [0.1, 3.0])]),
    ('"JSON list<item: bool>"', Array(types.BOOL), [("[true,null]", [True, None])]),
    ('"JSON list<item: date32[day]>"', Array(types.DATE), [('["2026-01-02"]', [dt.date(2026, 1, 2)])]),
    (
        '"JSON list<item: decimal128(20, 3)>"',
        Array(DecimalType(20, 3)),
        [('["12345678901234567.125"]', [Decimal("12345678901234567.125")])],
    ),
    ('"JSON list<item: list<item: string>>"', Array(Array(types.STRING)), [('[["a"],null,[]]', [["a"], None, []])]),
]

MISFITS: list[tuple[str, Any]] = [
    ("INTEGER", "many"),
    ("INTEGER", 1.5),
    ("INTEGER", b"1"),
    ("SMALLINT", 32768),
    ("BOOLEAN", 2),
    ("BOOLEAN", "yes"),
    ("REAL", "much"),
    ("FLOAT4", 0.1),
    ("TEXT", b"bytes"),
    ("BLOB", "text"),
    ("DATE", "2026-02-30"),
    ("DATE", "2026-02-03 00:00:00"),
    ("DATE", 20260203),
    ("DATE", "0000-01-01"),
    ("DATETIME", "2026-03-29T02:30:00Z"),
    ("DATETIME", 1774751400),
    ("DATETIME", "2026-03-29 02:30:00.1234567"),
    ("TIMESTAMPTZ", "soon"),
    ("DECIMAL(10,2)", 0.125),
    ("DECIMAL_TEXT(10,2)", "123456789.00"),
    ("DECIMAL_TEXT(10,2)", "NaN"),
    ('"JSON list<item: int64>"', "[1.5]"),
    ('"JSON list<item: int64>"', "[true]"),
    ('"JSON list<item: int64>"', "[1"),
    ('"JSON list<item: int64>"', "{}"),
]


@pytest.mark.parametrize(("native", "kind", "values"), FITTING, ids=[native for native, _, _ in FITTING])
def test_a_fitting_value_is_carried_exactly(
    database: sqlite3.Connection, source: SqliteSource, native: str, kind: DataType, values: list[tuple[Any, Any]]
) -> None:
    database.execute(f"CREATE TABLE t (v {native})")
    database.executemany("INSERT INTO t VALUES (?)", [(stored,) for stored, _ in [*values, (None, None)]])
    info = describe(source, table("t"))
    assert info.columns[0].type == kind
    assert [row["v"] for row in captured_rows(source, table("t"))] == [*[read for _, read in values], None]


@pytest.mark.parametrize(("native", "value"), MISFITS)
def test_a_misfit_is_refused_by_rowid_and_column(
    database: sqlite3.Connection, source: SqliteSource, native: str, value: Any
) -> None:
    database.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, price {native})")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(3, None), (17, value)])
    with pytest.raises(TableError, match=r"column price .* not exactly .*, first in rowid 17") as refused:
        captured_rows(source, table("t"))
    assert ("hex()" if native == "TEXT" else "types: {price: string}") in refused.value.hint
    assert str(value) not in str(refused.value) or isinstance(value, int)


@pytest.mark.parametrize("value", ["many", 1.5, 7])
def test_a_misfit_can_be_read_as_text(database: sqlite3.Connection, source: SqliteSource, value: Any) -> None:
    database.execute("CREATE TABLE t (price INTEGER)")
    database.execute("INSERT INTO t VALUES (?)", [value])
    assert captured_rows(source, table("t"), {"price": "string"}) == [{"price": str(value)}]


@pytest.mark.parametrize(
    "kind", [*types.SCALARS, DecimalType(38, 10), Array(types.INT64), Array(Array(types.STRING))], ids=str
)
def test_declared_types_bring_every_type_back(
    database: sqlite3.Connection, source: SqliteSource, kind: DataType
) -> None:
    assert data_type(declared(kind).strip('"')) == kind
    database.execute(f"CREATE TABLE t (v {declared(kind)})")
    info = describe(source, table("t"))
    assert info.columns[0].type == kind


def test_batches_are_bounded(database: sqlite3.Connection, source: SqliteSource) -> None:
    database.execute(
        "CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT 25000"
    )
    info = describe(source, table("t"))
    sink = Collected()
    with source.capture(table("t"), info) as capture:
        assert capture.read(ReadRequest(info.columns), sink) == 25_000
    assert sink.batches == 3


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_capture_shows_one_moment(database: sqlite3.Connection, source: SqliteSource, journal: str) -> None:
    database.execute(f"PRAGMA journal_mode = {journal}")
    database.execute("PRAGMA busy_timeout = 0")
    database.execute("CREATE TABLE t (i INTEGER)")
    database.execute("INSERT INTO t VALUES (1)")
    info = describe(source, table("t"))
    first, second = Collected(), Collected()
    with source.capture(table("t"), info) as capture:
        capture.read(ReadRequest(info.columns), first)
        try:
            database.execute("INSERT INTO t VALUES (2)")
        except sqlite3.OperationalError:
            assert journal == "delete"  # the writer waits for the reader
        capture.read(ReadRequest(info.columns), second)
        assert not capture.is_empty(ReadRequest(info.columns))
    assert first.rows == second.rows == [{"i": 1}]


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_commit_waits_where_a_second_read_does_not_wait_for_it(
    database: sqlite3.Connection, source: SqliteSource, file: Path, journal: str
) -> None:
    """A table reads the target's keys while its source snapshot is open, and another commits to the same file."""
    database.execute(f"PRAGMA journal_mode = {journal}")
    database.execute("CREATE TABLE t (a INTEGER)")
    info, began = describe(source, table("t")), threading.Event()

    def commit() -> None:
        with open_database(file, "rwc") as connection:
            session = SqliteSession(connection, "", readers_of(file))
            began.set()
            with session.transaction():
                session.execute("INSERT INTO t VALUES (1)")

    with ThreadPoolExecutor(1) as pool:
        with source.capture(table("t"), info) as first:
            writer = pool.submit(commit)
            began.wait()
            if journal == "wal":
                writer.result()
            with source.capture(table("t"), info) as second:
                assert second.is_empty(ReadRequest(info.columns)) is (journal == "delete")
            assert first.is_empty(ReadRequest(info.columns))
            assert writer.done() is (journal == "wal")
        writer.result()
    assert captured_rows(source, table("t")) == [{"a": 1}]


def test_emptiness_is_that_of_what_is_asked(database: sqlite3.Connection, source: SqliteSource) -> None:
    database.execute("CREATE TABLE t (i INTEGER)")
    database.execute("INSERT INTO t VALUES (1)")
    for where, empty in ((None, False), ("i > 1", True)):
        relation = table("t", where=where)
        info = describe(source, relation)
        with source.capture(relation, info) as capture:
            assert capture.is_empty(ReadRequest(info.columns)) is empty


def test_tables_are_found_without_those_of_sqlite_and_flowctl(
    database: sqlite3.Connection, source: SqliteSource
) -> None:
    database.executescript(
        "CREATE TABLE Orders (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT NOT NULL);"
        "CREATE TABLE order_lines (o, l, PRIMARY KEY (l, o)) WITHOUT ROWID;"
        "CREATE TABLE _flowctl_commits (x); CREATE VIEW orders_v AS SELECT * FROM Orders;"
        "CREATE VIRTUAL TABLE texts USING fts5(words); CREATE TABLE texts_of_others (id)"
    )
    assert source.discover(("order*",)) == [ObjectName(("Orders",)), ObjectName(("order_lines",))]
    assert source.discover(("text*",)) == [ObjectName(("texts",)), ObjectName(("texts_of_others",))]
    found = source.describe([table("orders"), table("order_lines"), table("orders_v"), table("nothing")])
    orders, lines, view, nothing = found.values()
    assert orders and orders.primary_key == ("id",) and [column.nullable for column in orders.columns] == [False, False]
    assert lines and lines.primary_key == ("l", "o")
    assert view and [column.name for column in view.columns] == ["id", "v"]
    assert nothing is None


def test_a_view_is_known_by_its_query(database: sqlite3.Connection, source: SqliteSource) -> None:
    def view(query: str) -> str:
        database.executescript(f"DROP VIEW IF EXISTS seen; CREATE VIEW seen AS {query}")
        return describe(source, table("seen")).view

    database.execute("CREATE TABLE t (id INTEGER)")
    assert view("SELECT id FROM t") == view("SELECT id FROM t") != view("SELECT id + 1 AS id FROM t")
    assert describe(source, table("t")).view == ""


def test_queries_and_where_are_wrapped(database: sqlite3.Connection, source: SqliteSource) -> None:
    database.execute("CREATE TABLE t (id INTEGER, d DATE)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(i, f"2026-01-0{i}") for i in range(1, 6)])
    query = Relation(None, "SELECT id, d FROM t WHERE id > 1 -- not the first;", "id < 4 OR id = 5 -- nor the fourth")
    assert captured_rows(source, query) == [{"id": i, "d": dt.date(2026, 1, i)} for i in (2, 3, 5)]


@pytest.mark.parametrize(
    "relation",
    [
        Relation(None, """SELECT id, "no" AS "a""b" FROM t"""),
        Relation(
            None,
            """SELECT id FROM t WHERE `x"y` = '"no"' OR [c"d] <> 'it''s "no"' /* "no" */ -- "no"
                          AND "no" = '"'""",
        ),
        table("t", where="""'"' = "no" """),
    ],
)
def test_a_name_in_double_quotes_is_never_a_text(
    database: sqlite3.Connection, source: SqliteSource, relation: Relation
) -> None:
    """SQLite makes one of a name that no column has."""
    database.execute("""CREATE TABLE t (id INTEGER, "no" TEXT, `x"y` TEXT, [c"d] TEXT)""")
    database.execute("INSERT INTO t VALUES (1, ?, ?, 'e')", ['"', '"no"'])
    assert [row["id"] for row in captured_rows(source, relation)] == [1]
    database.execute('ALTER TABLE t RENAME COLUMN "no" TO yes')
    with pytest.raises(StatementRefused, match="no such column: no"):
        captured_rows(source, relation)


#: Declared type and stored values in the order of the declared type, which is not the order of storage.
ORDERED: list[tuple[str, list[Any]]] = [
    ("INTEGER", [-5, 9, 10]),
    ("REAL", [-1.5, 9.0, 10.25]),
    ("TEXT", ["B", "a", "é"]),
    ("DATE", ["0009-01-01", "2026-01-01", "2026-01-02"]),
    ("DECIMAL_TEXT(38,2)", ["-10.5", "9.50", "10.5"]),
    ("DATETIME", ["2026-01-01", "2026-01-01T07:59:59.5", "2026-01-01 08:00"]),
    ("TIMESTAMPTZ", ["2026-01-01 09:00+02:00", "2026-01-01T08:00Z", "2026-01-01 08:00:00.000001"]),
]


@pytest.mark.parametrize(("native", "stored"), ORDERED, ids=[native for native, _ in ORDERED])
def test_cursors_are_compared_in_the_declared_type(
    database: sqlite3.Connection, source: SqliteSource, native: str, stored: list[Any]
) -> None:
    database.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, at {native})")
    database.executemany("INSERT INTO t VALUES (?, ?)", [*enumerate(stored), (9, None)])
    info = describe(source, table("t"))
    cursor = info.column("at")
    assert cursor is not None
    values = [TypedValue(cursor.type, row["at"]) for row in captured_rows(source, table("t"))[:3]]

    request = WatermarkRequest(table("t"), info, cursor, lower=values[1], estimate="count")
    watermark = source.high_watermarks({"t": request})["t"]
    assert watermark.position == CursorPosition(values[2])
    assert watermark.has_null_cursor and watermark.rows.value == 2

    def ids(lower: TypedValue | None, upper: TypedValue | None, *, nulls: bool = False) -> list[int]:
        interval = Interval(None, CursorPosition(values[2]), "at", lower, upper, include_null=nulls)
        return [row["id"] for row in captured_rows(source, table("t"), interval=interval)]

    assert ids(values[1], None) == [1, 2]
    assert ids(values[1], values[1]) == [1]
    assert ids(None, values[1]) == [0, 1]
    assert ids(None, None) == [0, 1, 2]
    assert ids(values[2], None, nulls=True) == [2, 9]


@pytest.mark.parametrize(
    ("native", "misfit"), [("INTEGER", "x"), ("DATETIME", 5), ("DATETIME", "soon"), ("DATE", b"1")]
)
def test_a_misfit_in_the_cursor_is_never_passed_over(
    database: sqlite3.Connection, source: SqliteSource, native: str, misfit: Any
) -> None:
    fitting = {"INTEGER": 1}.get(native, "2026-01-01")
    database.execute(f"CREATE TABLE t (at {native})")
    database.executemany("INSERT INTO t VALUES (?)", [(fitting,), (misfit,)])
    info = describe(source, table("t"))
    failure = source.high_watermarks({"t": WatermarkRequest(table("t"), info, info.columns[0])})["t"].failure
    assert isinstance(failure, TableError) and re.search(r"column at .* first in rowid 2", str(failure))


def test_delay_keeps_off_what_is_too_new(database: sqlite3.Connection, source: SqliteSource) -> None:
    now = dt.datetime.now(dt.UTC)
    database.execute("CREATE TABLE t (at TIMESTAMPTZ)")
    moments = [now - dt.timedelta(hours=hours) for hours in (30, 2, 0)]
    database.executemany("INSERT INTO t VALUES (?)", [(moment.isoformat(),) for moment in moments])
    info = describe(source, table("t"))
    watermark = source.high_watermarks({"t": WatermarkRequest(table("t"), info, info.columns[0], delay=3600)})["t"]
    assert watermark.position == CursorPosition(TypedValue(types.TIMESTAMP, moments[1]))


def test_watermarks_without_a_cursor_and_of_nothing(database: sqlite3.Connection, source: SqliteSource) -> None:
    database.execute("CREATE TABLE t (id INTEGER)")
    info = describe(source, table("t"))
    watermarks = source.high_watermarks(
        {
            "all": WatermarkRequest(table("t"), info),
            "none": WatermarkRequest(table("t"), info, info.columns[0], from_text(types.INT64, "1")),
        }
    )
    assert watermarks["all"].position == NoPosition()
    assert watermarks["none"].position is None


def test_a_new_copy_of_the_file_is_the_same_source(
    database: sqlite3.Connection, source: SqliteSource, file: Path
) -> None:
    database.execute("CREATE TABLE t (id INTEGER)")

    def identity() -> str:
        info = describe(source, table("t"))
        return info.identity

    before = identity()
    database.execute("VACUUM")
    assert identity() == before
    other = file.with_suffix(".new")
    with sqlite3.connect(other) as replacement:
        replacement.execute("CREATE TABLE t (id INTEGER)")
    replacement.close()
    other.rename(file)
    assert identity() == before
