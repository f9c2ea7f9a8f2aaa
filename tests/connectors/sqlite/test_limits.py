"""Columns of somebody else's table in which SQLite makes numbers of texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal as Exact
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.sqlite.types import makes_numbers
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Decimal
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.test_target_history import seen
from tests.connectors.writing import HISTORY, Writer, gone, upserts

pytestmark = pytest.mark.long_on_spark


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["sqlite"](request, tmp_path, scratch) as opened:
        yield opened


TEXTS = (["a", "", "7", "-1.5", "1e+20", "0x10", "é"], ["007", "1e3", "1.0", " 7", "9" * 20, "+7"])
#: By type: what it is to flowctl, values that fit, and values that the column would change.
LIMITED: dict[str, tuple[DataType, list[Any], list[Any]]] = {
    **dict.fromkeys(("STRING", "NUMERIC", "DECIMAL", "STRING(9)", "UUID", "JSON", "ANY"), (types.STRING, *TEXTS)),
    "DECIMAL(18,2)": (
        Decimal(18, 2),
        [Exact("1.10"), Exact("0.00"), Exact("123456789012345.67")],
        [Exact("1234567890123456.78")],
    ),
}


@pytest.mark.parametrize("native", LIMITED)
def test_a_value_that_a_column_would_change_is_refused(writer: Writer, native: str) -> None:
    kind, fitting, others = LIMITED[native]
    columns = (Column("id", types.INT64), Column("v", kind))
    writer.place.execute(f"CREATE TABLE {{table}} (id BIGINT, v {native})")
    assert [one.name for one in writer.place.target.limited_columns(writer.info(), ["id", "v"])] == ["v"]
    rows = [{"id": number, "v": value} for number, value in enumerate([*fitting, None])]
    writer.write(rows, 1, columns=columns, in_memory=True)
    for other in others:
        with pytest.raises(TableError, match="would change a value"):
            writer.write([{"id": 99, "v": other}], 2, columns=columns, in_memory=True)
    stored = writer.place.target.scan(writer.spark, writer.place.object, columns).collect()
    assert sorted(map(tuple, stored)) == [(row["id"], row["v"]) for row in rows]


@pytest.mark.parametrize(
    "declared",
    ["v", "v TEXT", "v VARCHAR(9)", "v CLOB", "v DECIMAL_TEXT(50,2)", "v BLOB_TEXT", "v DECIMAL(15,2)"],
)
def test_columns_that_keep_every_value(writer: Writer, declared: str) -> None:
    writer.place.execute(f"CREATE TABLE {{table}} (id BIGINT, {declared})")
    assert writer.place.target.limited_columns(writer.info(), ["id", "v"]) == []


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="no STRICT tables")
def test_a_column_of_any_type_in_a_strict_table_keeps_every_text(writer: Writer) -> None:
    columns = (Column("id", types.INT64), Column("v", types.STRING))
    writer.place.execute("CREATE TABLE {table} (id INTEGER, v ANY) STRICT")
    assert writer.place.target.limited_columns(writer.info(), ["id", "v"]) == []
    writer.write([{"id": 1, "v": "007"}], 1, columns=columns)
    assert writer.place.read(["v"]) == [("007",)]


def test_keys_that_would_become_one(writer: Writer) -> None:
    """A row got the values of another key."""
    columns = (Column("id", types.STRING), Column("n", types.INT64))
    writer.place.execute("CREATE TABLE {table} (id STRING, n BIGINT)")
    job: dict[str, Any] = {"columns": columns, "key": ("id",), "compared": ("n",)}
    with pytest.raises(TableError, match="would change a value"):
        writer.write(upserts({"id": "7", "n": 1}, {"id": "007", "n": 2}), 1, "merge", **job)
    assert writer.place.read(["n"]) == []
    first = writer.write(upserts({"id": "7", "n": 1}, {"id": "a", "n": 2}), 2, "merge", **job)
    again = writer.write(upserts({"id": "7", "n": 3}, {"id": "a", "n": 2}), 3, "merge", **job)
    assert (first.counts.inserted, again.counts.inserted, again.counts.updated) == (2, 0, 1)
    assert writer.write([{**gone(7), "id": "7", "n": None}], 4, "merge", **job).counts.deleted == 1
    assert writer.place.read(["id", "n"]) == [("a", 2)]


def test_a_history_with_such_a_key(writer: Writer) -> None:
    columns = (Column("id", types.STRING), *HISTORY[1:])
    own = "valid_from TIMESTAMPTZ, valid_to TIMESTAMPTZ, is_current BOOLEAN, row_hash TEXT"
    writer.place.execute(f"CREATE TABLE {{table}} (id STRING, name STRING, {own})")
    for number, name in enumerate(["7", "b", "7"], 1):
        writer.write([{**seen(name, number), "id": "a"}], number, "scd2", columns=columns)
    with pytest.raises(TableError, match=r"column id .* would change a value"):
        writer.write([{**seen("a", 4), "id": "7"}], 4, "scd2", columns=columns)
    assert sorted(map(str, writer.place.read(["name"]))) == ["('b',)", "(7,)", "(7,)"]


DECLARED = (
    "STRING",
    "NUMERIC",
    "POINT",
    "FLOATING POINT",
    "CHARINT",
    "INT4",
    "DOUBLE",
    "DATE",
    "ANY",
    "BLOB",
    "XCHARX",
)


@pytest.mark.parametrize("declared", [*DECLARED, "TEXT", "NVARCHAR(9)", "LONG", "JSON", "", "TIMESTAMPTZ"])
def test_the_affinity_is_sqlites_own(declared: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE t (v {declared})")
        connection.execute("INSERT INTO t VALUES ('007')")
        assert connection.execute("SELECT typeof(v) <> 'text' FROM t").fetchone() == (makes_numbers(declared),)
