"""Types that only Spark can tell are those of the last run as long as what they are made of keeps its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import UpstreamPosition
from flowctl.model.step import RecordOnly
from flowctl.model.table_info import Column
from flowctl.plan.document import action_of
from flowctl.plan.upstream import shape_read
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.spec import ColumnRules, SqlSource, TableSpec
from tests.plan.worlds import (
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    changes,
    committed,
    high,
    intent,
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


BY_NAME = "SELECT id, amount * 2 AS twice, count(*) AS n FROM {{ref:orders}} GROUP BY ALL"
ALL = "SELECT * FROM {{ref:orders}}"
SOME = "SELECT id FROM {{ref:orders}}"


def by_sql(sql: str) -> TableSpec:
    return sql_table("daily", source=SqlSource(sql, ("orders",)))


def shape_of(sql: str, columns: Sequence[Column] = ORDERS) -> str:
    return shape_read(SqlSource(sql, ("orders",)), {"orders": columns})


@pytest.mark.parametrize(
    ("columns", "sql", "is_known"),
    [(ORDERS, SOME, True), (WIDER, SOME, True), (WIDER, BY_NAME, False), (MORE, SOME, True), (MORE, ALL, False)],
)
def test_recorded_types_of_sql_tables_hold_while_what_they_read_keeps_its_columns(columns, sql, is_known):
    orders, daily = table(), by_sql(sql)
    read = UpstreamPosition((("orders", 3),))
    states = {"orders": recorded(orders, OLD), "daily": recorded(daily, read, upstream_shape=shape_of(sql))}
    seen = {
        "orders": observed(high(NEW), source=source(columns), **unchanged_target()),
        "daily": observed(None, None, target(), committed(3, "i3", table="daily")),
    }
    made = plan(world(seen, states), orders, daily).steps[1]
    assert (action_of(made), changes(made) is not None) == ("change", is_known)


@pytest.mark.parametrize("is_selected", [True, False])
@pytest.mark.parametrize(
    ("columns", "sql", "is_known"),
    [
        (ORDERS, BY_NAME, True),
        (tuple(reversed(ORDERS)), ALL, True),
        (WIDER, BY_NAME, False),
        (WIDER, "SELECT id, `Amount` FROM {{ref:orders}}", False),
        (MORE, BY_NAME, True),
        (MORE, ALL, False),
        (MORE, "TABLE {{ref:orders}}", False),
        (MORE, "SELECT id FROM {{ref:orders}} UNION SELECT * FROM {{ref:orders}}", False),
        (WIDER, SOME, True),
    ],
)
def test_columns_that_have_changed_in_an_earlier_run_count_like_those_that_change_now(
    columns, sql, is_known, is_selected
):
    """Whether the table that has changed is in this plan or not. An older flowctl has recorded nothing: whether it has
    seen the columns that are there now nobody knows."""
    orders, daily = table(), by_sql(sql)
    before, now = UpstreamPosition((("orders", 3),)), tuple(replace(one, nullable=True) for one in columns)
    states = {
        "orders": recorded(orders, OLD, seq=4, intent_id="i4", schema=columns, target_columns=now),
        "daily": recorded(daily, before, upstream_shape=shape_of(sql)),
    }
    seen = {
        "orders": observed(high(OLD), source(columns), target(columns), committed(4, "i4", OLD)),
        "daily": observed(None, None, target(), committed(3, "i3", table="daily")),
    }
    request = PlanOptions() if is_selected else PlanOptions(select=("daily",))
    *above, made = plan(world(seen, states), orders, daily, request=request).steps
    assert [action_of(step) for step in above] == ["none"] * is_selected
    assert (action_of(made), changes(made) is not None) == ("change", is_known)
    unknown = {**states, "daily": recorded(daily, before)}
    assert changes(plan(world(seen, unknown), orders, daily, request=request).steps[-1]) is None


REM, AS_TEXT = Column("rem", types.INT64), Column("rem", types.STRING)


@pytest.mark.parametrize("has_rows", [True, False])
@pytest.mark.parametrize(
    ("before", "now", "sql", "is_known"),
    [
        ([REM], [REM], ALL, True),
        ([], [REM], ALL, False),
        ([REM], [], ALL, False),
        ([REM], [AS_TEXT], ALL, False),
        ([REM], [AS_TEXT], "SELECT id, rem FROM {{ref:orders}}", False),
        ([REM], [AS_TEXT], SOME, True),
    ],
)
def test_columns_of_others_count_like_those_that_flowctl_writes(before, now, sql, is_known, has_rows):
    """Whether their table is written in this run or only another one that the SQL reads."""
    orders, lines, daily = table(), table("lines"), sql_table("daily", source=SqlSource(sql, ("lines", "orders")))
    there = {"lines": ORDERS, "orders": (*ORDERS, *before)}
    read = UpstreamPosition((("lines", 2), ("orders", 3)))
    states = {
        "orders": recorded(orders, OLD),
        "lines": recorded(lines, OLD),
        "daily": recorded(daily, read, upstream_shape=shape_read(daily.source, there)),
    }
    seen = {
        "orders": observed(high(NEW if has_rows else OLD), source(), target((*ORDERS, *now)), committed(3, "i3", OLD)),
        "lines": observed(high(OLD), source(), target(), committed(3, "i3", OLD, table="lines")),
        "daily": observed(None, None, target(), committed(3, "i3", table="daily")),
    }
    steps = {step.id: step for step in plan(world(seen, states), orders, lines, daily).steps}
    assert [action_of(steps[name]) for name in ("orders", "lines", "daily")] == [
        "change" if has_rows else "none",
        "none",
        "change",
    ]
    assert (changes(steps["daily"]) is not None) == is_known


def test_a_number_that_is_only_recorded_leaves_the_columns_that_are_there():
    orders, daily = table(), by_sql(ALL)
    begun = intent(orders, Interval(OLD, NEW, "updated_at"))
    states = {
        "orders": recorded(orders, OLD, intent=begun, highest=4),
        "daily": recorded(daily, UpstreamPosition((("orders", 3),)), upstream_shape=shape_of(ALL, (*ORDERS, REM))),
    }
    seen = {
        "orders": observed(high(NEW), source(), target((*ORDERS, REM)), committed(4, "i4", NEW)),
        "daily": observed(None, None, target(), committed(3, "i3", table="daily")),
    }
    above, made = plan(world(seen, states), orders, daily).steps
    assert (isinstance(above, RecordOnly), REM in above.columns.target) == (True, False)
    assert (action_of(made), changes(made) is not None) == ("change", True)


def test_a_full_refresh_keeps_no_recorded_types():
    spec = table(columns=ColumnRules(add={"half": "amount / 2"}))
    half = Column("half", types.Decimal(12, 2))
    state = recorded(spec, OLD, target_columns=(*target().columns, half))
    seen = observed(high(NEW), target=target((*ORDERS, half)), commit=committed(position=OLD))
    assert changes(step(spec, seen, state)) == ()
    assert changes(step(spec, seen, state, REFRESH)) is None
