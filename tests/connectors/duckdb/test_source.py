"""DuckDB as a source: every type exactly or refused by name, one moment, schemas, views and patterns."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from flowctl.connectors.duckdb.database import open_database
from flowctl.connectors.duckdb.session import DuckdbSession
from flowctl.connectors.duckdb.source import DuckdbSource
from flowctl.connectors.duckdb.types import data_type, ddl, parsed
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.connectors.sql.conditions import Condition
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.table_info import ObjectName
from flowctl.model.types import Array, DataType, Struct
from flowctl.model.types import Decimal as DecimalType
from tests.connectors.reading import describe, opened, table, typed

Script = Callable[[str], None]


@dataclass
class Collected:
    """A segment sink that keeps its rows."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    batches: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()
        self.batches += 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.duckdb"


@pytest.fixture
def script(file: Path) -> Script:
    """Runs statements on the file, which is closed again afterwards."""

    def run(statements: str) -> None:
        with duckdb.connect(file) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(statements)

    return run


@pytest.fixture
def source(file: Path) -> Iterator[Any]:
    with opened("duckdb", base_dir=str(file.parent), path=file.name) as connector:
        yield connector.source


def rows_of(
    source: DuckdbSource,
    relation: Relation,
    kinds: dict[str, str] | None = None,
    interval: Interval | None = None,
    *,
    above: bool = False,
) -> list[dict[str, Any]]:
    info = describe(source, relation)
    sink = Collected()
    with source.capture(relation, info) as capture:
        assert capture.read(ReadRequest(typed(info.columns, kinds or {}), interval, above), sink) == len(sink.rows)
    return sink.rows


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc]


#: Type, what it is carried as, and pairs of a literal and the value that arrives.
CARRIED: list[tuple[str, DataType, list[tuple[str, Any]]]] = [
    ("BOOLEAN", types.BOOL, [("true", True), ("false", False)]),
    ("TINYINT", types.INT8, [("-128", -128)]),
    ("SMALLINT", types.INT16, [("32767", 32767)]),
    ("INTEGER", types.INT32, [("-2147483648", -(2**31))]),
    ("BIGINT", types.INT64, [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))]),
    ("UTINYINT", types.INT16, [("255", 255)]),
    ("USMALLINT", types.INT32, [("65535", 65535)]),
    ("UINTEGER", types.INT64, [("4294967295", 2**32 - 1)]),
    ("UBIGINT", DecimalType(20, 0), [("18446744073709551615", Decimal(2**64 - 1))]),
    ("HUGEINT", DecimalType(38, 0), [("9" * 38, Decimal("9" * 38)), ("-" + "9" * 38, Decimal("-" + "9" * 38))]),
    ("UHUGEINT", DecimalType(38, 0), [("9" * 38, Decimal("9" * 38))]),
    ("BIGNUM", types.STRING, [(f"'{'9' * 60}'", "9" * 60)]),
    ("FLOAT", types.FLOAT, [("0.5", 0.5), ("'inf'", float("inf"))]),
    ("DOUBLE", types.DOUBLE, [("0.1", 0.1), ("5e-324", 5e-324), ("'-inf'", float("-inf"))]),
    ("DECIMAL(4,1)", DecimalType(4, 1), [("-999.9", Decimal("-999.9"))]),
    ("DECIMAL(38,10)", DecimalType(38, 10), [(f"'{'9' * 28}.{'9' * 10}'", Decimal("9" * 28 + "." + "9" * 10))]),
    ("VARCHAR", types.STRING, [("''", ""), ("'🦆 \"quoted\"' || chr(10)", '🦆 "quoted"\n'), ("'a' || chr(0)", "a\0")]),
    ("VARCHAR COLLATE NOCASE", types.STRING, [("'A'", "A"), ("'a'", "a")]),
    ("BLOB", types.BINARY, [("''::BLOB", b""), ("'\\x00\\xFF'::BLOB", b"\x00\xff")]),
    ("BIT", types.STRING, [("'0101'", "0101")]),
    ("ENUM('large', 'a''b')", types.STRING, [("'large'", "large"), ("'a''b'", "a'b")]),
    ("JSON", types.STRING, [("'{\"a\": [1, 1.10]}'", '{"a": [1, 1.10]}')]),
    ("UUID", types.STRING, [("'268aba75-faa7-461c-84c1-a19b3031ea7d'", "268aba75-faa7-461c-84c1-a19b3031ea7d")]),
    ("DATE", types.DATE, [("'0001-01-01'", dt.date(1, 1, 1)), ("'9999-12-31'", dt.date(9999, 12, 31))]),
    ("TIME", types.STRING, [("'12:34:56.123456'", "12:34:56.123456"), ("'24:00:00'", "24:00:00")]),
    ("TIME WITH TIME ZONE", types.STRING, [("'12:34:56+02:30'", "12:34:56+02:30")]),
    ("INTERVAL", types.STRING, [("INTERVAL '1 month 2 days 3.5 seconds'", "1 month 2 days 00:00:03.5")]),
    ("TIMESTAMP_S", types.TIMESTAMP_NTZ, [("'2026-03-29 02:30:01'", dt.datetime(2026, 3, 29, 2, 30, 1))]),
    ("TIMESTAMP_MS", types.TIMESTAMP_NTZ, [("'2026-03-29 02:30:01.5'", dt.datetime(2026, 3, 29, 2, 30, 1, 500000))]),
    (
        "TIMESTAMP",
        types.TIMESTAMP_NTZ,
        [
            ("'1582-10-10 00:00:00'", dt.datetime(1582, 10, 10)),
            ("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ],
    ),
    ("TIMESTAMP_NS", types.STRING, [("'2026-01-02 03:04:05.123456789'", "2026-01-02 03:04:05.123456789")]),
    ("TIMESTAMP WITH TIME ZONE", types.TIMESTAMP, [("'2026-03-29 02:30:00+02'", utc(2026, 3, 29, 0, 30))]),
    ("INTEGER[]", Array(types.INT32), [("[]", []), ("[1, NULL]", [1, None])]),
    ("INTEGER[2]", Array(types.INT32), [("[1, 2]", [1, 2])]),
    ("UTINYINT[2][]", Array(Array(types.INT16)), [("[[255, 0], NULL]", [[255, 0], None])]),
    ("UUID[]", Array(types.STRING), [("[NULL]", [None])]),
    ("TIMESTAMP_MS[]", Array(types.TIMESTAMP_NTZ), [("['2026-01-02 00:00:00']", [dt.datetime(2026, 1, 2)])]),
    (
        "STRUCT(a INTEGER, b VARCHAR)",
        Struct((("a", types.INT32), ("b", types.STRING))),
        [("{'a': 1, 'b': NULL}", {"a": 1, "b": None})],
    ),
    (
        'STRUCT(n UBIGINT, "at" STRUCT(t TIME)[])[]',
        Array(Struct((("n", DecimalType(20, 0)), ("at", Array(Struct((("t", types.STRING),))))))),
        [
            (
                "[{'n': 7, 'at': [{'t': '12:00:00'}, NULL]}, NULL]",
                [{"n": Decimal(7), "at": [{"t": "12:00:00"}, None]}, None],
            )
        ],
    ),
    ('STRUCT("a b" INTEGER)', types.STRING, [("{'a b': 1}", '{"a b":1}')]),
    ("MAP(VARCHAR, DECIMAL(18,2))", types.STRING, [("MAP {'a': 1234567890123456.78}", '{"a":1234567890123456.78}')]),
    ("MAP(INTEGER, UUID)[]", Array(types.STRING), [("[MAP {1: NULL}]", ['{"1":null}'])]),
    ("UNION(n INTEGER, s VARCHAR)", types.STRING, [("union_value(s := 'x')", '{"s":"x"}')]),
]  # fmt: skip


@pytest.mark.parametrize(("native", "kind", "values"), CARRIED, ids=[native for native, _, _ in CARRIED])
def test_a_value_is_carried_exactly(
    script: Script, source: DuckdbSource, native: str, kind: DataType, values: list[tuple[str, Any]]
) -> None:
    listed = ", ".join(f"({at}, {literal})" for at, (literal, _) in enumerate([*values, ("NULL", None)]))
    script(f"CREATE TABLE t (i INTEGER, v {native}); INSERT INTO t VALUES {listed}")
    info = describe(source, table("t"))
    assert info.columns[1].type == kind
    found = {row["i"]: row["v"] for row in rows_of(source, table("t"))}
    assert found == dict(enumerate([*(read for _, read in values), None]))


def test_not_a_number_is_carried(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t (v DOUBLE); INSERT INTO t VALUES ('nan')")
    ((value,),) = (row.values() for row in rows_of(source, table("t")))
    assert value != value


REFUSED = [
    ("HUGEINT", "170141183460469231731687303715884105727"),
    ("UHUGEINT", "340282366920938463463374607431768211455"),
    ("TIMESTAMP_S", "'infinity'"),
    ("TIMESTAMP", "'infinity'"),
    ("TIMESTAMP WITH TIME ZONE", "'-infinity'"),
    ("DATE", "'infinity'"),
    ("DATE", "'0001-01-01 (BC)'"),
    ("TIMESTAMP", "'10000-01-01 00:00:00'"),
    ("DATE[]", "[NULL, '-infinity']"),
    ("STRUCT(a STRUCT(d DATE)[])", "{'a': [{'d': '10000-01-01'}]}"),
    ("STRUCT(a HUGEINT[])", "{'a': [170141183460469231731687303715884105727]}"),
]


@pytest.mark.parametrize(("native", "literal"), REFUSED)
def test_a_value_without_counterpart_is_refused_by_column(
    script: Script, source: DuckdbSource, native: str, literal: str
) -> None:
    script(f"CREATE TABLE t (price {native}); INSERT INTO t VALUES (NULL), ({literal})")
    with pytest.raises(TableError, match=r"column price .* holds a value that is not exactly") as refused:
        rows_of(source, table("t"))
    assert "types: {price: string}" in refused.value.hint
    assert literal not in str(refused.value)
    assert len(rows_of(source, table("t"), {"price": "string"})) == 2


@pytest.mark.parametrize(
    ("native", "literal", "kind", "value"),
    [
        ("TIMESTAMP_NS", "'2026-01-02 03:04:05.123456'", "timestamp_ntz", dt.datetime(2026, 1, 2, 3, 4, 5, 123456)),
        ("TIMESTAMP_NS", "'2026-01-02 03:04:05.123456789'", "timestamp_ntz", None),
        ("BIGNUM", "'12345678901234567890'", "decimal(38,0)", Decimal("12345678901234567890")),
        ("BIGNUM", f"'{'9' * 39}'", "decimal(38,0)", None),
        ("HUGEINT", "5", "int", 5),
        ("HUGEINT", "3000000000", "int", None),
        ("DOUBLE", "1.5", "int", None),
        ("DOUBLE", "'nan'", "int", None),
        ("DOUBLE", "1.005", "decimal(10,2)", None),
        ("DOUBLE", "1.25", "decimal(10,2)", Decimal("1.25")),
        ("DECIMAL(5,2)", "1.10", "decimal(4,1)", Decimal("1.1")),
        ("DECIMAL(5,2)", "1.15", "decimal(4,1)", None),
        ("VARCHAR", "'1.5'", "int", None),
        ("VARCHAR", "' 7 '", "int", 7),
        ("VARCHAR", "'1_000'", "int", None),
        ("VARCHAR", "'1e999'", "double", None),
        ("VARCHAR", "'1.50'", "decimal(4,1)", Decimal("1.5")),
        ("VARCHAR", "'1.55'", "decimal(4,1)", None),
        ("VARCHAR", "'2026-02-30'", "date", None),
        ("VARCHAR", "'2026-01-02 03:04:05.1234567'", "timestamp_ntz", None),
        ("VARCHAR", "'2026-01-02T03:04:05Z'", "timestamp", utc(2026, 1, 2, 3, 4, 5)),
        ("ENUM('1', 'b')", "'1'", "int", 1),
        ("ENUM('1', 'b')", "'b'", "int", None),
        ("DATE", "'2026-01-02'", "timestamp_ntz", dt.datetime(2026, 1, 2)),
        ("TIMESTAMP", "'2026-01-02 00:00:01'", "date", None),
        ("DECIMAL(5,2)", "1.10", "string", "1.10"),
        ("TIMESTAMP WITH TIME ZONE", "'2026-01-02 03:04:05+01'", "string", "2026-01-02 02:04:05+00"),
        ("STRUCT(a INTEGER)[]", "[{'a': 1}]", "string", '[{"a":1}]'),
    ],
)
def test_a_type_of_the_spec_is_exact_or_refused(
    script: Script, source: DuckdbSource, native: str, literal: str, kind: str, value: Any
) -> None:
    script(f"CREATE TABLE t (price {native}); INSERT INTO t VALUES ({literal}), (NULL)")
    if value is not None:
        found = [row["price"] for row in rows_of(source, table("t"), {"price": kind})]
        assert found == [value, None]
        return
    with pytest.raises(TableError, match=r"column price .* not exactly"):
        rows_of(source, table("t"), {"price": kind})


@pytest.mark.parametrize(
    ("native", "kind"), [("BLOB", "string"), ("INTEGER[]", "int"), ("INTEGER", "binary"), ("VARCHAR", "binary")]
)
def test_types_without_common_values_are_refused(script: Script, source: DuckdbSource, native: str, kind: str) -> None:
    script(f"CREATE TABLE t (price {native})")
    with pytest.raises(TableError, match="column price cannot be read as"):
        rows_of(source, table("t"), {"price": kind})


@pytest.mark.parametrize(
    "kind",
    [
        *types.SCALARS,
        DecimalType(38, 10),
        Array(Array(types.STRING)),
        Struct((("a b", types.INT8), ('c"', types.DATE))),
    ],
    ids=str,
)
def test_ddl_brings_every_type_back(script: Script, source: DuckdbSource, kind: DataType) -> None:
    script(f"CREATE TABLE t (v {ddl(kind)})")
    info = describe(source, table("t"))
    assert info.columns[0].native == str(parsed(ddl(kind)))
    if not isinstance(kind, Struct):  # this one's names are read as JSON only
        assert info.columns[0].type == kind == data_type(parsed(ddl(kind)))


def test_batches_are_bounded(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t AS SELECT range AS i FROM range(250000)")
    info, sink = describe(source, table("t")), Collected()
    assert (info.rows.value, info.rows.method) == (250_000, "stats")
    with source.capture(table("t"), info) as capture:
        assert capture.read(ReadRequest(info.columns), sink) == 250_000
    assert sink.batches >= 3
    assert sorted(row["i"] for row in sink.rows) == list(range(250_000))


def test_schemas_views_and_patterns(script: Script, source: DuckdbSource) -> None:
    """A schema may have the file's name, and a table that of a file."""
    script(
        """
        CREATE SCHEMA sales; CREATE SCHEMA "shop";
        CREATE TABLE orders (id INTEGER PRIMARY KEY, note VARCHAR NOT NULL);
        CREATE TABLE sales.orders (id INTEGER, place VARCHAR, PRIMARY KEY (place, id));
        CREATE TABLE sales."Order Lines" (id INTEGER);
        CREATE TABLE "shop"."shop".orders AS SELECT 7 AS id;
        CREATE TABLE "other.csv" AS SELECT 1 AS id;
        CREATE TABLE _flowctl_commits (id INTEGER);
        CREATE TEMP TABLE passing (id INTEGER);
        CREATE VIEW seen AS SELECT * FROM orders
        """.replace('CREATE SCHEMA "shop"', 'CREATE SCHEMA "shop"."shop"')
    )
    assert source.discover(("*",)) == [ObjectName(("orders",)), ObjectName(("other.csv",))]
    assert source.discover(("sa*", "ORDER*")) == [
        ObjectName(("sales", "Order Lines")),
        ObjectName(("sales", "orders")),
    ]
    assert describe(source, table("orders")).primary_key == ("id",)
    assert [column.nullable for column in describe(source, table("ORDERS")).columns] == [False, False]
    assert describe(source, table("sales", "orders")).primary_key == ("place", "id")
    assert describe(source, table("seen")).extra == {"is_table": False}
    assert rows_of(source, table("shop", "orders")) == [{"id": 7}]
    assert rows_of(source, table("other.csv")) == [{"id": 1}]
    assert source.describe([table("absent"), table("sales", "seen")]) == {
        table("absent"): None,
        table("sales", "seen"): None,
    }
    missing = source.why_missing(table("sales", "order"))
    assert "has no table sales.order" in missing.reason and "sales.orders" in missing.hint


def test_queries_and_where(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t AS SELECT range AS i, 'x' AS s FROM range(5)")
    query = Relation(None, query='SELECT i * 2 AS "twice" FROM t -- all', where="twice > 5")
    assert [column.native for column in describe(source, query).columns] == ["BIGINT"]
    assert sorted(row["twice"] for row in rows_of(source, query)) == [6, 8]
    assert rows_of(source, table("t", where='"i" = 3')) == [{"i": 3, "s": "x"}]
    with pytest.raises(TableError, match=r'DuckDB says: .*"absent" not found'):
        rows_of(source, table("t", where="absent = 1"))


def test_a_failed_cast_of_the_spec_shows_no_value(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t AS SELECT 'secret-value' AS s")
    with pytest.raises(TableError, match="DuckDB says: Conversion Error") as failed:
        rows_of(source, table("t", where="s::INTEGER = 1"))
    assert "secret-value" not in failed.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE t RENAME COLUMN n TO m", "has no column n any more"),
        ("ALTER TABLE t ALTER n TYPE BIGINT", "column n of t was altered .* it is BIGINT, it was INTEGER"),
        ("DROP TABLE t", "t was dropped since"),
    ],
)
def test_a_table_altered_since_the_plan_is_not_read(
    script: Script, source: DuckdbSource, change: str, message: str
) -> None:
    script("CREATE TABLE t (id INTEGER, n INTEGER)")
    before = describe(source, table("t"))
    script(change)
    with (
        pytest.raises(StoppedByPolicy, match=message) as stopped,
        source.capture(table("t"), before) as capture,
    ):
        capture.read(ReadRequest(before.columns), Collected())
    assert stopped.value.hint == "Plan again"


def test_a_commit_waits_where_a_second_read_does_not_wait_for_it(
    script: Script, source: DuckdbSource, file: Path
) -> None:
    """A table reads the target's keys while its source snapshot is open, and another commits to the same file."""
    script("CREATE TABLE t (a INTEGER)")
    info, began = describe(source, table("t")), threading.Event()

    def commit() -> None:
        began.set()
        with open_database(file, "rwc") as connection:
            session = DuckdbSession(connection, "")
            with session.transaction():
                session.execute("INSERT INTO t VALUES (1)")

    with ThreadPoolExecutor(1) as pool:
        with source.capture(table("t"), info) as first:
            writer = pool.submit(commit)
            began.wait()
            with source.capture(table("t"), info) as second:
                assert second.is_empty(ReadRequest(info.columns))
            assert first.is_empty(ReadRequest(info.columns))
            assert not writer.done()
        writer.result()
    assert rows_of(source, table("t")) == [{"a": 1}]


@pytest.mark.timeout(60)
def test_a_read_that_fails_half_way_leaves_nothing_open(script: Script, source: DuckdbSource, file: Path) -> None:
    """DuckDB waits for ever to open a file for writing while an unread result has it open for reading."""
    script("CREATE TABLE t AS SELECT range AS i FROM range(1000000)")
    info = describe(source, table("t"))

    class Full:
        def write(self, batch: pa.RecordBatch) -> None:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full") as kept, source.capture(table("t"), info) as capture:
        capture.read(ReadRequest(info.columns), Full())
    with source.capture(table("t"), info) as capture:
        batches = capture.batches(Condition('SELECT "i" FROM t'), info.columns)
        next(batches)
        batches.close()
    with open_database(file, "rwc") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1_000_000,)
    assert kept.value.__traceback__ is not None


def test_a_capture_beside_a_commit_shows_one_moment(script: Script, source: DuckdbSource, file: Path) -> None:
    """While this process writes the file, its readers use the same instance."""
    script("CREATE TABLE t (a INTEGER)")
    info = describe(source, table("t"))
    with open_database(file, "rwc") as connection:
        session = DuckdbSession(connection, "")
        with session.transaction():
            session.execute("INSERT INTO t VALUES (1)")
            with source.capture(table("t"), info) as capture:
                assert capture.is_empty(ReadRequest(info.columns))
        with source.capture(table("t"), info) as capture:
            session.execute("DELETE FROM t")
            assert not capture.is_empty(ReadRequest(info.columns))
        assert rows_of(source, table("t")) == []
