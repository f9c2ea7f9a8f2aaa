"""The difference that this process works out is the one of the SQL that databases and engines run."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.lake import memory_difference
from flowctl.connectors.lake.row_search import FILE, ROW, row_schema
from flowctl.connectors.target import OP_COLUMN
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql.difference import ACTION, SOFT_DELETED, SOURCE_ORDER, Upsert, difference

COLUMNS = (Column("a", types.INT64), Column("b", types.STRING), Column("v", types.INT64), Column("w", types.STRING))
OTHERS = Column("of others", types.INT64)
DELETED = Column(SOFT_DELETED, types.TIMESTAMP)
CHANGE = Upsert(
    target=("t",),
    batch=("s",),
    columns=tuple(column.name for column in COLUMNS),
    batch_columns=(*(column.name for column in COLUMNS), OP_COLUMN),
    key=("a", "b"),
    compared=("v", "w"),
    operation=OP_COLUMN,
    carried=(OTHERS.name, FILE, ROW),
)
Row = tuple[Any, ...]

keys = st.tuples(st.integers(0, 2), st.sampled_from("xy"))
values = st.tuples(st.none() | st.integers(0, 1), st.none() | st.sampled_from(["", "o"]))
batches = st.dictionaries(keys, st.tuples(values, st.sampled_from("UD")), max_size=4)
tables = st.lists(st.tuples(keys, values, st.booleans()), max_size=6)


def in_sqlite(change: Upsert, batch: list[Row], there: list[Row], names: list[str]) -> list[Row]:
    with sqlite3.connect(":memory:") as database:
        listed = ", ".join(f'"{name}"' for name in names)
        database.execute(f"CREATE TABLE t ({listed})")
        database.execute(f"CREATE TABLE s ({', '.join(change.batch_columns)})")
        database.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(names))})", there)
        database.executemany(f"INSERT INTO s VALUES ({', '.join('?' * len(change.batch_columns))})", batch)
        return database.execute(difference(change, "sqlite")).fetchall()


def in_memory(change: Upsert, batch: list[Row], there: list[Row], columns: tuple[Column, ...]) -> list[Row]:
    names = change.batch_columns[len(COLUMNS) :]
    schema = arrow_schema((*COLUMNS, *(Column(name, types.STRING) for name in names)))
    found = memory_difference.difference(
        pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in batch], schema),
        pa.Table.from_pylist(
            [dict(zip(row_schema((*columns, OTHERS)).names, row, strict=True)) for row in there],
            row_schema((*columns, OTHERS)),
        ),
        change,
        columns,
    )
    return [tuple(row.values()) for row in found.to_pylist()]


def by_text(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


@settings(deadline=None)
@given(batches, tables)
def test_it_is_that_of_sql(batch: dict[Any, Any], table: list[Any]) -> None:
    rows = [(*key, *seen, op) for key, (seen, op) in batch.items()]
    there = [(*key, *seen, at, 0, at) for at, (key, seen, _) in enumerate(table)]
    names = [*CHANGE.columns, *CHANGE.carried]
    assert by_text(in_memory(CHANGE, rows, there, COLUMNS)) == by_text(in_sqlite(CHANGE, rows, there, names))


@settings(deadline=None)
@given(batches, tables, st.booleans())
def test_soft_deletes_are_those_of_sql(batch: dict[Any, Any], table: list[Any], marks: bool) -> None:
    """The moment of a deletion is left out: SQLite keeps it as text."""
    columns = (*COLUMNS, DELETED)
    moment = "2026-01-02T03:04:05.000000Z"
    change = replace(CHANGE, columns=(*CHANGE.columns, SOFT_DELETED), deleted_at=moment if marks else None)
    rows = [(*key, *seen, op) for key, (seen, op) in batch.items()]
    there = [(*key, *seen, 0 if gone else None, at, 0, at) for at, (key, seen, gone) in enumerate(table)]
    ours, theirs = (
        in_memory(change, rows, there, columns),
        in_sqlite(change, rows, there, [*change.columns, *CHANGE.carried]),
    )

    def without_moment(found: list[Row]) -> list[str]:
        return by_text([(*row[:4], row[4] is None, *row[5:]) for row in found])

    assert without_moment(ours) == without_moment(theirs)


@settings(deadline=None)
@given(batches, tables, st.data())
def test_an_order_counts_as_in_sql(batch: dict[Any, Any], table: list[Any], data: st.DataObject) -> None:
    orders = st.sampled_from(["1", "2", "3"])
    columns = (*COLUMNS, DELETED, Column(SOURCE_ORDER, types.STRING))
    change = replace(
        CHANGE,
        columns=(*CHANGE.columns, SOFT_DELETED, SOURCE_ORDER),
        batch_columns=(*CHANGE.batch_columns, SOURCE_ORDER),
        deleted_at="2026-01-02T03:04:05.000000Z",
        is_ordered=True,
    )
    rows = [(*key, *seen, op, data.draw(orders)) for key, (seen, op) in batch.items()]
    there = [
        (*key, *seen, 0 if gone else None, data.draw(st.none() | orders), at, 0, at)
        for at, (key, seen, gone) in enumerate(table)
    ]
    ours, theirs = (
        in_memory(change, rows, there, columns),
        in_sqlite(change, rows, there, [*change.columns, *CHANGE.carried]),
    )
    found, wanted = (by_text([(*row[:4], row[4] is None, *row[5:]) for row in rows]) for rows in (ours, theirs))
    assert found == wanted


@pytest.mark.parametrize(
    ("before", "after", "is_change"),
    [(float("nan"), float("nan"), False), (0.0, -0.0, False), (None, float("nan"), True), (1.0, 2.0, True)],
)
def test_floats_are_compared_as_spark_compares_them(before: float | None, after: float, is_change: bool) -> None:
    columns = (Column("a", types.INT64), Column("v", types.DOUBLE))
    change = replace(CHANGE, columns=("a", "v"), batch_columns=("a", "v"), key=("a",), compared=("v",), carried=())
    batch = pa.table({"a": [1], "v": pa.array([after], pa.float64())})
    there = pa.Table.from_pylist([{"a": 1, "v": before, FILE: 0, ROW: 0}], row_schema(columns))
    found = memory_difference.difference(batch, there, change, columns)
    assert found[ACTION].to_pylist() == (["update"] if is_change else [])
