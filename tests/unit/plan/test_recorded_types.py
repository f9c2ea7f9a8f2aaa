"""Types that only Spark can tell are those of the last run as long as what they are made of keeps its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.position import UpstreamPosition
from flowctl.model.table_info import Column
from flowctl.observe.observation import Request
from flowctl.plan.upstream import shape_read
from flowctl.spec.spec import ColumnRules, SqlSource
from flowctl.state.document import StateDocument
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


BY_NAME = "SELECT id, amount * 2 AS twice, count(*) AS n FROM {{ref:orders}} GROUP BY ALL"


@pytest.mark.parametrize("is_selected", [True, False])
@pytest.mark.parametrize(
    ("columns", "sql", "is_known"),
    [
        (ORDERS, BY_NAME, True),
        (tuple(reversed(ORDERS)), "SELECT * FROM {{ref:orders}}", True),
        (WIDER, BY_NAME, False),
        (WIDER, "SELECT id, `Amount` FROM {{ref:orders}}", False),
        (MORE, BY_NAME, True),
        (MORE, "SELECT * FROM {{ref:orders}}", False),
        (MORE, "SELECT id FROM {{ref:orders}} UNION SELECT * FROM {{ref:orders}}", False),
        (WIDER, "SELECT id FROM {{ref:orders}}", True),
    ],
)
def test_columns_that_have_changed_in_an_earlier_run_count_like_those_that_change_now(
    columns, sql, is_known, is_selected
):
    """Whether the table that has changed is in this plan or not."""
    orders, daily = table(), sql_table("daily", source=SqlSource(sql, ("orders",)))
    before, now = UpstreamPosition((("orders", 3),)), tuple(replace(one, nullable=True) for one in columns)
    shape = shape_read(daily, StateDocument("", tables={"orders": recorded(orders, OLD)}), before)
    states = {
        "orders": recorded(orders, OLD, seq=4, intent_id="i4", schema=columns, target_columns=now),
        "daily": recorded(daily, before, upstream_shape=shape),
    }
    seen = {
        "orders": observed(head(OLD), source(columns), target(columns), committed(4, "i4", OLD)),
        "daily": observed(None, None, target(), committed(3, "i3", table="daily")),
    }
    request = Request() if is_selected else Request(select=("daily",))
    *above, made = plan(world(seen, states), orders, daily, request=request).steps
    assert [step.action for step in above] == ["none"] * is_selected
    assert (made.action, made.schema is not None) == ("change", is_known)
    unknown = {**states, "daily": recorded(daily, before)}
    assert plan(world(seen, unknown), orders, daily, request=request).steps[-1].schema is not None


def test_what_was_read_is_recorded_with_the_numbers_that_were_read():
    orders, daily = table(), sql_table("daily", "orders")
    document = StateDocument("", tables={"orders": recorded(orders, OLD)})
    shape = shape_read(daily, document, UpstreamPosition((("orders", 3),)))
    assert shape and shape_read(orders, document, OLD) == ""
    since = {"orders": recorded(orders, OLD, seq=4, target_columns=MORE)}
    before = StateDocument("", tables={**since, "daily": recorded(daily, None, upstream_shape=shape)})
    assert shape_read(daily, before, UpstreamPosition((("orders", 3),))) == shape
    assert shape_read(daily, StateDocument("", tables=since), UpstreamPosition((("orders", 3),))) == ""


def test_a_full_refresh_keeps_no_recorded_types():
    spec = table(columns=ColumnRules(add={"half": "amount / 2"}))
    half = Column("half", types.Decimal(12, 2))
    state = recorded(spec, OLD, target_columns=(*target().columns, half))
    seen = observed(head(NEW), target=target((*ORDERS, half)), commit=committed(position=OLD))
    assert step(spec, seen, state).schema == ()
    assert step(spec, seen, state, REFRESH).schema is None
