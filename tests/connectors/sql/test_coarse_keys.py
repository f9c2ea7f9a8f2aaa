"""Key columns of others' tables that take different texts for equal: the plan stops, and its next step works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowctl.model.table_info import ObjectName
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import describe
from tests.connectors.target_matrix import opened
from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.targets import ENV, Databases, Kind, SqlPlace, sql_place

#: The column k, what comes before its table, and why a key of it is refused; None: it is not.
COLUMNS = [
    ("sqlite", "k TEXT COLLATE nocase", "", "collation is nocase"),
    ("sqlite", "k VARCHAR(9) COLLATE RTRIM PRIMARY KEY", "", "collation is RTRIM"),
    ("sqlite", "k TEXT", "", None),
    ("sqlite", "k TEXT COLLATE binary, UNIQUE (k COLLATE nocase)", "", None),
    ("sqlite", "k INTEGER COLLATE nocase", "", None),
    ("duckdb", "k VARCHAR COLLATE nocase", "", "collation is nocase"),
    ("duckdb", "k VARCHAR COLLATE noaccent.nocase PRIMARY KEY", "", "collation is noaccent.nocase"),
    ("duckdb", "k VARCHAR COLLATE C, other VARCHAR COLLATE nocase", "", None),
    ("postgres", "k citext", "CREATE EXTENSION citext;", "type is citext"),
    ("postgres", "k names", "CREATE EXTENSION citext; CREATE DOMAIN names AS citext;", "type is citext"),
    ("postgres", "k citext[]", "CREATE EXTENSION citext;", "type is citext"),
    ("postgres", "k varchar(9) COLLATE ci UNIQUE", "{ci}", "collation is ci"),
    ("postgres", "k names", "{ci} CREATE DOMAIN names AS text COLLATE ci;", "collation is ci"),
    ("postgres", 'k text COLLATE "C", other text COLLATE ci', "{ci}", None),
    ("postgres", "k numeric, other interval", "", None),
]
CI = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"


@pytest.mark.parametrize(("kind", "column", "before", "why"), COLUMNS)
def test_a_key_column_that_takes_different_texts_for_equal_is_refused(
    kind: Kind, column: str, before: str, why: str | None, tmp_path: Path, databases: Databases, scratch: Buffer
) -> None:
    there = sql_place(kind, tmp_path, databases).named("a table")
    there.run(before.replace("{ci}", CI) + f"CREATE TABLE {{table}} (id int, {column})")
    with opened(kind, dict(there.given), scratch) as target:
        info = describe(target, ObjectName(there.parts))
        refused = target.refuse_key(info, ("id", "k"))
        assert target.refuse_key(info, ("id",)) is None
        assert (refused and refused[0].partition("for equal: its ")[2]) == why
        for statement in re.findall("`(ALTER.*?)`", refused[1]) if refused else ():
            there.run(statement)
            assert target.refuse_key(describe(target, ObjectName(there.parts)), ("id", "k")) is None


def test_duckdb_is_altered_only_where_it_can_be(tmp_path: Path, databases: Databases, scratch: Buffer) -> None:
    there = sql_place("duckdb", tmp_path, databases)
    there.run("CREATE TABLE {table} (k VARCHAR COLLATE nocase PRIMARY KEY)")
    with opened("duckdb", dict(there.given), scratch) as target:
        refused = target.refuse_key(describe(target, ObjectName(there.parts)), ("k",))
    assert refused is not None
    assert refused[1] == "Create the table again, with k VARCHAR, or leave k out of `key`"


SPEC = """
version: 1
flow: names
state: state
spark: {{url: sail}}
connections:
  src: {{type: sqlite, path: names.db}}
  dst: {connection}
tables:
  names: {{from: src:names, to: "dst:{object}", mode: {mode}}}
"""
MODES = {
    "append": "append, cursor: none",
    "merge": "merge, key: [k]",
    "scd2": "scd2, key: [k], scd2: {valid_from: now}",
}
COLLATED = {"sqlite": "k TEXT COLLATE nocase", "duckdb": "k VARCHAR COLLATE nocase", "postgres": "k citext"}


@pytest.mark.parametrize(
    "kind", ["duckdb", *(pytest.param(one, marks=pytest.mark.full) for one in ("sqlite", "postgres"))]
)
def test_a_table_with_such_a_key_stops_until_its_column_is_repaired(
    kind: Kind, tmp_path: Path, databases: Databases
) -> None:
    """Each row of two texts would change both rows."""
    flow, target = Flow(tmp_path, ENV), sql_place(kind, tmp_path, databases).named("names")
    sqlite_script(
        tmp_path / "names.db", "CREATE TABLE names (k TEXT, v TEXT); INSERT INTO names VALUES ('a', '1'), ('A', '2')"
    )
    before = "CREATE EXTENSION citext;" if kind == "postgres" else ""
    target.run(f"{before} CREATE TABLE {{table}} ({COLLATED[kind]}, v VARCHAR(9))")

    for mode in ("merge", "scd2"):
        stopped = _plan(flow, target, mode)
        assert 'takes different texts of the key column "k" for equal' in stopped, mode
    assert "for equal" not in _plan(flow, target, "append")

    repair = re.search("`(ALTER.*?)`", _plan(flow, target, "merge"))
    if repair:
        target.run(repair[1])
    else:
        target.run("DROP TABLE {table}; CREATE TABLE {table} (k TEXT COLLATE BINARY, v TEXT)")
    flow.run("state", "adopt", "flow.yaml", "names", "--yes", expect=0)
    for values in (("1", "2"), ("3", "4")):
        sqlite_script(
            tmp_path / "names.db", f"UPDATE names SET v = CASE k WHEN 'a' THEN {values[0]} ELSE {values[1]} END"
        )
        flow.apply()
        assert target.rows(["k", "v"]) == [("A", values[1]), ("a", values[0])]


def _plan(flow: Flow, target: SqlPlace, mode: str) -> str:
    """What the plan says."""
    flow.write(SPEC.format(connection=target.connection, object=target.object, mode=MODES[mode]))
    return flow.run("plan", "flow.yaml").words
