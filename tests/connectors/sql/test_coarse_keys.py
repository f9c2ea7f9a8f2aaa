"""Key columns of others' tables that take different texts for equal: the plan stops, and its next step works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowctl.connectors.target import OP_COLUMN
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from flowctl.spec.spec import Layout
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import describe
from tests.connectors.target_matrix import Place, opened
from tests.connectors.writing import Writer
from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.targets import ENV, Databases, Kind, SqlPlace, sql_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        refused = target.refuse_key(info, ("id", "k"), Layout())
        assert target.refuse_key(info, ("id",), Layout()) is None
        assert (refused and refused[0].partition("for equal: its ")[2]) == why
        for statement in re.findall("`(ALTER.*?)`", refused[1]) if refused else ():
            there.run(statement)
            assert target.refuse_key(describe(target, ObjectName(there.parts)), ("id", "k"), Layout()) is None


def test_duckdb_is_altered_only_where_it_can_be(tmp_path: Path, databases: Databases, scratch: Buffer) -> None:
    there = sql_place("duckdb", tmp_path, databases)
    there.run("CREATE TABLE {table} (k VARCHAR COLLATE nocase PRIMARY KEY)")
    with opened("duckdb", dict(there.given), scratch) as target:
        refused = target.refuse_key(describe(target, ObjectName(there.parts)), ("k",), Layout())
    assert refused is not None
    assert refused[1] == "Create the table again, with k VARCHAR, or leave k out of `key`"


@pytest.mark.long_on_spark
def test_a_merge_by_such_a_key_blames_no_trigger(
    spark: SparkSession, tmp_path: Path, databases: Databases, scratch: Buffer
) -> None:
    """The table was altered after its plan."""
    there = sql_place("sqlite", tmp_path, databases)
    there.run("CREATE TABLE {table} (id TEXT COLLATE nocase, v TEXT)")
    columns = (Column("id", types.STRING), Column("v", types.STRING))
    rows = [{"id": id, "v": v, OP_COLUMN: "U"} for id, v in (("a", "1"), ("A", "2"))]
    with opened("sqlite", dict(there.given), scratch) as target:
        writer = Writer(
            spark, Place("sqlite", dict(there.given), target, ObjectName(there.parts), there.rows, there.run)
        )
        writer.write(rows, 1, "merge", columns=columns, create=())
        with pytest.raises(TableError, match="takes keys for equal that are not"):
            writer.write([{**row, "v": "3"} for row in rows], 2, "merge", columns=columns)
    assert there.rows(["id", "v"]) == [("A", "2"), ("a", "1")]


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


def test_the_plan_stops_a_table_with_such_a_key(tmp_path: Path, databases: Databases) -> None:
    flow, target = _names("duckdb", tmp_path, databases)
    for mode in ("merge", "scd2"):
        assert 'takes different texts of the key column "k" for equal' in _plan(flow, target, mode), mode
    assert "for equal" not in _plan(flow, target, "append")


@pytest.mark.full
@pytest.mark.parametrize("kind", COLLATED)
def test_a_repaired_column_keeps_such_keys_apart(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    """Each row of two texts would change both rows."""
    flow, target = _names(kind, tmp_path, databases)
    repair = re.search("`(ALTER.*?)`", _plan(flow, target, "merge"))
    if repair:
        target.run(repair[1])
    else:
        target.run("DROP TABLE {table}; CREATE TABLE {table} (k TEXT COLLATE BINARY, v TEXT)")
    flow.run("state", "adopt", "flow.yaml", "names", "--yes", expect=0)
    for lower, upper in (("1", "2"), ("3", "4")):
        change = f"UPDATE names SET v = CASE k WHEN 'a' THEN '{lower}' ELSE '{upper}' END"
        sqlite_script(tmp_path / "names.db", change)
        flow.apply()
        assert target.rows(["k", "v"]) == [("A", upper), ("a", lower)]


def _names(kind: Kind, folder: Path, databases: Databases) -> tuple[Flow, SqlPlace]:
    """A flow whose source has two keys that its target takes for one."""
    target = sql_place(kind, folder, databases).named("names")
    rows = "CREATE TABLE names (k TEXT, v TEXT); INSERT INTO names VALUES ('a', '1'), ('A', '2')"
    sqlite_script(folder / "names.db", rows)
    before = "CREATE EXTENSION citext;" if kind == "postgres" else ""
    target.run(f"{before} CREATE TABLE {{table}} ({COLLATED[kind]}, v VARCHAR(9))")
    return Flow(folder, ENV), target


def _plan(flow: Flow, target: SqlPlace, mode: str) -> str:
    """What the plan says."""
    flow.write(SPEC.format(connection=target.connection, object=target.object, mode=MODES[mode]))
    return flow.run("plan", "flow.yaml").words
