"""DuckDB's types: every value exactly or refused by name, and every type of flowctl as one of DuckDB."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from flowctl.connectors.duckdb.source import DuckdbSource
from flowctl.connectors.duckdb.types import data_type, ddl, parsed
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.types import Array, DataType, Struct
from flowctl.model.types import Decimal as DecimalType
from tests.connectors.duckdb.test_source import Script, file, script, source
from tests.connectors.reading import captured_rows, describe, table

__all__ = ["file", "script", "source"]


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
    found = {row["i"]: row["v"] for row in captured_rows(source, table("t"))}
    assert found == dict(enumerate([*(read for _, read in values), None]))


def test_not_a_number_is_carried(script: Script, source: DuckdbSource) -> None:
    script("CREATE TABLE t (v DOUBLE); INSERT INTO t VALUES ('nan')")
    ((value,),) = (row.values() for row in captured_rows(source, table("t")))
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
        captured_rows(source, table("t"))
    assert "types: {price: string}" in refused.value.hint
    assert literal not in str(refused.value)
    assert len(captured_rows(source, table("t"), {"price": "string"})) == 2


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
        found = [row["price"] for row in captured_rows(source, table("t"), {"price": kind})]
        assert found == [value, None]
        return
    with pytest.raises(TableError, match=r"column price .* not exactly"):
        captured_rows(source, table("t"), {"price": kind})


@pytest.mark.parametrize(
    ("native", "kind"), [("BLOB", "string"), ("INTEGER[]", "int"), ("INTEGER", "binary"), ("VARCHAR", "binary")]
)
def test_types_without_common_values_are_refused(script: Script, source: DuckdbSource, native: str, kind: str) -> None:
    script(f"CREATE TABLE t (price {native})")
    with pytest.raises(TableError, match="column price cannot be read as"):
        captured_rows(source, table("t"), {"price": kind})


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
