"""DuckDB's files through whole runs: one file as source and target, many schemas, and other processes at the file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from tests.e2e.flows import Flow, duckdb_rows
from tests.e2e.targets import ENV, Databases, Kind, place

pytestmark = pytest.mark.server

SOURCE = """
CREATE SCHEMA sales;
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, note VARCHAR, parts STRUCT(name VARCHAR, amount DECIMAL(9,2))[],
    big HUGEINT, tags MAP(VARCHAR, INTEGER), updated_at TIMESTAMP NOT NULL
);
INSERT INTO orders VALUES
    (1, 'first', [{'name': 'a', 'amount': 1.10}], 18446744073709551616, MAP {'x': 1}, '2026-01-01 00:00:00'),
    (2, NULL, [], NULL, NULL, '2026-01-02 00:00:00');
CREATE TABLE sales."Order Lines" AS SELECT 1::UTINYINT AS id, 'a' AS note;
CREATE TABLE sales.totals AS SELECT 1 AS id;
"""
HEAD = """
version: 1
flow: {flow}
state: state
spark: {{url: sail}}
connections:
  src: {{type: duckdb, path: source.duckdb}}
  dst: {{type: duckdb, path: target.duckdb}}
tables:
"""
#: flowctl that waits half a second for another process.
IMPATIENT = """
import sys
from flowctl.cli.main import run
from flowctl.connectors.sql import timeouts
timeouts.FILE_LOCK = 0.5
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    with duckdb.connect(folder / "source.duckdb") as connection:
        connection.execute(SOURCE)
    return Flow(folder)


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Another process writes the file, whose id is yielded."""
    program = "import duckdb, signal, sys; held = duckdb.connect(sys.argv[1]); print(1, flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.full
@pytest.mark.parametrize("at_once", ["1", "4"])
def test_one_file_is_source_and_target(flow: Flow, at_once: str) -> None:
    """A commit waits for the readers of its own process, which do not wait for it."""
    modes = {
        "copied": "mode: truncate",
        "logged": "mode: append, cursor: {column: id}",
        "merged": "mode: merge, key: [id], deletes: {detect: missing_keys, action: hard}, guard: {max_deleted: 100%}",
        "kept": "mode: scd2, key: [id], scd2: {valid_from: updated_at}",
        "sieved": "mode: truncate, expect: [{column: note, not_null: true, on_fail: quarantine}]",
    }
    tables = [f'  {name}: {{from: src:orders, to: "src:copies.{name}", {rest}}}\n' for name, rest in modes.items()]
    flow.write(HEAD.format(flow="shop") + "".join(tables))
    flow.apply("--parallel", at_once)
    path = flow.folder / "source.duckdb"
    duckdb_rows(path, "DELETE FROM orders WHERE id = 1")
    duckdb_rows(path, "INSERT INTO orders VALUES (3, 'c', NULL, 3, NULL, '2026-01-03 00:00:00')")
    flow.apply("--parallel", at_once)
    found = {name: duckdb_rows(path, f"SELECT count(*) FROM copies.{name}")[0][0] for name in modes}
    assert found == {"copied": 2, "logged": 3, "merged": 2, "kept": 3, "sieved": 1}
    nested = duckdb_rows(path, "SELECT big, tags, parts FROM copies.logged WHERE id = 1")
    assert nested == [(Decimal(2**64), '{"x":1}', [{"name": "a", "amount": Decimal("1.10")}])]
    assert duckdb_rows(path, "SELECT id FROM copies.sieved__quarantine") == [("2",)]


@pytest.mark.full
def test_tables_of_other_schemas_by_pattern(flow: Flow) -> None:
    flow.write(
        HEAD.format(flow="shop")
        + '  "sales_${table}": {from: "src:sales.*", mode: truncate, exclude: ["*Lines"], to: "dst:copies.${table}"}\n'
    )
    flow.apply()
    target = flow.folder / "target.duckdb"
    assert duckdb_rows(target, "SELECT id FROM copies.totals") == [(1,)]
    names = duckdb_rows(target, "SELECT schema_name || '.' || table_name FROM duckdb_tables()")
    assert names == [("copies.totals",), ("main._flowctl_commits",), ("main._flowctl_target",)]


@pytest.mark.parametrize("name", ["source", pytest.param("target", marks=pytest.mark.full)])
def test_a_file_that_another_process_writes(flow: Flow, name: str) -> None:
    flow.program = ("-c", IMPATIENT)
    flow.write(HEAD.format(flow="shop") + "  orders: {from: src:orders, to: dst:orders, mode: truncate}\n")
    flow.apply()
    with held(flow.folder / f"{name}.duckdb") as pid:
        refused = flow.run("plan", "flow.yaml", expect=4)
        assert f"{name}.duckdb is locked by process {pid} (" in refused.words
        assert "Close it there, or try again when that process has finished" in refused.words
    assert flow.actions() == {"orders": "change"}


def test_two_runs_write_one_file_after_each_other(flow: Flow) -> None:
    """Each has the file open only while it commits or reads, so the other one waits."""
    for name in ("one", "two"):
        (flow.folder / f"{name}.yaml").write_text(
            HEAD.format(flow=name) + f"  orders: {{from: src:orders, to: dst:{name}, mode: truncate}}\n"
        )
    processes = [flow.start("apply", f"{name}.yaml") for name in ("one", "two")]
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
    target = flow.folder / "target.duckdb"
    assert [duckdb_rows(target, f"SELECT id FROM {name}") for name in ("one", "two")] == [[(1,), (2,)], [(1,), (2,)]]


@pytest.mark.full
def test_an_adopted_table_keeps_what_the_database_fills(flow: Flow) -> None:
    modes = {
        "added": "mode: append, cursor: {column: id}",
        "merged": "mode: merge, key: [id], cursor: {column: updated_at}",
        "replaced": 'mode: truncate, on_schema_change: {dropped_column: "null"}',
    }
    target = flow.folder / "target.duckdb"
    duckdb_rows(target, "CREATE SEQUENCE numbers START 100")
    for name in modes:
        own = (
            "sk INTEGER DEFAULT nextval('numbers'), up VARCHAR AS (upper(note)), origin VARCHAR DEFAULT 'here' NOT NULL"
        )
        duckdb_rows(target, f"CREATE TABLE {name} ({own}, id INTEGER PRIMARY KEY, note VARCHAR, updated_at TIMESTAMP)")
        duckdb_rows(target, f"CREATE INDEX of_{name} ON {name} (note)")
    duckdb_rows(target, "INSERT INTO merged (id, note, origin) VALUES (1, 'old', 'there')")
    listed = "{include: [id, note, updated_at]}"
    tables = (
        f"  {name}: {{from: src:orders, to: dst:{name}, columns: {listed}, {mode}}}\n" for name, mode in modes.items()
    )
    flow.write(HEAD.format(flow="shop") + "".join(tables))
    for name in modes:
        more = ["--position", "beginning"] if name == "added" else []
        flow.run("state", "adopt", "flow.yaml", name, "--yes", *more, expect=0)
    flow.apply()
    duckdb_rows(flow.folder / "source.duckdb", "UPDATE orders SET note = 'aa', updated_at = '2026-01-03' WHERE id = 1")
    flow.apply()
    first = {"added": "first", "merged": "aa", "replaced": "aa"}
    for name in modes:
        origin = "there" if name == "merged" else "here"
        found = duckdb_rows(target, f"SELECT id, note, up, origin FROM {name}")
        assert found == [(1, first[name], first[name].upper(), origin), (2, None, None, "here")]
        assert duckdb_rows(target, f"SELECT count(DISTINCT sk) FROM {name}") == [(2,)]
    assert flow.actions() == {"added": "none", "merged": "none", "replaced": "change"}


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("mysql", marks=pytest.mark.full)])
def test_a_struct_that_a_target_has_no_form_for_stops_the_plan(kind: Kind, flow: Flow, databases: Databases) -> None:
    target = place(kind, flow.folder, databases)
    entry = f"orders: {{from: src:orders, to: out:{target.object}, mode: merge, key: [id]"
    head = HEAD.format(flow="f").replace("dst: {type: duckdb, path: target.duckdb}", f"out: {target.connection}")
    flow.write(f"{head}  {entry}}}\n")
    stopped = flow.run("plan", "flow.yaml", env=ENV, expect=6).words
    assert "column parts is array<struct<" in stopped and "has no form" in stopped
    assert "Leave it out with `columns: {exclude: [parts]}`" in stopped
    flow.write(f"{head}  {entry}, columns: {{exclude: [parts]}}}}\n")
    flow.apply(env=ENV)
    assert sorted(target.rows(("id", "note")), key=repr) == [(1, "first"), (2, None)]


@pytest.mark.full
def test_a_column_that_changes_its_case(flow: Flow) -> None:
    """The next step keeps what a history has."""
    history = "mode: scd2, key: [id], scd2: {valid_from: now}, columns: {exclude: [parts, tags, big]"
    table = f"  orders: {{from: src:orders, to: dst:orders, {history}"
    flow.write(f"{HEAD.format(flow='f')}{table}}}}}\n")
    flow.apply()
    duckdb_rows(flow.folder / "source.duckdb", "UPDATE orders SET note = 'changed' WHERE id = 1")
    flow.apply()
    duckdb_rows(flow.folder / "source.duckdb", "ALTER TABLE orders RENAME note TO NOTE")
    stopped = flow.run("plan", "flow.yaml", expect=6).words
    assert "Drop the table" not in stopped
    assert 'If "NOTE" is its new name, write columns: {rename: {NOTE: note}}' in stopped
    flow.write(f"{HEAD.format(flow='f')}{table}, rename: {{NOTE: note}}}}}}\n")
    flow.run("state", "set", "flow.yaml", "orders", "--accept-definition", "--yes", expect=0)
    flow.apply()
    rows = duckdb_rows(flow.folder / "target.duckdb", "SELECT id, note, is_current FROM orders ORDER BY id, is_current")
    assert rows == [(1, "changed", True), (1, "first", False), (2, None, True)]
