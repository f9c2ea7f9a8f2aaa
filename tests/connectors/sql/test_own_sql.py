"""The spec's own SQL, `where` and `query`: the plan finds its errors, and blames it and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow
from tests.e2e.targets import ENV, Databases, sql_place

SPEC = """
version: 1
flow: shop
state: state
spark: {{url: sail}}
connections:
  src: {connection}
  lake: {{type: delta, path: lake}}
defaults: {{to: lake, mode: truncate}}
tables:
  fine: {{from: src:{object}, where: "id > 0"}}
  quote:
    from: src:{object}
    where: "id = 'x"
  name:
    from: src:{object}
    where: "nosuch = 1"
  same:
    from: src:{object}
    where: "nosuch = 1"
  by_cursor:
    from: src:{object}
    mode: merge
    key: [id]
    cursor: {{column: id}}
    where: "nosuch(id) = 1"
  words:
    from:
      connection: src
      query: "select * frm x"
  both:
    from:
      connection: src
      query: "select * from nosuch"
    where: "id = 1"
"""


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres", "mysql"])
def test_its_errors_have_its_place(kind: str, tmp_path: Path, databases: Databases) -> None:
    source = sql_place(kind, tmp_path, databases).named("orders")
    source.run("CREATE TABLE {table} (id int)")
    flow = Flow(tmp_path, ENV)
    flow.write(SPEC.format(connection=source.connection, object=source.object))
    steps = {step["id"]: step for step in flow.plan(expect=None)["steps"]}
    assert steps.pop("fine")["action"] == "create"
    lines = flow.spec.read_text().splitlines()
    found = {}
    for name, step in steps.items():
        assert step["action"] == "stop", step["reason"]
        line = lines[step["source"]["line"] - 1]
        found[name] = (step["hint"], line.partition(":")[0].strip())
    where, query = ("Correct `where`", "where"), ("Correct `from.query`", "query")
    assert found == {
        "quote": where,
        "name": where,
        "same": where,
        "by_cursor": where,
        "words": query,
        "both": ("Correct `from.query` or `where`", "query"),
    }
