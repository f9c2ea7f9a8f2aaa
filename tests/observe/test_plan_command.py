"""`flowctl plan` over real SQLite files and Delta tables that are not there yet: what it loads, writes and answers."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import sys

import pytest

from flowctl.errors import TableError
from flowctl.plan.document import action_of
from flowctl.plan.planning import make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run.connect import check
from flowctl.spec.load import load_spec

SPEC = """
version: 1
flow: shop
state: state
connections:
  db: {type: sqlite, path: shop.db}
  gone: {type: sqlite, path: gone.db}
  lake: {type: delta, path: lake}
defaults: {to: lake}
tables:
  "raw_${table}": {from: "db:*", exclude: [orders], mode: truncate}
  orders: {from: "db:orders", mode: merge, key: [id], cursor: {column: updated_at}}
  daily:
    from: {sql: "SELECT updated_at, count(*) AS n FROM {{ ref('orders') }} GROUP BY 1"}
    mode: truncate
"""
UNREACHABLE = """
  lost: {from: "gone:orders", mode: truncate}
  missing: {from: "db:nothing", mode: truncate}
"""
#: Runs the command and says which forbidden modules it has loaded: Spark, and what takes long to import.
PROBE = """
import sys
from flowctl.cli.main import run
code = run(sys.argv[1:])
unwanted = {'pyspark', 'py4j', 'delta', 'pandas'}
print(sorted({name.partition('.')[0] for name in sys.modules} & unwanted), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path):
    database = sqlite3.connect(tmp_path / "shop.db")
    database.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, updated_at TIMESTAMP);"
        "INSERT INTO orders VALUES (1, '2026-01-01 00:00:00'), (2, '2026-01-02 00:00:00');"
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);"
    )
    database.close()
    (tmp_path / "flow.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def flowctl(folder, *args):
    return subprocess.run([sys.executable, "-c", PROBE, *args], cwd=folder, capture_output=True, text=True, check=False)


def steps(done):
    return {step["id"]: step for step in json.loads(done.stdout)["steps"]}


def test_it_plans_every_table_loads_no_spark_and_writes_nothing(folder):
    before = sorted(path.name for path in folder.rglob("*"))
    done = flowctl(folder, "plan", "flow.yaml", "--format", "json", "--estimate", "count")
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert {id: step["action"] for id, step in steps(done).items()} == {
        "orders": "create",
        "daily": "create",
        "raw_customers": "create",
    }
    assert steps(done)["orders"]["rows"] == {"value": 2, "method": "count"}
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_select_out_and_detailed_exit_code(folder):
    done = flowctl(folder, "plan", "flow.yaml", "--select", "+daily", "--out", "plan.json", "--detailed-exitcode")
    assert done.returncode == 2
    assert "flowctl apply flow.yaml --plan plan.json" in done.stdout
    assert [step["id"] for step in json.loads((folder / "plan.json").read_text())["steps"]] == ["orders", "daily"]


def last_words(done):
    """The arguments of the command that the plan ends with."""
    return shlex.split(done.stdout.rpartition(" with:")[2])[1:]


def test_the_last_line_applies_this_plan_and_no_other(folder):
    (folder / "my flow.yaml").write_text(SPEC + "vars: {env: dev, name: x}\n", encoding="utf-8")
    variables = ["--var", "env=prod", "--var", "name=it's one"]
    terms = ["--select", "+daily", "--select", "raw_*", "--exclude", "raw_c*", "--full-refresh", "daily"]
    planned = flowctl(folder, "plan", "my flow.yaml", *terms, *variables, "--estimate", "none")
    assert last_words(planned) == ["apply", "my flow.yaml", *variables, *terms]
    saved = flowctl(folder, "plan", "my flow.yaml", *terms, *variables, "--out", "a plan.json")
    assert last_words(saved) == ["apply", "my flow.yaml", *variables, "--plan", "a plan.json"]
    assert last_words(flowctl(folder, "plan", "flow.yaml")) == ["apply", "flow.yaml"]


@pytest.mark.parametrize("args", [["--select", "nothing"], ["--full-refresh", "nothing"], ["--estimate", "guess"]])
def test_usage_errors_are_64(folder, args):
    done = flowctl(folder, "plan", "flow.yaml", *args)
    assert done.returncode == 64 and done.stdout == ""


def test_what_cannot_be_reached_stops_only_its_tables(folder):
    (folder / "flow.yaml").write_text(SPEC + UNREACHABLE, encoding="utf-8")
    done = flowctl(folder, "plan", "flow.yaml", "--format", "json", "--detailed-exitcode")
    found = {id: (step["action"], step["stopped_by"]) for id, step in steps(done).items()}
    assert done.returncode == 4
    assert found["lost"] == found["missing"] == ("stop", "error")
    assert found["orders"] == ("create", None)
    assert steps(done)["missing"]["reason"].startswith("db:nothing does not exist: ")


def test_a_pattern_whose_source_is_gone_stops_itself_and_what_reads_its_tables(folder):
    text = SPEC.replace('"db:*"', '"gone:*"').replace("ref('orders')", "ref('raw_customers')")
    (folder / "flow.yaml").write_text(text, encoding="utf-8")
    planned = make_plan(load_spec([folder / "flow.yaml"], {}), PlanOptions())
    assert {step.id: (action_of(step), getattr(step, "by", None)) for step in planned.plan.steps} == {
        "orders": ("create", None),
        "daily": ("stop", "dependency"),
        "raw_${table}": ("stop", "error"),
    }
    with pytest.raises(TableError, match=r"gone\.db"):
        make_plan(load_spec([folder / "flow.yaml"], {}), PlanOptions(select=("raw_customers",)))


def test_validate_connect_names_what_is_not_there(folder):
    (folder / "flow.yaml").write_text(SPEC + UNREACHABLE, encoding="utf-8")
    found = check(load_spec([folder / "flow.yaml"], {})).diagnostics
    assert [(one.code, one.mark.line) for one in found if one.mark] == [("unreachable", 17), ("unreachable", 18)]


@pytest.mark.parametrize("target", ["lake", "made"])
def test_somebody_elses_table_in_the_place_of_a_sidecar_stops_the_table(folder, target):
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(folder / "lake" / "orders__observed", pa.table({"id": [1]}))
    database = sqlite3.connect(folder / "made.db")
    database.execute("CREATE TABLE orders__observed (id INTEGER)")
    database.close()
    (folder / "flow.yaml").write_text(
        f"""
version: 1
flow: shop
state: state
connections:
  db: {{type: sqlite, path: shop.db}}
  made: {{type: sqlite, path: made.db}}
  lake: {{type: delta, path: lake}}
tables:
  orders: {{from: "db:orders", to: {target}, mode: scd2, key: [id], scd2: {{valid_from: updated_at}}}}
  customers: {{from: "db:customers", to: {target}, mode: scd2, key: [id], scd2: {{valid_from: now}}}}
"""
    )
    plan = make_plan(load_spec([folder / "flow.yaml"], {}), PlanOptions()).plan
    customers, orders = plan.steps
    assert (action_of(orders), action_of(customers)) == ("stop", "create")
    assert "orders__observed, where orders would keep its observations" in orders.reason
