"""Every type of the type table, PostgreSQL → Spark: the very value, its canonical text, or a refusal by name."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.types import Array, DataType
from flowctl.model.types import Decimal as DecimalType
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import describe, spark_rows, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LARGEST = Decimal("9" * 28 + "." + "9" * 10)
_SMALLEST = Decimal("-" + "9" * 28 + "." + "9" * 10)
_ODD_TEXT = "naïve 🦆 \"double\" 'single' \\ back\nline\ttab"

#: The types of :data:`EXACT` that are not PostgreSQL's own.
OWN_TYPES = """
    CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE TYPE pair AS (a int, b text); CREATE DOMAIN amount AS numeric(12,2);
    CREATE DOMAIN price AS amount CHECK (VALUE > 0); CREATE DOMAIN codes AS char(3)[]
"""
#: SQL type, expected type, and pairs of SQL literal and the value Spark shall hold.
EXACT: list[tuple[str, DataType, list[tuple[str, Any]]]] = [
    ("smallint", types.INT16, [("-32768", -32768), ("32767", 32767)]),
    ("integer", types.INT32, [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("bigint", types.INT64, [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("oid", types.INT64, [("4294967295", 2**32 - 1)]),
    ("numeric(38,10)", DecimalType(38, 10), [(f"{_LARGEST}", _LARGEST), (f"{_SMALLEST}", _SMALLEST)]),
    ("numeric(5,5)", DecimalType(5, 5), [("0.00001", Decimal("0.00001"))]),
    ("boolean", types.BOOL, [("true", True), ("false", False)]),
    ("real", types.FLOAT, [("'Infinity'", math.inf), ("0.5", 0.5)]),
    ("double precision", types.DOUBLE, [("'-Infinity'", -math.inf), ("0.1", 0.1), ("5e-324", 5e-324)]),
    ("text", types.STRING, [("''", ""), (f"$t${_ODD_TEXT}$t$", _ODD_TEXT), ("repeat('ä', 500000)", "ä" * 500_000)]),
    ("varchar(3)", types.STRING, [("'a  '", "a  ")]),
    ("char(5)", types.STRING, [("'ab'", "ab   ")]),
    ("bytea", types.BINARY, [(r"'\x'", bytearray()), (r"'\x00ff10'", bytearray(b"\x00\xff\x10"))]),
    (
        "date",
        types.DATE,
        [
            ("'0001-01-01'", dt.date(1, 1, 1)),
            ("'1582-10-10'", dt.date(1582, 10, 10)),
            ("'1970-01-01'", dt.date(1970, 1, 1)),
            ("'9999-12-31'", dt.date(9999, 12, 31)),
        ],
    ),
    (
        "timestamp",
        types.TIMESTAMP_NTZ,
        [
            ("'0001-01-01 00:00:00'", dt.datetime(1, 1, 1)),
            ("'1582-10-10 12:00:00.000001'", dt.datetime(1582, 10, 10, 12, 0, 0, 1)),
            ("'1969-12-31 23:59:59.999999'", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
            ("'2026-03-29 02:30:00'", dt.datetime(2026, 3, 29, 2, 30)),  # a gap in Amsterdam
            ("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ],
    ),
    ("uuid", types.STRING, [("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")]),
    ("inet", types.STRING, [("'192.168.0.1/24'", "192.168.0.1/24"), ("'10.0.0.1'", "10.0.0.1/32")]),
    ("time", types.STRING, [("'24:00:00'", "24:00:00"), ("'01:02:03.000004'", "01:02:03.000004")]),
    ("timetz", types.STRING, [("'01:02:03+05:30'", "01:02:03+05:30")]),
    ("interval", types.STRING, [("'1 year -2 days 03:04:05.6'", "1 year -2 days +03:04:05.6")]),
    ("json", types.STRING, [("""'{"b": 1,  "a": "🦆"}'""", '{"b": 1,  "a": "🦆"}')]),
    ("jsonb", types.STRING, [("""'{"b": 1,  "a": [null, 1.10]}'""", '{"a": [null, 1.10], "b": 1}')]),
    ("xml", types.STRING, [("'<a b=\"1\">x</a>'", '<a b="1">x</a>')]),
    ("int4range", types.STRING, [("'[1,5]'", "[1,6)"), ("'empty'", "empty")]),
    ("bit(3)", types.STRING, [("B'101'", "101")]),
    ("bit varying", types.STRING, [("B'10'", "10")]),
    ("money", types.STRING, [("1234.5", "$1,234.50")]),
    ("numeric", types.STRING, [("'NaN'", "NaN"), ("'Infinity'", "Infinity"), ("1." + "0" * 60, "1." + "0" * 60)]),
    ("numeric(50,2)", types.STRING, [("9" * 48 + ".99", "9" * 48 + ".99")]),
    ("numeric(5,-2)", types.STRING, [("12345", "12300")]),
    ("mood", types.STRING, [("'sad'", "sad")]),
    ("pair", types.STRING, [("ROW(1, 'a \"b\"')", '(1,"a ""b""")')]),
    ("hstore", types.STRING, [("'a=>1,b=>NULL'", '"a"=>"1", "b"=>NULL')]),
    ("citext", types.STRING, [("'AbC'", "AbC")]),
    ("price", DecimalType(12, 2), [("1.10", Decimal("1.10"))]),
    ("point", types.STRING, [("'(1,2)'", "(1,2)")]),
    ("int2vector", Array(types.INT16), [("'1 2'", [1, 2])]),
    ("integer[]", Array(types.INT32), [("'{}'", []), ("'{1,NULL,-3}'", [1, None, -3])]),
    (
        "text[]",
        Array(types.STRING),
        [(f"ARRAY['', 'NULL', NULL, '[[', $t${_ODD_TEXT}$t$]", ["", "NULL", None, "[[", _ODD_TEXT])],
    ),
    ("char(3)[]", Array(types.STRING), [("""'{a,"ab ",NULL,""}'""", ["a  ", "ab ", None, "   "])]),
    ("codes", Array(types.STRING), [("'{a}'", ["a  "])]),
    ("numeric(38,10)[]", Array(DecimalType(38, 10)), [(f"ARRAY[{_LARGEST}]", [_LARGEST])]),
    ("numeric[]", Array(types.STRING), [("ARRAY['NaN'::numeric, 1.10]", ["NaN", "1.10"])]),
    ("double precision[]", Array(types.DOUBLE), [("ARRAY['-Infinity', 0.1]", [-math.inf, 0.1])]),
    ("boolean[]", Array(types.BOOL), [("ARRAY[true,NULL,false]", [True, None, False])]),
    (
        "bytea[]",
        Array(types.BINARY),
        [(r"ARRAY['\x00ff'::bytea, NULL, '\x']", [bytearray(b"\x00\xff"), None, bytearray()])],
    ),
    ("date[]", Array(types.DATE), [("'{0001-01-01,9999-12-31}'", [dt.date(1, 1, 1), dt.date(9999, 12, 31)])]),
    (
        "timestamp[]",
        Array(types.TIMESTAMP_NTZ),
        [("'{1582-10-10 00:00:00.1}'", [dt.datetime(1582, 10, 10, 0, 0, 0, 100_000)])],
    ),
    ("inet[]", Array(types.STRING), [("'{10.0.0.1,NULL}'", ["10.0.0.1/32", None])]),
    ("integer[][]", types.STRING, [("'{{1,2},{3,4}}'", "{{1,2},{3,4}}")]),
]


@pytest.fixture
def database(postgres_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"{OWN_TYPES}; SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture
def postgres(postgres: Connector, reader: str) -> Connector:  # noqa: ARG001 - by each reader in turn
    return postgres


def test_every_type_is_carried_exactly(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector
) -> None:
    """One table with all types: a column per type, a row per value, one more of nulls only."""
    columns = {f"c{at}": entry for at, entry in enumerate(EXACT)}
    height = max(len(values) for _, _, values in EXACT) + 1
    definitions = ", ".join(f"{name} {native}" for name, (native, _, _) in columns.items())
    database.execute(f"CREATE TABLE every (row int, {definitions})")
    for row in range(height):
        literals = [values[row][0] if row < len(values) else "NULL" for _, _, values in EXACT]
        database.execute(f"INSERT INTO every VALUES ({row}, {', '.join(literals)})")

    relation = table("public", "every")
    info = describe(postgres.source, relation)
    assert {column.name: column.type for column in info.columns[1:]} == {n: kind for n, (_, kind, _) in columns.items()}

    read = {row.pop("row"): row for row in spark_rows(spark, postgres.source, relation)}
    assert read == {
        row: {name: values[row][1] if row < len(values) else None for name, (_, _, values) in columns.items()}
        for row in range(height)
    }


def test_elements_of_a_query_keep_their_blanks(spark: SparkSession, postgres: Connector) -> None:
    query = Relation(None, query="""SELECT '{a,"ab "}'::char(3)[] AS texts, '{a}'::bpchar[] AS others""")
    assert spark_rows(spark, postgres.source, query) == [{"texts": ["a  ", "ab "], "others": ["a"]}]


def test_nan_stays_nan_in_floats(spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute("CREATE TABLE f AS SELECT 'NaN'::real AS r, 'NaN'::float8 AS d, ARRAY['NaN'::float8] AS a")
    (row,) = spark_rows(spark, postgres.source, table("public", "f"))
    assert math.isnan(row["r"]) and math.isnan(row["d"]) and math.isnan(row["a"][0])


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1582, 10, 10, 12, 0, 0, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ],
    ids=str,
)
def test_a_timestamp_with_zone_is_a_moment(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, moment: dt.datetime
) -> None:
    """Read back as text: Python's local zone plays no part."""
    database.execute("CREATE TABLE moments (at timestamptz, ats timestamptz[])")
    database.execute("INSERT INTO moments VALUES (%s, %s)", [moment, [moment, None]])
    relation = table("public", "moments")
    info = describe(postgres.source, relation)
    with postgres.source.snapshot(spark, relation, info, ReadHints()) as snapshot:
        frame = snapshot.frame(ReadRequest(info.columns))
        assert frame.dtypes == [("at", "timestamp"), ("ats", "array<timestamp>")]
        row = frame.selectExpr("unix_micros(at)", "unix_micros(ats[0])", "ats[1]").first()
    micros = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    assert tuple(row) == (micros, micros, None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric(10,2)", "'NaN'"),
        ("date", "'infinity'"),
        ("date", "'0044-03-15 BC'"),
        ("date", "'10000-01-01'"),
        ("timestamp", "'-infinity'"),
        ("timestamp", "'10000-01-01'"),
        ("timestamptz", "'infinity'"),
        ("timestamptz", "'0001-12-31 BC'"),
        ("integer[]", "'{{1,2},{3,4}}'"),
        ("integer[]", "'[4:5]={1,2}'"),
        ("text[]", "'[0:1]={a,b}'"),
        ("date[]", "'{0044-03-15 BC}'"),
        ("timestamptz[]", "'{infinity}'"),
        ("numeric(10,2)[]", "'{NaN}'"),
    ],
)
def test_what_no_type_can_hold_is_refused_by_column_and_type(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, kind: str, value: str
) -> None:
    database.execute(f"CREATE TABLE odd (id int, fine numeric(5,2), bad {kind})")
    database.execute(f"INSERT INTO odd VALUES (1, 1, NULL), (2, 2, {value})")
    with pytest.raises(TableError, match=r"column bad \(.*\) holds a value that is not exactly") as refused:
        spark_rows(spark, postgres.source, table("public", "odd"))
    assert "columns: {types: {bad: string}}" in refused.value.hint
    what, _, why = refused.value.message.partition(": ")
    assert value.strip("'{}") not in what
    assert why.endswith((" have no counterpart", "the array does not begin at index 1"))


@pytest.mark.parametrize(
    ("kind", "value", "wanted", "read"),
    [
        ("numeric", "1.50", "decimal(5,2)", Decimal("1.50")),
        ("numeric(10,4)", "1.5000", "decimal(5,2)", Decimal("1.50")),
        ("text", "'12'", "bigint", 12),
        ("text", "'1.5'", "decimal(5,2)", Decimal("1.50")),
        ("text", "'2026-01-02'", "date", dt.date(2026, 1, 2)),
        ("bigint", "7", "int", 7),
        ("bigint", "7", "decimal(20,0)", Decimal(7)),
        ("timestamp", "'2026-01-02'", "date", dt.date(2026, 1, 2)),
        ("date", "'infinity'", "string", "infinity"),
        ("integer[]", "'{{1},{2}}'", "string", "{{1},{2}}"),
        ("integer[]", "'[4:5]={1,2}'", "string", "[4:5]={1,2}"),
        ("bytea", r"'\x00ff'", "string", r"\x00ff"),
        ("smallint", "100", "tinyint", 100),
    ],
)
def test_types_that_the_spec_asks_for(
    spark: SparkSession,
    database: psycopg.Connection[Any],
    postgres: Connector,
    kind: str,
    value: str,
    wanted: str,
    read: Any,
) -> None:
    database.execute(f"CREATE TABLE cast_me (v {kind})")
    database.execute(f"INSERT INTO cast_me VALUES ({value}), (NULL)")
    rows = spark_rows(spark, postgres.source, table("public", "cast_me"), kinds={"v": wanted})
    assert [row["v"] for row in rows] == [read, None]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("numeric", "1.239", "decimal(5,2)"),
        ("numeric", "'NaN'", "decimal(5,2)"),
        ("text", "'1.239'", "decimal(5,2)"),
        ("text", "'abc'", "bigint"),
        ("double precision", "0.1234", "decimal(5,2)"),
        ("timestamp", "'2026-01-02 03:00'", "date"),
        ("bigint", "3000000000", "int"),
        ("numeric", "123456", "decimal(5,2)"),
        ("double precision", "0.1", "real"),
    ],
)
def test_a_cast_that_would_change_a_value_is_refused(
    spark: SparkSession, database: psycopg.Connection[Any], postgres: Connector, kind: str, value: str, wanted: str
) -> None:
    database.execute(f"CREATE TABLE cast_me (v {kind})")
    database.execute(f"INSERT INTO cast_me VALUES ({value})")
    with pytest.raises(TableError, match=r"column v|columns\.types"):
        spark_rows(spark, postgres.source, table("public", "cast_me"), kinds={"v": wanted})
