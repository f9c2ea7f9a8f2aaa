"""Merges in SQLite: as many rows in a batch as in the target take no longer than that."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from flowctl.sql.difference import Upsert, apply_statements, difference
from tests.sql.query_plans import assert_linear


@pytest.mark.parametrize("key", [("id",), ("id", "part")], ids=["one column", "two columns"])
@pytest.mark.parametrize("deleted_at", [None, "2026-01-01T00:00:00Z"], ids=["deletes", "soft deletes"])
def test_sqlite_runs_nothing_for_every_row(key: tuple[str, ...], deleted_at: str | None) -> None:
    columns = ("id", "part", "name", *(["_deleted_at"] if deleted_at else []))
    change = Upsert(
        target=("orders",),
        batch=("batch",),
        columns=columns,
        batch_columns=("id", "part", "name", "op"),
        key=key,
        compared=("name",),
        operation="op",
        deleted_at=deleted_at,
    )
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE orders (id, part, name, _deleted_at)")
        database.execute("CREATE TEMP TABLE batch (id, part, name, op)")
        assert_linear(database, difference(change, "sqlite"))
        database.execute(f"CREATE TEMP TABLE changes AS {difference(change, 'sqlite')}")
        for statement in apply_statements(change, ("changes",), "sqlite"):
            assert_linear(database, statement)
