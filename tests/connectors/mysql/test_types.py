"""MySQL's types: every value exactly or refused by name, in a table and in a query, and every type of flowctl back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from flowctl.connectors.mysql.types import data_type, ddl
from flowctl.connectors.source import Relation
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.types import Array, DataType, Struct
from flowctl.model.types import Decimal as DecimalType
from tests.connectors.mysql.conftest import Script
from tests.connectors.reading import captured_rows, describe, table


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc]


LARGEST, COLLATION = 2**64 - 1, "utf8mb4_nopad_bin"
#: Type, what it is carried as, and pairs of a literal and the value that arrives.
CARRIED: list[tuple[str, DataType, list[tuple[str, Any]]]] = [
    ("TINYINT(1)", types.BOOL, [("1", True), ("0", False)]),
    ("BOOLEAN", types.BOOL, [("TRUE", True)]),
    ("TINYINT", types.INT8, [("-128", -128), ("127", 127)]),
    ("TINYINT UNSIGNED", types.INT16, [("255", 255)]),
    ("TINYINT(1) UNSIGNED", types.INT16, [("255", 255)]),
    ("SMALLINT", types.INT16, [("32767", 32767)]),
    ("SMALLINT UNSIGNED", types.INT32, [("65535", 65535)]),
    ("MEDIUMINT UNSIGNED", types.INT32, [("16777215", 2**24 - 1)]),
    ("INT", types.INT32, [("-2147483648", -(2**31))]),
    ("INT UNSIGNED", types.INT64, [("4294967295", 2**32 - 1)]),
    ("INT(6) ZEROFILL", types.INT64, [("42", 42)]),
    ("BIGINT", types.INT64, [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))]),
    ("BIGINT UNSIGNED", DecimalType(20, 0), [(str(LARGEST), Decimal(LARGEST))]),
    ("BIT(1)", types.BOOL, [("b'1'", True), ("b'0'", False)]),
    ("BIT(8)", types.INT64, [("b'10000001'", 129)]),
    ("BIT(64)", DecimalType(20, 0), [(f"b'{'1' * 64}'", Decimal(LARGEST))]),
    ("FLOAT", types.FLOAT, [("16777217", 16777216.0), ("0.1", 0.10000000149011612), ("1e-38", 9.999999350456404e-39)]),
    ("DOUBLE", types.DOUBLE, [("0.1", 0.1), ("5e-324", 5e-324), ("-1.7976931348623157e308", -1.7976931348623157e308)]),
    ("DECIMAL(4,1)", DecimalType(4, 1), [("-999.9", Decimal("-999.9"))]),
    ("DECIMAL(38,10)", DecimalType(38, 10), [(f"{'9' * 28}.{'9' * 10}", Decimal("9" * 28 + "." + "9" * 10))]),
    ("DECIMAL(65,30)", types.STRING, [(f"{'9' * 35}.{'9' * 30}", f"{'9' * 35}.{'9' * 30}")]),
    ("VARCHAR(40)", types.STRING, [("''", ""), ("'\U0001f986 ''\"\\\\ \\n\\t\\0 '", "\U0001f986 '\"\\ \n\t\0 ")]),
    ("VARCHAR(40) CHARACTER SET latin1", types.STRING, [("'Müller'", "Müller")]),
    ("CHAR(4)", types.STRING, [("'a'", "a")]),
    ("LONGTEXT", types.STRING, [("REPEAT('ab', 100000)", "ab" * 100_000)]),
    ("ENUM('large', 'a''b', 'ü')", types.STRING, [("'large'", "large"), ("'a''b'", "a'b"), ("'ü'", "ü")]),
    (
        "ENUM('no comment yet', 'a comment JSON array<int>')",
        types.STRING,
        [("'no comment yet'", "no comment yet"), ("'a comment JSON array<int>'", "a comment JSON array<int>")],
    ),
    ("SET('a comment timestamp in UTC', 'b')", types.STRING, [("'b'", "b")]),
    ("SET('a', 'b', 'c')", types.STRING, [("'c,a'", "a,c"), ("''", "")]),
    ("JSON", types.STRING, [("'{\"a\": [1, 1.10]}'", '{"a": [1, 1.10]}')]),
    ("BINARY(3)", types.BINARY, [("x'00ff'", b"\x00\xff\x00")]),
    ("VARBINARY(9)", types.BINARY, [("''", b""), ("x'00ff5c27'", b"\x00\xff\\'")]),
    ("LONGBLOB", types.BINARY, [("x'00ff'", b"\x00\xff")]),
    ("DATE", types.DATE, [("'1000-01-01'", dt.date(1000, 1, 1)), ("'9999-12-31'", dt.date(9999, 12, 31))]),
    ("YEAR", types.INT16, [("1901", 1901), ("2155", 2155), ("0", 0)]),
    ("TIME", types.STRING, [("'-838:59:59'", "-838:59:59"), ("'25:00:00'", "25:00:00")]),
    ("TIME(6)", types.STRING, [("'838:59:58.999999'", "838:59:58.999999")]),
    ("DATETIME", types.TIMESTAMP_NTZ, [("'2026-03-29 02:30:01'", dt.datetime(2026, 3, 29, 2, 30, 1))]),
    (
        "DATETIME(6)",
        types.TIMESTAMP_NTZ,
        [
            ("'1582-10-10 00:00:00'", dt.datetime(1582, 10, 10)),
            ("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ],
    ),
    ("TIMESTAMP(3) NULL", types.TIMESTAMP, [("'2026-03-29 00:30:00.125'", utc(2026, 3, 29, 0, 30, 0, 125000))]),
    (
        "POINT",
        types.STRING,
        [("ST_GeomFromText('POINT(1 2)')", "000000000101000000000000000000F03F0000000000000040")],
    ),
]
#: Not what a query's descriptors distinguish: a geometry, which is bytes there.
_UNKNOWN_TO_QUERIES = "POINT"


@pytest.mark.parametrize("relation", [table("t"), table("seen"), Relation(None, "SELECT * FROM t -- all")], ids=str)
def test_values_are_carried_exactly(script: Script, source: Any, relation: Relation) -> None:
    known = [one for one in CARRIED if relation.object is not None or one[0] != _UNKNOWN_TO_QUERIES]
    made = ", ".join(f"v{at} {native}" for at, (native, _, _) in enumerate(known))
    script(f"CREATE TABLE t (i INTEGER, {made}) CHARSET utf8mb4; CREATE VIEW seen AS SELECT * FROM t")
    wanted: list[list[Any]] = []
    for number in range(4):
        cells = [values[number] if number < len(values) else ("NULL", None) for _, _, values in known]
        script(f"INSERT INTO t VALUES ({number}, {', '.join(literal for literal, _ in cells)})")
        wanted.append([number, *(value for _, value in cells)])
    info = describe(source, relation)
    assert [column.type for column in info.columns] == [types.INT32, *(kind for _, kind, _ in known)]
    found = sorted((list(row.values()) for row in captured_rows(source, relation)), key=lambda row: int(row[0]))
    assert found == wanted


@pytest.mark.parametrize(
    ("native", "value", "why"),
    [
        ("DATE", "'0000-00-00'", "it has a month or a day 0"),
        ("DATE", "'2026-00-01'", "it has a month or a day 0"),
        ("DATETIME", "'0000-00-00 00:00:00'", "it has a month or a day 0"),
        ("TIMESTAMP NULL", "0", "it has a month or a day 0"),
        ("TINYINT(1)", "2", "it is neither 0 nor 1"),
        ("TINYINT(1)", "-1", "it is neither 0 nor 1"),
    ],
)
@pytest.mark.full
def test_a_value_without_an_equal_is_refused_by_name(
    script: Script, source: Any, native: str, value: str, why: str
) -> None:
    script(f"SET sql_mode = ''; CREATE TABLE t (`a b` {native}, n INT); INSERT INTO t VALUES ({value}, 1)")
    with pytest.raises(TableError, match="a b") as error:
        captured_rows(source, table("t"))
    assert why in error.value.message and "columns: {types: {a b:" in error.value.hint
    as_text = "tinyint" if "INT" in native else "string"
    (row,) = captured_rows(source, table("t"), {"a b": as_text})
    assert str(row["a b"]).startswith(value.strip("'")[:1])


@pytest.mark.parametrize(
    ("native", "value", "wanted", "read"),
    [
        ("VARCHAR(20)", "'12.50'", "decimal(6,2)", Decimal("12.50")),
        ("DECIMAL(65,0)", "7", "decimal(38,0)", Decimal(7)),
        ("TINYINT(1)", "7", "tinyint", 7),
        ("DATETIME", "'2026-01-02 03:04:05'", "timestamp", utc(2026, 1, 2, 3, 4, 5)),
        ("BIGINT UNSIGNED", "7", "bigint", 7),
        ("JSON", "'[1, null]'", "array<int>", [1, None]),
    ],
)
@pytest.mark.full
def test_another_type_may_be_wanted(
    script: Script, source: Any, native: str, value: str, wanted: str, read: object
) -> None:
    script(f"CREATE TABLE t (v {native}); INSERT INTO t VALUES ({value})")
    assert captured_rows(source, table("t"), {"v": wanted}) == [{"v": read}]


@pytest.mark.parametrize(
    ("native", "value", "wanted"),
    [
        ("BIGINT UNSIGNED", "9223372036854775808", "bigint"),
        ("DECIMAL(65,0)", "9" * 40, "decimal(38,0)"),
        ("VARCHAR(20)", "'x'", "int"),
        ("DOUBLE", "0.1", "float"),
        ("INT", "1", "binary"),
        ("VARBINARY(9)", "x'ff'", "string"),
    ],
)
@pytest.mark.full
def test_a_value_that_the_wanted_type_does_not_have_is_refused(
    script: Script, source: Any, native: str, value: str, wanted: str
) -> None:
    script(f"CREATE TABLE t (v {native}); INSERT INTO t VALUES ({value})")
    with pytest.raises(TableError, match="v"):
        captured_rows(source, table("t"), {"v": wanted})


KINDS: tuple[DataType, ...] = (
    *(types.BOOL, types.INT8, types.INT16, types.INT32, types.INT64, types.FLOAT, types.DOUBLE, types.STRING),
    *(types.BINARY, types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ, DecimalType(38, 10), DecimalType(1, 0)),
    *(Array(Array(types.INT32)), Array(types.TIMESTAMP), Struct((("a", types.INT32), ("b", types.STRING)))),
)


def test_ddl_reads_back_as_its_type(script: Script, source: Any) -> None:
    script(f"CREATE TABLE t ({', '.join(f'v{at} {ddl(kind, COLLATION)}' for at, kind in enumerate(KINDS))})")
    columns = describe(source, table("t")).columns
    assert tuple(column.type for column in columns) == KINDS
    assert tuple(data_type(column.native) for column in columns) == KINDS


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("TEXT COMMENT 'JSON settings of the user'", types.STRING),
        ("TEXT COMMENT 'JSON string'", types.STRING),
        ("INT COMMENT 'timestamp in UTC'", types.INT32),
        ("ENUM('a') COMMENT 'JSON array<int>'", types.STRING),
        ("DATETIME(3) COMMENT 'timestamp in UTC'", types.TIMESTAMP),
        ("LONGTEXT COMMENT 'JSON array<string>'", Array(types.STRING)),
    ],
)
def test_only_flowctls_own_comments_are_part_of_a_type(
    declared: str, kind: DataType, script: Script, source: Any
) -> None:
    script(f"CREATE TABLE t (v {declared})")
    (column,) = describe(source, table("t")).columns
    assert column.type == data_type(column.native) == kind
