"""A plan of 500 tables is decided and rendered without a query per table, and stays in DAG order."""

from __future__ import annotations

from flowctl.plan.document import to_json
from flowctl.plan.render import to_text
from tests.unit.plan.worlds import cursor, head, observed, plan, sql_table, table, world


def test_five_hundred_tables():
    tables = [table(f"t{number:03}") for number in range(499)]
    every = sql_table("a_sum", *(one.id for one in tables))
    seen = {one.id: observed(head(cursor("2026-11-20T06:15:33Z"))) for one in tables}
    made = plan(world({**seen, "a_sum": observed(source=None)}), every, *tables)
    assert made.count("create") == 500
    assert made.steps[-1].id == "a_sum"
    assert to_text(made, "spec.yaml").splitlines()[0] == "shop  never ran    500 to create"
    assert len(to_json(made)["steps"]) == 500
