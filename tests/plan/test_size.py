"""A plan of 500 tables is decided and rendered without a query per table, and stays in DAG order."""

from __future__ import annotations

from flowctl.plan.document import count_actions, to_json
from flowctl.plan.render import View, render
from flowctl.text import plain
from tests.plan.worlds import cursor, high, observed, plan, sql_table, table, world


def test_five_hundred_tables():
    tables = [table(f"t{number:03}") for number in range(499)]
    every = sql_table("a_sum", *(one.id for one in tables))
    seen = {one.id: observed(high(cursor("2026-11-20T06:15:33Z"))) for one in tables}
    made = plan(world({**seen, "a_sum": observed(source=None)}), every, *tables)
    assert count_actions(made)["create"] == 500
    assert made.steps[-1].id == "a_sum"
    shown = plain(render(made, View())).splitlines()
    assert shown[-1] == "Tables: 500 to create"
    assert shown[2] == "+ 499 tables  merge  7,586,796 rows  pg:public.t* → lake:t*"
    assert len(shown) < 550
    assert len(to_json(made)["steps"]) == 500


def test_two_hundred_tables_are_five_screens():
    """Of 50 lines and 100 columns each; tables that say something of their own stay apart."""
    tables = [table(f"raw_{number:03}") for number in range(199)]
    odd = table("odd", mode="truncate")
    seen = {one.id: observed(high(cursor("2026-11-20T06:15:33Z"))) for one in (*tables, odd)}
    shown = plain(render(plan(world(seen), odd, *tables), View(width=100))).splitlines()
    assert len(shown) <= 250 and max(map(len, shown)) <= 100
    assert [line for line in shown if line.startswith("+ ")] == [
        "+ odd  truncate  15,204 rows  pg:public.odd → lake:odd",
        "+ 199 tables  merge  3,025,596 rows  pg:public.raw_* → lake:raw_*",
    ]
    assert sum("raw_" in line for line in shown) == 200
