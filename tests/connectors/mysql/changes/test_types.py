"""Every type of the type table: a change delivers what a snapshot of the same row delivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowctl.changes.segment import Op
from flowctl.connectors.base import Connector
from flowctl.connectors.mysql.changes.wire import CODECS
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from tests.connectors.mysql.changes.streaming import Captured
from tests.connectors.mysql.conftest import Script
from tests.connectors.mysql.test_types import CARRIED
from tests.connectors.reading import captured_rows, table, typed

#: Beside the type table: what lies in the log otherwise than its type says.
_MORE = [
    ("CHAR(200)", ["'ä'", "REPEAT('x', 200)"]),
    ("CHAR(3) CHARACTER SET utf16", ["'ü'"]),
    ("VARCHAR(300) CHARACTER SET ucs2", ["'ü'"]),
    ("VARCHAR(20) CHARACTER SET latin1", ["_latin1 x'80818de9'"]),
    ("DECIMAL(6,2) ZEROFILL", ["1.5"]),
    ("TINYTEXT", ["'tiny'"]),
    ("MEDIUMTEXT CHARACTER SET cp1251", ["'Привет'"]),
    ("ENUM('a', 'é') CHARACTER SET latin1", ["'é'", "''"]),
    ("SET('x', 'é', 'z')", ["'x,é'"]),
    ("BIT(17)", ["b'10000000000000001'"]),
    ("DECIMAL(10,10)", ["-0.0000000001", "0"]),
    ("DECIMAL(9,0)", ["-1", "999999999"]),
    ("DECIMAL(30,1) UNSIGNED", ["12345678901234567890123456789.5"]),
    ("TIME(1)", ["'-00:00:00.5'", "'-838:59:58.9'", "'00:00:00.1'"]),
    ("TIME(3)", ["'-00:00:01.005'", "'-01:00:00'"]),
    ("TIME(6)", ["'-00:00:00.000001'", "'-838:59:58.999999'"]),
    ("DATETIME(2)", ["'0001-01-01 00:00:00.01'"]),
    ("TIMESTAMP(6) NULL", ["'1970-01-01 03:00:01.000001'", "'2038-01-19 03:14:07.999999'"]),
    ("UUID", ["'123e4567-e89b-12d3-a456-426614174000'", "'123e4567-e89b-02d3-a456-426614174000'", "UUID()"]),
    ("INET6", ["'::1'", "'::10.1.2.3'", "'1:0:0:2:0:0:0:3'", "'::ffff:10.1.2.3'", "'2001:db8::ff00:42:8329'", "'1::'"]),
    ("INET4", ["'10.0.0.1'", "'0.0.0.0'"]),
    ("GEOMETRY", ["ST_GeomFromText('LINESTRING(0 0, 1 2)', 4326)"]),
    ("INT AS (number * 2) STORED", ["DEFAULT"]),
    ("VARCHAR(30) AS (CONCAT('n', number)) VIRTUAL", ["DEFAULT"]),
    ("INT INVISIBLE", ["7"]),
]
EVERY = ObjectName(("every",))


def test_every_type_is_the_same_in_a_change_and_in_a_snapshot(
    mysql_database: str, script: Script, connector: Connector, tmp_path: Path
) -> None:
    kinds = [(native, [literal for literal, _ in values]) for native, _, values in CARRIED] + _MORE
    height = max(len(literals) for _, literals in kinds) + 1
    listed = ", ".join(f"c{at} {native}" for at, (native, _) in enumerate(kinds))
    script(f"CREATE TABLE every (number int PRIMARY KEY, {listed})")
    captured = Captured(mysql_database, tmp_path, [EVERY])
    with captured.begin():
        pass
    names = ", ".join(["number", *(f"c{at}" for at in range(len(kinds)))])
    for row in range(height):
        values = [_literal(literals, row) for _, literals in kinds]
        script(f"SET sql_mode = ''; INSERT INTO every ({names}) VALUES ({row}, {', '.join(values)})")
    script("UPDATE every SET number = number + 100")
    captured.capture()
    info = captured.source.describe_stream(captured.stream, [EVERY]).tables[EVERY]
    assert info is not None
    for kinds_of in ({}, _as_text(info.columns)):
        expected = captured_rows(connector.source, table("every"), kinds_of)
        wanted = typed(info.columns, kinds_of)
        expected.sort(key=lambda row: int(row["number"]))
        changes = captured.changes(wanted, ["number"], EVERY)
        found = changes.rows.to_pylist()
        assert [row["_flowctl_op"] for row in found] == [Op.INSERT] * height + [Op.UPDATE] * height
        assert changes.old is not None
        assert [int(row["number"]) for row in changes.old.to_pylist()[height:]] == list(range(height))
        for at, row in enumerate(found):
            differs = _depends_on_the_number(kinds) if at < height else set()
            same = [column.name for column in wanted if column.name not in differs and column.name != "number"]
            then = expected[at % height]
            assert {name: repr(row[name]) for name in same} == {name: repr(then[name]) for name in same}


def _literal(literals: list[str], row: int) -> str:
    return literals[row] if row < len(literals) else "DEFAULT" if literals == ["DEFAULT"] else "NULL"


def _depends_on_the_number(kinds: list[tuple[str, list[str]]]) -> set[str]:
    return {f"c{at}" for at, (_, literals) in enumerate(kinds) if literals == ["DEFAULT"]}


def _as_text(columns: tuple[Column, ...]) -> dict[str, str]:
    """All but bytes, which are no text, and numbers that the server writes in a form of its own."""
    kept = (types.BINARY, types.FLOAT, types.DOUBLE)
    return {one.name: "string" for one in columns if one.type not in kept}


def test_every_known_character_set_is_decoded_as_the_server_does(script: Script) -> None:
    """Of the character sets with one byte for each character: all of their bytes."""
    from flowctl.connectors.mysql.changes.wire import WireColumn, converter, wire_of

    single = [name for name, codec in CODECS.items() if not codec.startswith("utf")]
    for name in single:
        script(f"CREATE TABLE letters_{name} (code int PRIMARY KEY, letter varchar(2) CHARACTER SET {name})")
        codes = ", ".join(f"({code}, CHAR({code} USING {name}))" for code in range(1, 128 if name == "ascii" else 256))
        script(f"SET sql_mode = ''; INSERT INTO letters_{name} VALUES {codes}")
        read = converter(wire_of(WireColumn("letter", 15, b"\x02\x00", collation=1), name, ""))
        for code, raw, expected in script(f"SELECT code, HEX(letter), letter FROM letters_{name}"):
            data = bytes.fromhex(raw)
            assert read(data) == expected, (name, code)


@pytest.mark.parametrize(
    ("native", "literal", "why"),
    [
        ("DATETIME", "'0000-00-00 00:00:00'", "a month or a day 0"),
        ("DATE", "'2024-00-10'", "a month or a day 0"),
        ("TIMESTAMP NULL", "'0000-00-00 00:00:00'", "a month or a day 0"),
        ("TINYINT(1)", "2", "neither 0 nor 1"),
        ("VARCHAR(10) CHARACTER SET big5", "'a'", "its character set is big5"),
    ],
)
def test_what_has_no_exact_value_is_refused_by_name(
    native: str, literal: str, why: str, mysql_database: str, script: Script, tmp_path: Path
) -> None:
    script(f"CREATE TABLE every (number int PRIMARY KEY, value {native})")
    captured = Captured(mysql_database, tmp_path, [EVERY])
    with captured.begin():
        pass
    script(f"SET sql_mode = ''; INSERT INTO every VALUES (1, {literal})")
    captured.capture()
    info: Any = captured.source.describe_stream(captured.stream, [EVERY]).tables[EVERY]
    with pytest.raises(TableError, match=f"value.*{why}"):
        captured.changes(info.columns, ["number"], EVERY)
    assert captured.changes(info.columns[:1], ["number"], EVERY).rows["number"].to_pylist() == [1]


def test_columns_of_the_server_s_own_are_left_out(mysql_database: str, script: Script, tmp_path: Path) -> None:
    """MariaDB has one for each unique key over long values. A user's column may have such a name."""
    script(
        "CREATE TABLE every (number int PRIMARY KEY, code text UNIQUE, path varchar(5000), UNIQUE (path, code),"
        " DB_ROW_HASH_1 bigint unsigned)"
    )
    captured = Captured(mysql_database, tmp_path, [EVERY])
    with captured.begin():
        pass
    script("INSERT INTO every VALUES (1, 'a', 'p', 7), (2, NULL, 'q', NULL); UPDATE every SET path = 'r'")
    script("ALTER TABLE every ADD more int; INSERT INTO every VALUES (3, 'c', 'r', 8, 9)")
    captured.capture()
    info = captured.source.describe_stream(captured.stream, [EVERY]).tables[EVERY]
    assert info is not None
    rows = captured.changes(info.columns, ["number"], EVERY).rows.to_pylist()
    assert [[row[column.name] for column in info.columns] for row in rows] == [
        [1, "a", "p", 7, None], [2, None, "q", None, None], [1, "a", "r", 7, None], [2, None, "r", None, None],
        [3, "c", "r", 8, 9],
    ]  # fmt: skip
    shapes = [captured.log.shape(digest) for digest in _digests(captured)]
    assert [[column.name for column in shape.columns] for shape in shapes] == [
        ["number", "code", "path", "DB_ROW_HASH_1"],
        ["number", "code", "path", "DB_ROW_HASH_1", "more"],
    ]


def _digests(captured: Captured) -> list[str]:
    batches = captured.log.between(0, captured.log.numbers()[-1])
    return [digest for batch in batches if (one := batch.table(EVERY)) for digest in one.shapes.values()]
