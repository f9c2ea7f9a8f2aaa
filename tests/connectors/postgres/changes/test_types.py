"""Every type of the type table: a change delivers what a snapshot of the same row delivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from flowctl.changes.segment import Op
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from tests.connectors.postgres.changes.streaming import Captured
from tests.connectors.postgres.test_types import EXACT, OWN_TYPES

#: Beside the type table: what the output function writes otherwise than a cast to text.
_MORE = [
    ("address", ["'10.0.0.1'", "'fe80::1'", "'10.0.0.0/8'"]),
    ("cidr", ["'10.0.0.0/8'"]),
    ('"char"', ["'x'"]),
    ("name", ["'a name'"]),
    ("box[]", ["'{(1,1),(0,0);(2,2),(0,0)}'"]),
    ("boolean[]", ["'{}'"]),
    ("timestamptz[]", ["'{2020-01-01 00:00:00.5+01,NULL}'"]),
    ("timestamptz", ["'2020-06-01 12:00:00.123456+02'", "'0001-01-01 00:00:00+00'"]),
]
OBJECT = ObjectName(("public", "every"))


def test_every_type_is_the_same_in_a_change_and_in_a_snapshot(postgres_database: str, tmp_path: Path) -> None:
    kinds = [(native, [literal for literal, _ in values]) for native, _, values in EXACT] + _MORE
    height = max(len(literals) for _, literals in kinds) + 1
    with psycopg.connect(postgres_database, autocommit=True) as database:
        database.execute(f"{OWN_TYPES}; CREATE DOMAIN address AS inet")
        columns = ", ".join(f"c{at} {native}" for at, (native, _) in enumerate(kinds))
        database.execute(f"CREATE TABLE every (row int PRIMARY KEY, {columns})")
        captured = Captured(postgres_database, tmp_path, [OBJECT])
        with captured.begin():
            pass
        for row in range(height):
            values = [literals[row] if row < len(literals) else "NULL" for _, literals in kinds]
            database.execute(f"INSERT INTO every VALUES ({row}, {', '.join(values)})")
        database.execute("UPDATE every SET row = row + 100")
    captured.capture()
    info = captured.source.describe_stream(captured.stream, [OBJECT]).tables[OBJECT]
    assert info is not None
    for wanted in (info.columns, _as_text(info.columns)):
        names = [column.name for column in wanted if column.name != "row"]
        expected = captured.snapshot_rows(OBJECT, info.columns, wanted)
        expected.sort(key=lambda row: int(row["row"]))
        changes = captured.changes(wanted, ["row"], OBJECT)
        found = changes.rows.to_pylist()
        assert [row["_flowctl_op"] for row in found] == [Op.INSERT] * height + [Op.UPDATE] * height
        for at, row in enumerate(found):
            sent = [name for name in names if name not in changes.unsent or not changes.unsent[name][at]]
            assert len(sent) >= len(names) - 1  # the long text is not sent with an update
            assert {name: repr(row[name]) for name in sent} == {
                name: repr(expected[at % height][name]) for name in sent
            }


def _as_text(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(Column(one.name, types.STRING, native=one.native, as_text=True) for one in columns)


@pytest.mark.parametrize(
    ("native", "literal", "why"),
    [
        ("date", "'infinity'", "is not exactly date: infinity and years outside 1 to 9999 have"),
        ("date", "'0044-03-15 BC'", "is not exactly date: infinity and years outside 1 to 9999 have"),
        ("timestamptz", "'-infinity'", "is not exactly timestamp"),
        ("numeric(10,2)", "'NaN'", "is not exactly decimal"),
        ("integer[]", "'[4:5]={1,2}'", "does not begin at index 1"),
        ("integer[]", "'{{1,2},{3,4}}'", "is not exactly"),
    ],
)
def test_what_a_type_cannot_hold_is_refused_by_name(
    postgres_database: str, tmp_path: Path, native: str, literal: str, why: str
) -> None:
    captured, columns = inserted(postgres_database, tmp_path, native, literal)
    with pytest.raises(TableError, match=why) as raised:
        captured.changes(columns, ["row"], OBJECT)
    assert "odd" in raised.value.message and literal.strip("'") not in raised.value.message.partition(": ")[0]


@pytest.mark.parametrize(
    ("native", "kind", "literals"),
    [
        ("numeric(10,2)", types.INT32, ["'2.00'", "'-7'"]),
        ("numeric", types.INT64, ["2", "3000000000"]),
        ("numeric", types.Decimal(6, 2), ["'2.5000'"]),
        ("numeric(10,2)", types.DOUBLE, ["'0.10'", "'12345678.90'"]),
        ("numeric", types.FLOAT, ["'0.5'"]),
        ("bigint", types.DOUBLE, ["9007199254740992"]),
        ("bigint", types.INT8, ["-128"]),
        ("real", types.DOUBLE, ["'0.1'", "'NaN'", "'Infinity'"]),
        ("double precision", types.FLOAT, ["'0.5'", "'NaN'", "'-Infinity'"]),
        ("double precision", types.Decimal(5, 2), ["'0.1'"]),
        ("boolean", types.INT16, ["true", "false"]),
        ("date", types.TIMESTAMP_NTZ, ["'0001-01-01'", "'9999-12-31'"]),
        ("timestamp", types.DATE, ["'2024-02-29 00:00'"]),
        ("timestamp", types.TIMESTAMP, ["'2024-02-29 12:00:00.5'"]),
        ("timestamptz", types.TIMESTAMP_NTZ, ["'2024-02-29 12:00+02'"]),
        ("timestamptz", types.DATE, ["'2024-02-29 00:00+00'"]),
        ("text", types.INT32, ["'7'", "' 7'"]),
        ("text", types.Decimal(38, 18), ["'0.000000000000000001'"]),
        ("text", types.DATE, ["'2024-02-29'"]),
        ("text", types.BOOL, ["'true'", "'no'"]),
    ],
    ids=str,
)
def test_another_type_is_the_same_in_a_change_and_in_a_snapshot(
    postgres_database: str, tmp_path: Path, native: str, kind: types.DataType, literals: list[str]
) -> None:
    captured, columns = inserted(postgres_database, tmp_path, native, *literals, "NULL")
    wanted = tuple(replace(column, type=kind) if column.name == "odd" else column for column in columns)
    expected = sorted(captured.snapshot_rows(OBJECT, columns, wanted), key=lambda row: int(row["row"]))
    found = captured.changes(wanted, ["row"], OBJECT).rows.to_pylist()
    assert [repr(row["odd"]) for row in found] == [repr(row["odd"]) for row in expected]


def inserted(url: str, folder: Path, native: str, *literals: str) -> tuple[Captured, tuple[Column, ...]]:
    """Captured insertions into a table with a column `odd`, and its columns."""
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(f"CREATE TABLE every (row int PRIMARY KEY, odd {native})")
        captured = Captured(url, folder, [OBJECT])
        with captured.begin():
            pass
        for row, literal in enumerate(literals):
            database.execute(f"INSERT INTO every VALUES ({row}, {literal})")
    captured.capture()
    info = captured.source.describe_stream(captured.stream, [OBJECT]).tables[OBJECT]
    assert info is not None
    return captured, info.columns
