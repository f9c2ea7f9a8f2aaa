"""Types that only Spark can tell are those of the last run as long as what they are made of keeps its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.position import UpstreamPosition
from flowctl.model.table_info import Column
from flowctl.spec.spec import ColumnRules, SqlSource
from tests.unit.plan.worlds import (
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    committed,
    head,
    observed,
    plan,
    recorded,
    source,
    sql_table,
    step,
    table,
    target,
    unchanged_target,
    world,
)  # fmt: skip

WIDER = tuple(replace(column, type=types.Decimal(14, 4)) if column.name == "amount" else column for column in ORDERS)
MORE = (*ORDERS, Column("note", types.STRING))


@pytest.mark.parametrize(
    ("columns", "sql", "is_known"),
    [
        (ORDERS, "SELECT id FROM {{ref:orders}}", True),
        (WIDER, "SELECT id FROM {{ref:orders}}", False),
        (MORE, "SELECT id FROM {{ref:orders}}", True),
        (MORE, "SELECT * FROM {{ref:orders}}", False),
    ],
)
def test_recorded_types_of_sql_tables_hold_while_what_they_read_keeps_its_columns(columns, sql, is_known):
    orders, daily = table(), sql_table("daily", source=SqlSource(sql, ("orders",)))
    states = {"orders": recorded(orders, OLD), "daily": recorded(daily, UpstreamPosition((("orders", 3),)))}
    seen = {
        "orders": observed(head(NEW), source=source(columns), **unchanged_target()),
        "daily": observed(None, None, target(), committed(3, "i3", table="daily")),
    }
    made = plan(world(seen, states), orders, daily).steps[1]
    assert (made.action, made.schema is not None) == ("change", is_known)


def test_a_full_refresh_keeps_no_recorded_types():
    spec = table(columns=ColumnRules(add={"half": "amount / 2"}))
    half = Column("half", types.Decimal(12, 2))
    state = recorded(spec, OLD, target_columns=(*target().columns, half))
    seen = observed(head(NEW), target=target((*ORDERS, half)), commit=committed(position=OLD))
    assert step(spec, seen, state).schema == ()
    assert step(spec, seen, state, REFRESH).schema is None
