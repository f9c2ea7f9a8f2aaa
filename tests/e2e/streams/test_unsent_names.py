"""A column that takes the name of another: the target has the other one's values, and no change says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import SqlitePlace, must_equal
from tests.e2e.streams.test_tables import execute

pytestmark = pytest.mark.server
TABLE = '  {0}: {{from: "cdc:public.one", to: "lite:{0}", mode: merge, on_schema_change: {{unsent: {0}, {1}}}}}\n'
POLICIES = ("resnapshot", "fail")
TABLES = "".join(TABLE.format(policy, 'dropped_column: "null"') for policy in POLICIES)
DROP, ADD = "ALTER TABLE one DROP COLUMN v", "ALTER TABLE one ADD COLUMN v varchar(9)"
UPDATE = "UPDATE one SET n = n + 10 WHERE id = 1"


def begun(folder: Path, url: str) -> Flow:
    execute(url, "CREATE TABLE one (id int PRIMARY KEY, v varchar(9), w varchar(9), n int)")
    execute(url, "INSERT INTO one VALUES (1, 'v1', 'w1', 1), (2, 'v2', 'w2', 2)")
    flow = write_flow(folder, url, [], TABLES, "on_table_error: detach")
    flow.apply()
    return flow


def must_be_noticed(flow: Flow, url: str, *names: str) -> None:
    """In the pass that captures it, and until the table is read again."""
    for _ in range(2):
        said = flow.apply(expect=6).words
        found = re.search("rows have values in (.+?) that no change has sent", said)
        assert found is not None and {*found[1].split(", ")} == {*names}, said
    must_equal(url, SqlitePlace(flow.folder / "lite.db"), ["one"], {"one": "resnapshot"})
    flow.run("state", "resnapshot", "flow.yaml", "fail", "--yes", expect=0)
    execute(url, UPDATE)
    flow.apply()
    for policy in POLICIES:
        must_equal(url, SqlitePlace(flow.folder / "lite.db"), ["one"], {"one": policy})


SWAP = [f"ALTER TABLE one RENAME COLUMN {one} TO {other}" for one, other in (("v", "x"), ("w", "v"), ("x", "w"))]


@pytest.mark.parametrize(
    ("alter", "names"),
    [
        pytest.param([DROP, ADD], "v", id="added again"),
        pytest.param([DROP, f"{ADD} DEFAULT 'd'"], "v", marks=pytest.mark.full, id="with a default"),
        pytest.param([DROP, "ALTER TABLE one RENAME COLUMN w TO v"], "v", marks=pytest.mark.full, id="taken over"),
        pytest.param(SWAP, "vw", marks=pytest.mark.full, id="swapped"),
        pytest.param([DROP, UPDATE, ADD], "v", marks=pytest.mark.full, id="with changes in between"),
    ],
)
def test_in_one_pass(alter: list[str], names: str, tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url)
    execute(source_url, *alter, UPDATE)
    must_be_noticed(flow, source_url, *names)


@pytest.mark.full
def test_in_two_passes(tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url)
    execute(source_url, DROP, UPDATE)
    flow.apply()
    execute(source_url, ADD)
    must_be_noticed(flow, source_url, "v")


@pytest.mark.full
def test_other_changes_of_columns_are_none(tmp_path: Path, source_url: str) -> None:
    flow = begun(tmp_path, source_url)
    execute(source_url, "ALTER TABLE one ADD COLUMN z int", UPDATE)
    flow.apply()
    execute(source_url, DROP, UPDATE)
    flow.apply()
    execute(source_url, "ALTER TABLE one ADD COLUMN y int", UPDATE)
    flow.apply()
    for policy in POLICIES:
        must_equal(source_url, SqlitePlace(tmp_path / "lite.db"), ["one"], {"one": policy})


@pytest.mark.full
def test_a_default_that_was_dropped_again(tmp_path: Path, postgres_database: str) -> None:
    flow = begun(tmp_path, postgres_database)
    execute(postgres_database, "ALTER TABLE one ADD COLUMN z int DEFAULT 5", "ALTER TABLE one ALTER z DROP DEFAULT")
    must_be_noticed(flow, postgres_database, "z")
