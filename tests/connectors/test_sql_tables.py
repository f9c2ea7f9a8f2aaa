"""Tables by SQL over other tables, through whole runs: what only Spark can tell of their columns."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from flowctl.engine.base import Engine
from flowctl.plan.document import action_of
from flowctl.run.apply import RunResult
from tests.connectors.whole_runs import SharedRuns
from tests.plan.worlds import changes

pytestmark = pytest.mark.needs("tables by SQL")


@pytest.fixture
def runs(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> SharedRuns:
    made = SharedRuns(tmp_path, engine, monkeypatch)
    statements(tmp_path, "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO a VALUES (1, 'one')")
    return made


def statements(folder: Path, *texts: str, database: str = "source.db") -> None:
    connection = sqlite3.connect(folder / database)
    try:
        with connection:
            for text in texts:
                connection.execute(text)
    finally:
        connection.close()


def flow(**tables: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": 1,
        "flow": "sql",
        "connections": {"src": {"type": "sqlite", "path": "source.db"}, "lake": {"type": "delta", "path": "lake"}},
        "state": {"url": "state"},
        "tables": tables,
    }


def by_sql(sql: str, **keys: Any) -> dict[str, Any]:
    return {"from": {"sql": sql}, "to": "lake:b", "mode": "truncate", **keys}


def error_of(result: RunResult, table: str) -> str:
    assert result.record is not None
    (outcome,) = [one for one in result.record.tables if one.id == table]
    return str(outcome.error)


A = {"from": "src:a", "to": "lake:a", "mode": "merge", "key": ["id"], "cursor": {"column": "id"}}


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"layout": {"partition_by": ["nme"]}}, "layout.partition_by"),
        ({"expect": [{"column": "nme", "not_null": True}]}, "expect"),
        ({"columns": {"mask": {"nme": "sha256"}}}, "columns.mask"),
        ({"mode": "merge", "key": ["nme"]}, "key"),
    ],
)
def test_a_name_that_no_column_has(runs: SharedRuns, keys: dict[str, Any], path: str) -> None:
    """It is found before the table is made."""
    result = runs.apply(flow(a=A, b=by_sql("SELECT * FROM {{ ref('a') }}", **keys)))
    assert f'{path}: "nme" is not a column of' in error_of(result, "b")
    assert not (runs.folder / "lake" / "b").exists()


@pytest.mark.full
def test_an_excluded_column_may_go_as_long_as_none_comes(runs: SharedRuns) -> None:
    statements(runs.folder, "ALTER TABLE a ADD COLUMN email TEXT")
    b = by_sql("SELECT * FROM {{ ref('a') }}", columns={"exclude": ["email"]})
    assert runs.apply(flow(a=A, b=b)).exit_code == 0
    renamed = {**A, "columns": {"rename": {"email": "e_mail"}}}
    result = runs.apply(flow(a=renamed, b=b), full_refresh=("a",))
    assert 'columns.exclude: "email" is not a column of' in error_of(result, "b")
    assert '"e_mail" is new there' in error_of(result, "b")
    gone = {**A, "columns": {"exclude": ["email"]}}
    result = runs.apply(flow(a=gone, b=b), full_refresh=("a",))
    assert result.exit_code == 0, error_of(result, "b")
    assert result.record is not None
    warned = [one.warnings for one in result.record.tables if one.id == "b"]
    assert [len(texts) for texts in warned] == [1] and warned[0][0].startswith('columns.exclude names "email"')


@pytest.mark.full
def test_a_table_that_is_up_to_date_has_not_got_its_new_column_yet(runs: SharedRuns) -> None:
    """It gets it with its next rows; until then it is read as it is, whoever else has new rows."""
    statements(runs.folder, "CREATE TABLE c (id INTEGER, x TEXT)", "INSERT INTO c VALUES (1, 'old')")
    sql = "SELECT a.id, c.x FROM {{ ref('a') }} a JOIN {{ ref('c') }} c ON a.id = c.id"
    document = flow(a=A, c={"from": "src:c", "to": "lake:c", "mode": "truncate"}, b=by_sql(sql))
    assert runs.apply(document).exit_code == 0
    statements(runs.folder, "ALTER TABLE a ADD COLUMN note TEXT", "INSERT INTO c VALUES (1, 'new')")
    result = runs.apply(document)
    assert result.exit_code == 0, error_of(result, "b")
    rows = runs.engine.spark.read.format("delta").load(str(runs.folder / "lake" / "b")).collect()
    assert sorted(row.x for row in rows) == ["new", "old"]


def rows_of(runs: SharedRuns, name: str) -> list[dict[str, Any]]:
    rows = runs.engine.spark.read.format("delta").load(str(runs.folder / "lake" / name)).collect()
    return [row.asDict() for row in rows]


@pytest.mark.long_on_spark
def test_columns_follow_those_that_they_are_made_of(runs: SharedRuns) -> None:
    """Each wider and new column of a table arrives in those that read it, and in what is computed of it, in one run."""
    made = "CREATE TABLE p (id INTEGER PRIMARY KEY, price decimal(10,2))"
    statements(runs.folder, made, "INSERT INTO p VALUES (1, '10.12')")
    document = flow(
        a={"from": "src:p", "to": "lake:a", "mode": "truncate", "columns": {"add": {"gross": "price * 1"}}},
        b=by_sql("SELECT id, price, gross FROM {{ ref('a') }}"),
        c=by_sql("SELECT * FROM {{ ref('b') }}", to="lake:c", mode="merge", key=["id"]),
        e=by_sql("SELECT * FROM {{ ref('a') }}", to="lake:e"),
    )
    assert runs.apply(document).exit_code == 0
    wider = made.replace("(10,2)", "(12,4), note TEXT")
    statements(runs.folder, "DROP TABLE p", wider, "INSERT INTO p VALUES (1, '10.1234', 'new')")
    result = runs.apply(document)
    assert result.exit_code == 0, [error_of(result, name) for name in "abce"]
    price = Decimal("10.1234")
    assert rows_of(runs, "a") == [{"id": 1, "price": price, "gross": price, "note": "new"}]
    assert rows_of(runs, "b") == [{"id": 1, "price": price, "gross": price}]
    assert rows_of(runs, "c") == [{"id": 1, "price": price, "gross": price}]
    assert rows_of(runs, "e") == [{"id": 1, "price": price, "gross": price, "note": "new"}]


@pytest.mark.full
def test_columns_follow_those_that_changed_in_an_earlier_run(runs: SharedRuns) -> None:
    """Along a chain too, each table in a run of its own; nothing that stays the same is looked up by Spark."""
    made = "CREATE TABLE p (id INTEGER PRIMARY KEY, price decimal(10,2))"
    statements(runs.folder, made, "INSERT INTO p VALUES (1, '10.12')")
    document = flow(
        a={"from": "src:p", "to": "lake:a", "mode": "truncate"},
        b=by_sql("SELECT id, price FROM {{ ref('a') }}"),
        c=by_sql("SELECT * FROM {{ ref('b') }}", to="lake:c", mode="merge", key=["id"]),
        e=by_sql("SELECT * FROM {{ ref('a') }}", to="lake:e"),
        f=by_sql("TABLE {{ ref('a') }}", to="lake:f"),
    )
    assert runs.apply(document).exit_code == 0
    assert runs.apply(document, select=("a",)).exit_code == 0
    assert [changes(step) for step in runs.plan(document).steps] == [()] * 5
    wider = made.replace("(10,2)", "(12,4), note TEXT")
    statements(runs.folder, "DROP TABLE p", wider, "INSERT INTO p VALUES (1, '10.1234', 'new')")
    assert runs.apply(document, select=("a",)).exit_code == 0
    for name in "bcef":
        (step,) = runs.plan(document, select=(name,)).steps
        assert changes(step) is None or action_of(step) == "none"
        result = runs.apply(document, select=(name,))
        assert result.exit_code == 0, error_of(result, name)
    price = Decimal("10.1234")
    assert rows_of(runs, "b") == [{"id": 1, "price": price}]
    assert rows_of(runs, "c") == [{"id": 1, "price": price}]
    assert rows_of(runs, "e") == rows_of(runs, "f") == [{"id": 1, "price": price, "note": "new"}]
    assert [changes(step) for step in runs.plan(document).steps] == [()] * 5


def without_what_was_read(folder: Path) -> None:
    """The newest state as an older flowctl would have written it."""
    newest = max((folder / "state").rglob("state/*.json"), key=lambda path: int(path.stem))
    document = json.loads(newest.read_text())
    for table in document["tables"].values():
        table.pop("upstream_shape", None)
    newest.write_text(json.dumps(document))


@pytest.mark.full
def test_what_an_older_flowctl_has_made_gets_the_columns_that_came_before_this_one(runs: SharedRuns) -> None:
    """They were in what it read already, and it went on without them. What is as it was stays so."""
    b = by_sql("SELECT * FROM {{ ref('a') }}", mode="merge", key=["id"])
    document = flow(a=A, b=b, c=by_sql("SELECT id FROM {{ ref('a') }}", to="lake:c"))
    assert runs.apply(document).exit_code == 0
    statements(runs.folder, "ALTER TABLE a ADD COLUMN note TEXT", "INSERT INTO a VALUES (2, 'two', 'new')")
    assert runs.apply(document, select=("a",)).exit_code == 0
    without_what_was_read(runs.folder)
    result = runs.apply(document)
    assert result.exit_code == 0, error_of(result, "b") + error_of(result, "c")
    assert sorted(row["note"] or "" for row in rows_of(runs, "b")) == ["", "new"]
    assert sorted(rows_of(runs, "c"), key=str) == [{"id": 1}, {"id": 2}]
    assert [changes(step) for step in runs.plan(document).steps] == [(), (), ()]


@pytest.mark.long_on_spark
def test_columns_of_others_come_change_and_go_as_those_that_flowctl_writes(runs: SharedRuns) -> None:
    def someone(*texts: str) -> None:
        statements(runs.folder, *texts, database="target.db")

    def applied(new: str) -> None:
        statements(runs.folder, f"INSERT INTO a VALUES ({new})")
        (a, *_) = runs.plan(document).steps
        assert action_of(a) in ("create", "change")
        result = runs.apply(document)
        assert result.exit_code == 0, error_of(result, "b") + error_of(result, "c")

    keys = {"on_schema_change": {"other_type": "text", "dropped_column": "null"}}
    document = flow(
        a={**A, "to": "db:a"},
        b=by_sql("SELECT * FROM {{ ref('a') }}", **keys),
        c=by_sql("SELECT id, rem FROM {{ ref('a') }}", to="lake:c", **keys),
    )
    document["connections"]["db"] = {"type": "sqlite", "path": "target.db"}
    assert runs.apply(document, select=("a", "b")).exit_code == 0
    someone("ALTER TABLE a ADD COLUMN rem INTEGER", "UPDATE a SET rem = 7")
    applied("2, 'two'")
    assert sorted(rows_of(runs, "b"), key=str) == [
        {"id": 1, "name": "one", "rem": 7}, {"id": 2, "name": "two", "rem": None}
    ]  # fmt: skip
    applied("3, 'three'")
    assert [changes(step) for step in runs.plan(document).steps][1:] == [(), ()]
    someone("ALTER TABLE a DROP COLUMN rem", "ALTER TABLE a ADD COLUMN rem TEXT", "UPDATE a SET rem = 'x'")
    applied("4, 'four'")
    texts = {row["id"]: row.get("rem__text") for row in rows_of(runs, "c")}
    assert texts == {1: "x", 2: "x", 3: "x", 4: None}
    someone("ALTER TABLE a DROP COLUMN rem")
    assert runs.apply(document, exclude=("c",)).exit_code == 0


@pytest.mark.long_on_spark
def test_a_full_refresh_takes_the_types_of_now(runs: SharedRuns) -> None:
    made = "CREATE TABLE p (id INTEGER PRIMARY KEY, price INTEGER)"
    statements(runs.folder, made, "INSERT INTO p VALUES (1, 10)")
    document = flow(
        a={"from": "src:p", "to": "lake:a", "mode": "truncate", "columns": {"add": {"gross": "price + 1"}}},
        b=by_sql("SELECT id, price, gross FROM {{ ref('a') }}"),
    )
    assert runs.apply(document).exit_code == 0
    statements(
        runs.folder, "DROP TABLE p", made.replace("price INTEGER", "price REAL"), "INSERT INTO p VALUES (1, 10.5)"
    )
    result = runs.apply(document, full_refresh=("a",))
    assert 'column "price" is double, was bigint' in error_of(result, "b")
    assert runs.apply(document, full_refresh=("*",)).exit_code == 0
    for name in "ab":
        assert rows_of(runs, name) == [{"id": 1, "price": 10.5, "gross": 11.5}]


def test_a_new_table_whose_types_only_the_engine_tells_takes_nulls_as_any_other(
    tmp_path: Path, runs: SharedRuns
) -> None:
    statements(tmp_path, "CREATE TABLE p (price INTEGER NOT NULL)", "INSERT INTO p VALUES (3)")
    document = flow(a={"from": "src:p", "to": "lake:a", "mode": "truncate", "columns": {"add": {"gross": "price + 1"}}})
    assert runs.apply(document).exit_code == 0
    assert [field.nullable for field in DeltaTable(tmp_path / "lake" / "a").schema().fields] == [True, True]
