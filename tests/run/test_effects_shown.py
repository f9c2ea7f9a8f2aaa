"""`plan --effects` where a run would not commit, or could not be told: what would stop it, samples, and changes of the
schema, of the source, and of tables that others read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowctl.engine.base import Engine
from flowctl.errors import LockedError, TableError
from flowctl.model.effects import CountedEffects, Effects, PreventedEffects, SampleRow, UnknownEffects
from flowctl.model.step import Load, Plan, Recover
from flowctl.plan.document import to_json
from flowctl.run import dry_run
from flowctl.state.location import open_flow
from flowctl.state.runs import BegunRun, put_begun
from tests.connectors.whole_runs import SharedRuns
from tests.e2e.flows import sqlite_rows, sqlite_script

SOURCE = """
CREATE TABLE people (id INTEGER, name TEXT, mail TEXT);
INSERT INTO people VALUES (1, 'Ada', 'ada@x'), (2, 'Bob', 'bob@x'), (3, NULL, NULL), (4, 'Eve', 'eve@x');
"""
MERGE: dict[str, Any] = {"mode": "merge", "key": ["id"]}
SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "plan.schema.json").read_text())


@pytest.fixture
def runs(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> SharedRuns:
    sqlite_script(tmp_path / "source.db", SOURCE)
    return SharedRuns(tmp_path, engine, monkeypatch)


def document(people: dict[str, Any], **more: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": 1,
        "flow": "shop",
        "state": {"url": "state"},
        "connections": {
            "src": {"type": "sqlite", "path": "source.db"},
            "dst": {"type": "sqlite", "path": "target.db"},
            "lake": {"type": "delta", "path": "lake"},
        },
        "tables": {"people": {"from": "src:people", "to": "dst:people", **people}, **more},
    }


def change(runs: SharedRuns, script: str) -> None:
    sqlite_script(runs.folder / "source.db", script)


def of(plan: Plan, table: str = "people") -> Effects:
    jsonschema.validate(to_json(plan), SCHEMA)
    (found,) = (step.effects for step in plan.steps if isinstance(step, Load | Recover) and step.id == table)
    assert found is not None
    return found


def counted(plan: Plan, table: str = "people") -> CountedEffects:
    found = of(plan, table)
    assert isinstance(found, CountedEffects), found
    return found


def prevented(plan: Plan) -> PreventedEffects:
    found = of(plan)
    assert isinstance(found, PreventedEffects), found
    return found


#: A table's spec, what changes in the source after a first run, and what the run would say of it.
STOPS: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "a failing expectation, in one pass": (
        {"mode": "truncate", "expect": [{"column": "name", "not_null": True}]}, "", 4, "name"
    ),
    "a failing expectation on the batch": (
        {"mode": "truncate", "expect": [{"rows": {"min": 100}}]}, "", 4, "rows"
    ),
    "a guard of deletes": (
        {**MERGE, "deletes": {"detect": "missing_keys"}}, "DELETE FROM people WHERE id > 1", 6,
        "guard.max_deleted 10%: 3 of 4 rows would be deleted",
    ),
    "a guard of an empty source": (
        {"mode": "truncate", "guard": {"allow_empty": False}}, "DELETE FROM people", 6, "guard.allow_empty"
    ),
    "a guard of shrinking": (
        {"mode": "truncate", "guard": {"max_shrink": "20%"}}, "DELETE FROM people WHERE id > 2", 6, "guard.max_shrink"
    ),
    "a null key": (MERGE, "INSERT INTO people VALUES (NULL, 'x', 'y')", 4, "1 row with a null in id"),
    "a key that comes twice": (
        {**MERGE, "dedupe": "fail"}, "INSERT INTO people VALUES (1, 'x', 'y')", 4, "dedupe: fail"
    ),
    "a value that is none": (
        {"mode": "truncate"}, "UPDATE people SET id = 'no number' WHERE id = 2", 4, "id"
    ),
}  # fmt: skip


#: On Spark: where the engine itself refuses a row, and where the batch is staged.
SHORT = ("a failing expectation, in one pass", "a failing expectation on the batch", "a value that is none")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SHORT else pytest.mark.long_on_spark) for name in STOPS],
)
def test_what_would_stop_the_run_is_shown_as_such(runs: SharedRuns, name: str) -> None:
    people, script, code, said = STOPS[name]
    if script:
        assert runs.apply(document(people)).exit_code == 0
        change(runs, script)
    before = listing(runs)
    found = prevented(runs.effects(document(people), rows=2, with_values=True))
    assert listing(runs) == before
    assert said in found.stopped
    result = runs.apply(document(people))
    assert result.exit_code == found.exit_code == code
    assert result.record is not None
    (table,) = result.record.tables
    assert table.error is not None
    assert table.error.message == found.stopped


@pytest.mark.long_on_spark
def test_what_goes_to_quarantine_and_what_is_warned_of(runs: SharedRuns) -> None:
    people = {
        **MERGE,
        "expect": [
            {"column": "name", "not_null": True, "on_fail": "quarantine"},
            {"column": "mail", "in": ["ada@x"], "on_fail": "warn"},
        ],
    }
    before = listing(runs)
    found = counted(runs.effects(document(people)))
    assert listing(runs) == before
    assert (found.inserted, list(found.quarantined.values())) == (3, [1])
    assert len(found.warnings) == 1
    result = runs.apply(document(people))
    assert result.record is not None
    (table,) = result.record.tables
    assert (table.rows.read, table.rows.inserted, table.rows.quarantined) == (4, 3, 1)
    assert table.warnings == found.warnings


def test_samples_show_keys_and_values_only_when_asked_for_and_no_masked_one(runs: SharedRuns) -> None:
    mask = {"columns": {"mask": {"mail": "sha256"}}}
    people = {**MERGE, **mask, "deletes": {"detect": "missing_keys"}, "guard": {"max_deleted": "99%"}}
    runs.apply(document(people))
    change(
        runs,
        "UPDATE people SET name = 'Bo\x1b', mail = 'new@x' WHERE id = 2; DELETE FROM people WHERE id = 4;"
        "INSERT INTO people VALUES (9, NULL, 'nine@x'), (10, 'Ten', NULL)",
    )
    assert counted(runs.effects(document(people))).samples == ()
    keys = counted(runs.effects(document(people), rows=1)).samples
    assert keys == (
        SampleRow("insert", {"id": "9"}), SampleRow("update", {"id": "2"}), SampleRow("delete", {"id": "4"})
    )  # fmt: skip
    found = counted(runs.effects(document(people), rows=5, with_values=True))
    assert found.columns == {"name": 1, "mail": 1}
    (bob,) = (sample for sample in found.samples if sample.action == "update")
    assert bob.before == {"name": "Bob", "mail": "(masked)"}
    assert bob.after == {"name": "Bo\x1b", "mail": "(masked)"}
    assert [sample.key for sample in found.samples if sample.action == "insert"] == [{"id": "9"}, {"id": "10"}]
    (gone,) = (sample for sample in found.samples if sample.action == "delete")
    assert gone.before["name"] == "Eve"
    assert "@" not in str(found.samples)


@pytest.mark.long_on_spark
def test_a_new_column_is_compared_as_if_it_were_there(runs: SharedRuns) -> None:
    tables = {"lake": {"from": "src:people", "to": "lake:people", **MERGE}}
    runs.apply(document(MERGE, **tables))
    change(runs, "ALTER TABLE people ADD COLUMN city TEXT; UPDATE people SET city = 'Rome' WHERE id < 3")
    plan = runs.effects(document(MERGE, **tables))
    for table in ("people", "lake"):
        found = counted(plan, table)
        assert (found.inserted, found.updated, found.unchanged, found.columns) == (0, 2, 2, {"city": 2})
    result = runs.apply(document(MERGE, **tables))
    assert result.record is not None
    assert [table.rows.updated for table in result.record.tables] == [2, 2]


@pytest.mark.long_on_spark
def test_a_wider_column_is_compared_as_if_it_were_wide(runs: SharedRuns, postgres_database: str) -> None:
    import psycopg

    runs.monkeypatch.setenv("PG_PASSWORD", "etl-secret")
    url = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    flow = document(MERGE)
    flow["connections"]["pg"] = {"type": "postgres", "url": url}
    flow["tables"] = {"people": {"from": "pg:public.people", "to": "pg:public.copy", **MERGE}}
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE people (id int PRIMARY KEY, n int, t varchar(5))")
        connection.execute("INSERT INTO people VALUES (1, 1, 'a'), (2, 2, NULL), (3, NULL, 'c')")
        runs.apply(flow)
        connection.execute("ALTER TABLE people ALTER n TYPE bigint")
        connection.execute("UPDATE people SET n = 5000000000 WHERE id = 2")
        found = counted(runs.effects(flow))
        assert (found.inserted, found.updated, found.unchanged, found.columns) == (0, 1, 2, {"n": 1})
        kinds = "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = 'copy'::regclass AND attname = 'n'"
        assert connection.execute(kinds).fetchall() == [("integer",)]
        result = runs.apply(flow)
    assert result.record is not None
    assert result.record.tables[0].rows.updated == 1


@pytest.mark.long_on_spark
def test_the_numbers_are_those_of_their_moment(runs: SharedRuns) -> None:
    plan = runs.effects(document({"mode": "truncate"}))
    change(runs, "DELETE FROM people WHERE id = 1")
    assert counted(plan).inserted == 4
    assert counted(plan).at > plan.created_at
    result = runs.apply(document({"mode": "truncate"}))
    assert result.record is not None
    assert result.record.tables[0].rows.inserted == 3
    assert "effects" not in json.dumps(result.record.plan)


def test_tables_that_read_one_which_the_run_changes_are_unknown(runs: SharedRuns) -> None:
    if not runs.has_jvm:
        pytest.xfail("SQL over tables: integer overflow is not detected on Sail")
    named = {"from": {"sql": "SELECT id, name FROM {{ ref('people') }}"}, "to": "dst:named", "mode": "truncate"}
    flow = document({**MERGE, "cursor": {"column": "id"}}, named=named)
    assert of(runs.effects(flow), "named") == UnknownEffects("depends on people, which this run changes")
    runs.apply(flow, select=("people",))
    assert counted(runs.effects(flow), "named").inserted == 4  # people has nothing new
    runs.apply(flow)
    assert len(sqlite_rows(runs.folder / "target.db", "SELECT * FROM named")) == 4


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_run_that_begins_meanwhile_ends_it(
    runs: SharedRuns, monkeypatch: pytest.MonkeyPatch, when: str, fails: bool
) -> None:
    """It has emptied the buffer: what looks like a failing table is none, and counted rows may not be all. Clocks of
    two hosts are not compared."""
    flow = document(MERGE)
    ids = {"before": "99991231T000000Z-000000", "meanwhile": "20000101T000000Z-000000"}

    def begin(run_id: str) -> None:
        put_begun(open_flow(runs.spec(flow)), BegunRun(run_id, "shop", "", ("people",)))

    def count(*_: object) -> CountedEffects:
        if when == "meanwhile":
            begin(ids["meanwhile"])
        if fails:
            raise TableError("the file is gone")
        return CountedEffects("2026-01-01T00:00:00.000000Z", inserted=1)

    begin(ids["before"])
    monkeypatch.setattr(dry_run, "count_effects", count)
    if when == "meanwhile":
        with pytest.raises(LockedError, match=f"run {ids['meanwhile']} has begun meanwhile"):
            runs.effects(flow)
    elif fails:
        assert prevented(runs.effects(flow)).stopped == "the file is gone"
    else:
        assert counted(runs.effects(flow)).inserted == 1


def test_a_run_without_anything_to_do_does_not_disturb_it(runs: SharedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = document({**MERGE, "cursor": {"column": "id"}})
    runs.apply(flow)
    change(runs, "INSERT INTO people (id) VALUES (77)")
    count_effects = dry_run.count_effects

    def count(*arguments: Any) -> CountedEffects:
        change(runs, "DELETE FROM people WHERE id = 77")
        runs.apply(flow)
        change(runs, "INSERT INTO people (id) VALUES (77)")
        return count_effects(*arguments)

    monkeypatch.setattr(dry_run, "count_effects", count)
    assert counted(runs.effects(flow)).inserted == 1


def listing(runs: SharedRuns) -> list[tuple[str, bytes | None]]:
    paths = sorted(path for path in runs.folder.rglob("*") if path.name != "flow.yaml")
    return [(str(path), path.read_bytes() if path.is_file() else None) for path in paths]
