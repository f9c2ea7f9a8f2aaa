"""Append under an id that the table had before: what was appended under another one since is not appended again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowctl.model.position import Position
from flowctl.model.step import Step
from flowctl.plan.document import action_of
from flowctl.spec.spec import Cursor, TableSpec, TargetRef
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, TableState
from tests.plan.worlds import LINEAGE, NEW, OLD, committed, cursor, high, observed, plan, recorded, table, target, world

ORDERS = table(mode="append", cursor=Cursor("updated_at"))
SALES = replace(ORDERS, id="sales")  # reads and writes the same
FIRST, SECOND = "20261119T221004Z-aaaaaa", "20261120T061533Z-aaaaaa"


def planned(spec: TableSpec, *others: TableSpec, **states: TableState) -> Step:
    """With what state records of the tables by their ids."""
    commit = committed(position=OLD, table=spec.id)
    seen = {one.id: observed(high(NEW), target=target(), commit=commit) for one in (spec, *others)}
    return plan(world(seen, states), spec, *others).steps[0]


def before(spec: TableSpec = ORDERS, **keys: Any) -> TableState:
    return recorded(spec, OLD, last_run=FIRST, **keys)


def after(spec: TableSpec = SALES, **keys: Any) -> TableState:
    return recorded(spec, NEW, last_run=SECOND, **keys)


def test_a_table_that_has_its_former_id_again_stops() -> None:
    made = planned(ORDERS, orders=before(), sales=after())
    assert action_of(made) == "stop"
    assert made.reason.startswith("sales has appended to lake:orders since, up to 2026-11-20")
    assert "--position" in getattr(made, "hint", "")


def test_it_stops_also_if_the_other_id_was_reset() -> None:
    reset = documents.reset(StateDocument(LINEAGE, tables={"sales": after()}), "sales").table("sales")
    made = planned(ORDERS, orders=before(), sales=reset)
    assert made.reason == "sales has appended to lake:orders since: appending again would double its rows"


@pytest.mark.parametrize(("reached", "action"), [(OLD, "stop"), (NEW, "change")])
def test_a_table_that_an_older_flowctl_adopted_stops_only_behind_the_other_id(reached: Position, action: str) -> None:
    """It noted the position, but no run."""
    adopted = replace(recorded(ORDERS, reached), last_run=None)
    commit = committed(position=reached, table="orders")
    seen = observed(high(cursor("2026-11-20T06:15:34Z")), target=target(), commit=commit)
    made = plan(world({"orders": seen}, {"orders": adopted, "sales": after()}), ORDERS).steps[0]
    assert action_of(made) == action


@pytest.mark.parametrize(
    "other",
    [
        replace(after(), last_run=FIRST),  # adopted since
        after(target_id="delta-2"),
        replace(after(), last_run=None),  # reset by an older flowctl
    ],
)
def test_nothing_that_is_appended_elsewhere_or_was_before_stops_it(other: TableState) -> None:
    assert action_of(planned(ORDERS, orders=before(), sales=other)) == "change"


def test_two_sources_of_one_target_do_not_stop_each_other() -> None:
    sales = after()
    theirs = {**sales.definition, "from": {"connection": "pg", "object": ["other"]}, "source_identity": "postgres:7/9"}
    assert action_of(planned(ORDERS, orders=before(), sales=replace(sales, definition=theirs))) == "change"


def test_tables_that_both_write_still_do_not_stop_each_other() -> None:
    """Where two connections lead to one place unseen."""
    made = planned(ORDERS, replace(SALES, target=TargetRef("lake", ("orders",))), orders=before(), sales=after())
    assert action_of(made) == "change"


def test_a_merge_reads_again_what_it_has() -> None:
    assert action_of(planned(table(), orders=before(table()), sales=after())) == "change"
