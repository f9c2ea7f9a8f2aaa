"""The function that executors run for one part, called right here: what PostgreSQL holds is what Arrow gets."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from flowctl.connectors.postgres import executors
from flowctl.connectors.postgres.executors import Field, PartReader
from flowctl.connectors.postgres.snapshot import SNAPSHOT_LOST
from tests.examples import examples


def read(url: str, query: str, *fields: tuple[str, pa.DataType]) -> pa.Table:
    reader = PartReader(
        url,
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET extra_float_digits = 1",
        [query],
        [Field(*field, refusal=f"refused {field[0]}") for field in fields],
        silence=60,
    )
    batches = list(reader.read(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
    return pa.Table.from_batches(batches, None if batches else pa.schema(fields))


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.sampled_from(
    [
        "",
        "\\N",
        "\\.",
        '"',
        '""',
        ",",
        "\n",
        "\r\n",
        "\r",
        "NULL",
        "NaN",
        "\ufeff",
        "\ufeff\ufeff x",
        " x ",
        "t",
        "{}",
        "[[",
    ]
)
_MOMENTS = st.datetimes(timezones=st.just(dt.UTC))
_DECIMALS = st.decimals(min_value=-(10**28) + 1, max_value=10**28 - 1, places=10)
_COLUMNS: list[tuple[str, pa.DataType, st.SearchStrategy[Any]]] = [
    ("text", pa.string(), _TEXT),
    ("bytea", pa.binary(), st.binary()),
    ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    ("float8", pa.float64(), st.floats(allow_nan=False)),
    ("float4", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("numeric(38,10)", pa.decimal128(38, 10), _DECIMALS),
    ("boolean", pa.bool_(), st.booleans()),
    ("date", pa.date32(), st.dates()),
    ("timestamptz", pa.timestamp("us", tz="UTC"), _MOMENTS),
    ("timestamp", pa.timestamp("us"), st.datetimes()),
    ("text[]", pa.list_(pa.string()), st.lists(st.none() | _TEXT)),
    ("bytea[]", pa.list_(pa.binary()), st.lists(st.none() | st.binary())),
    ("numeric(38,10)[]", pa.list_(pa.decimal128(38, 10)), st.lists(st.none() | _DECIMALS)),
    ("timestamptz[]", pa.list_(pa.timestamp("us", tz="UTC")), st.lists(st.none() | _MOMENTS)),
    ("boolean[]", pa.list_(pa.bool_()), st.lists(st.none() | st.booleans())),
]


@settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(*(st.none() | values for *_, values in _COLUMNS)), max_size=12))
def test_any_values_come_back_as_they_are(
    database: psycopg.Connection[Any], postgres_database: str, rows: Sequence[tuple[Any, ...]]
) -> None:
    names = [f"c{at}" for at in range(len(_COLUMNS))]
    _create(database, [(name, native) for name, (native, *_) in zip(names, _COLUMNS, strict=True)], rows)
    fields = [(name, kind) for name, (_, kind, _) in zip(names, _COLUMNS, strict=True)]
    outgoing = [_outgoing(name, kind) for name, kind in fields]
    table = read(postgres_database, f"SELECT {', '.join(outgoing)} FROM t ORDER BY at", *fields)
    assert [_bits(row) for row in zip(*table.to_pydict().values(), strict=True)] == [_bits(row) for row in rows]
    for at, (name, kind) in enumerate(fields):
        alone = read(postgres_database, f"SELECT {outgoing[at]} FROM t ORDER BY at", (name, kind))
        assert _bits(alone[name].to_pylist()) == _bits([row[at] for row in rows])


def _outgoing(name: str, kind: pa.DataType) -> str:
    if pa.types.is_binary(kind):
        return f"encode({name}, 'hex')"
    return f"array_to_json({name}::text[])::text" if pa.types.is_list(kind) else name


def _create(database: psycopg.Connection[Any], columns: Sequence[tuple[str, str]], rows: Sequence[Any]) -> None:
    database.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t (at serial, {', '.join(map(' '.join, columns))})")
    marks = sql.SQL(", ").join([sql.SQL("%s::" + native) for _, native in columns])
    names = sql.SQL(", ").join([sql.Identifier(name) for name, _ in columns])
    with database.cursor() as cursor:
        cursor.executemany(sql.SQL("INSERT INTO t ({}) VALUES ({})").format(names, marks), rows)


def _bits(row: Sequence[Any]) -> list[Any]:
    """-0.0 is not 0.0."""
    return [struct.pack("<d", value) if isinstance(value, float) else value for value in row]


def test_rows_of_all_lengths_over_many_blocks(database: psycopg.Connection[Any], postgres_database: str) -> None:
    """Some of a few bytes, some longer than what is read at once, with line ends and quotes at every place."""
    values = "repeat(E'\"a\\n,\\r', (i * 7919 % 1000) * CASE WHEN i % 100 = 0 THEN 1000 ELSE 1 END)"
    database.execute(f"CREATE TABLE t AS SELECT i, {values} AS v FROM generate_series(1, 3000) i")
    table = read(postgres_database, "SELECT i, v FROM t ORDER BY i", ("i", pa.int32()), ("v", pa.string()))
    assert table["v"].num_chunks > 10
    assert table["i"].to_pylist() == list(range(1, 3001))
    assert table["v"].to_pylist() == [
        '"a\n,\r' * ((i * 7919 % 1000) * (1000 if i % 100 == 0 else 1)) for i in range(1, 3001)
    ]


def test_a_value_that_looks_like_a_byte_order_mark_at_every_blocks_start(
    database: psycopg.Connection[Any], postgres_database: str
) -> None:
    database.execute("CREATE TABLE t AS SELECT chr(65279) || repeat('x', 1000) AS v FROM generate_series(1, 5000)")
    table = read(postgres_database, "SELECT v FROM t", ("v", pa.string()))
    assert set(table["v"].to_pylist()) == {"\ufeff" + "x" * 1000} and table.num_rows == 5000


@pytest.mark.parametrize("name", ['a"b', "a,b", "a\nb", "%s %(x)s", "ä 🦆", "select", "A", "\\"])
def test_names_of_any_kind(database: psycopg.Connection[Any], postgres_database: str, name: str) -> None:
    quoted = sql.Identifier(name).as_string(database)
    database.execute(sql.SQL("CREATE TABLE t ({} int)").format(sql.Identifier(name)))
    database.execute("INSERT INTO t VALUES (1)")
    assert read(postgres_database, f"SELECT {quoted} FROM t", (name, pa.int32())).to_pydict() == {name: [1]}


def test_databases_of_another_encoding(database: psycopg.Connection[Any], postgres_database: str) -> None:
    name = f"{database.info.dbname}_latin"
    database.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        url = f"{postgres_database.rpartition('/')[0]}/{name}"
        with psycopg.connect(url, autocommit=True) as latin:
            latin.execute("""CREATE TABLE t AS SELECT 'äß'::text AS "ö" """)
        assert read(url, 'SELECT "ö" FROM t', ("ö", pa.string())).to_pydict() == {"ö": ["äß"]}
        with pytest.raises(RuntimeError, match='relation "ü" does not exist'):
            read(url, 'SELECT 1 FROM "ü"', ("a", pa.int32()))
    finally:
        database.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_nan_and_infinity_are_floats(postgres_database: str) -> None:
    query = "SELECT v::float8, v::float4 FROM unnest(ARRAY['NaN', 'Infinity', '-Infinity']) v"
    table = read(postgres_database, query, ("d", pa.float64()), ("r", pa.float32()))
    for column in table.to_pydict().values():
        assert math.isnan(column[0]) and column[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("'NaN'::numeric", pa.decimal128(5, 2)),
        ("'Infinity'::numeric", pa.decimal128(5, 2)),
        ("1.234", pa.decimal128(5, 2)),
        ("1000.00", pa.decimal128(5, 2)),
        ("128", pa.int8()),
        ("9223372036854775808", pa.int64()),
        ("'infinity'::date", pa.date32()),
        ("'0044-03-15 BC'::date", pa.date32()),
        ("'10000-01-01'::date", pa.date32()),
        ("'-infinity'::timestamp", pa.timestamp("us")),
        ("'0001-12-31 BC'::timestamptz", pa.timestamp("us", tz="UTC")),
        ("'10000-01-01'::timestamptz", pa.timestamp("us", tz="UTC")),
        ('\'[["1"],["2"]]\'', pa.list_(pa.int32())),
        ('\'[["1"],["2"]]\'', pa.list_(pa.string())),
        ("'[[\"\\\\x01\"]]'", pa.list_(pa.binary())),
        ("'[\"1.234\"]'", pa.list_(pa.decimal128(5, 2))),
        ("'[\"70000\"]'", pa.list_(pa.int16())),
        ("'[\"0044-03-15 BC\"]'", pa.list_(pa.date32())),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_without_the_value(postgres_database: str, value: str, kind: pa.DataType) -> None:
    fields = [("fine", pa.int32()), ("bad", kind)]
    with pytest.raises(RuntimeError) as refused:
        read(postgres_database, f"SELECT 1, NULL UNION ALL SELECT 1, {value}", *fields)
    assert str(refused.value) == "refused bad"
    assert refused.value.__suppress_context__


def test_decimals_round_nothing(postgres_database: str) -> None:
    digits = "9" * 28 + "." + "9" * 10
    table = read(postgres_database, f"SELECT -{digits}", ("a", pa.decimal128(38, 10)))
    assert table["a"].to_pylist() == [Decimal(f"-{digits}")]


def test_no_rows_and_no_text(postgres_database: str) -> None:
    assert read(postgres_database, "SELECT 1 WHERE false", ("a", pa.int32())).num_rows == 0
    nulls = read(postgres_database, "SELECT NULL FROM generate_series(1, 3)", ("a", pa.binary()))
    assert nulls["a"].to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT 'secret'::text::int", "SQLSTATE 22P02: ERROR: invalid input syntax for type integer: …"),
        ("SELECT 1/(i - 5000) FROM generate_series(1, 9999) i", "SQLSTATE 22012: ERROR: division by zero"),
        (
            f"SELECT ('{SNAPSHOT_LOST} ' || 'x')::int",
            f'SQLSTATE 22P02: ERROR: invalid input syntax for type integer: "{SNAPSHOT_LOST} x"',
        ),
        ("SELECT * FROM nowhere", 'SQLSTATE 42P01: ERROR: relation "nowhere" does not exist'),
        ("SELECT pg_terminate_backend(pg_backend_pid())::int", "SQLSTATE 57P01: ERROR: terminating connection"),
    ],
)
def test_errors_have_a_state_and_no_value(postgres_database: str, query: str, told: str) -> None:
    """Also one that comes after rows have."""
    with pytest.raises(RuntimeError) as failed:
        read(postgres_database, query, ("a", pa.int32()))
    assert str(failed.value).startswith(told) and "secret" not in str(failed.value)
    assert failed.value.__suppress_context__


def test_nobody_answers_is_a_lost_connection() -> None:
    with pytest.raises(RuntimeError, match=r"SQLSTATE 08006: connection failed: .*refused") as failed:
        read("postgresql://etl:hidden@127.0.0.1:1/x", "SELECT 1", ("a", pa.int32()))
    assert "hidden" not in str(failed.value)


def test_who_stops_early_leaves_no_query_behind(database: psycopg.Connection[Any], postgres_database: str) -> None:
    reader = PartReader(
        f"{postgres_database}?application_name=early",
        "SELECT 1",
        ["SELECT repeat('x', 1000) FROM generate_series(1, 10000000)"],
        [Field("a", pa.string(), "refused")],
        silence=60,
    )
    batches = reader.read(iter([pa.RecordBatch.from_pydict({"id": [0]})]))
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'early' AND state = 'active'"
    assert database.execute(left).fetchone() == (0,)


def test_executors_need_no_flowctl(postgres_database: str) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(executors)
    function = PartReader(postgres_database, "SELECT 1", ["SELECT 1"], [Field("a", pa.int32(), "r")], silence=60).read
    program = (
        "import pickle, sys\n"
        "class Nowhere:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'flowctl': raise ImportError(name)\n"
        "sys.meta_path.insert(0, Nowhere())\n"
        "import pyarrow as pa\n"
        "function = pickle.load(sys.stdin.buffer)\n"
        "assert not any(name.startswith('psycopg') for name in sys.modules), 'two threads would import it at once'\n"
        "print([b.to_pydict() for b in function(iter([pa.RecordBatch.from_pydict({'id': [0]})]))])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], input=cloudpickle.dumps(function), capture_output=True)
    assert ran.stdout == b"[{'a': [1]}]\n", ran.stderr
    assert pickle.loads(cloudpickle.dumps(function)) is not None
