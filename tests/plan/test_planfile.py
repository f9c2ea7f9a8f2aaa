"""A saved plan is refused when the spec, the state, a source or a target is not what it was made from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.errors import StalePlan, UsageError
from flowctl.model import types
from flowctl.plan.document import from_json, to_json
from flowctl.plan.planfile import check_fresh, load, save
from flowctl.spec.spec import ColumnRules
from tests.plan.worlds import (
    ID,
    NEW,
    OLD,
    ORDERS,
    committed,
    flow,
    high,
    observed,
    plan,
    recorded,
    source,
    table,
    target,
    world,
)

THERE = target()
COMMIT = committed(position=OLD)
TABLES = {"orders": table(), "new": table("new")}


def seen(there=THERE, commit=COMMIT):
    return observed(high(NEW), target=there, commit=commit)


def first_and_later():
    states = {"orders": recorded(table(), OLD)}
    return world({"orders": seen(), "new": observed(high(NEW))}, states)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "plan.json"
    save(plan(first_and_later(), table(), table("new")), path)
    return load(path)


def test_it_comes_back_as_it_was_and_is_fresh_in_the_same_world(saved):
    assert saved == plan(first_and_later(), table(), table("new"))
    check_fresh(saved, flow(), first_and_later(), TABLES)


def moved_state(**keys):
    before = first_and_later()
    return replace(before, state=replace(before.state, **keys))


def moved_target(id, there, commit=COMMIT):
    before = first_and_later()
    return replace(before, tables={**before.tables, id: seen(there, commit)})


def moved_source(there):
    before = first_and_later()
    return replace(before, tables={**before.tables, "orders": replace(seen(), source=there)})


def altered(position, **keys):
    return source((*ORDERS[:position], replace(ORDERS[position], **keys), *ORDERS[position + 1 :]))


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (moved_state(serial=42), "state is at serial 42, the plan was made at 41"),
        (moved_state(lineage="f" * 32), "the state is another one"),
        (moved_target("orders", target(version=8)), "is at version 8, the plan was made at 7"),
        (moved_target("orders", target(identity="delta-2")), "orders: the target lake:orders is another table now"),
        (moved_target("orders", None), "orders: the target lake:orders is gone"),
        (moved_target("orders", target(ORDERS[:2])), "orders: the target lake:orders has other columns now"),
        (
            moved_target("orders", THERE, committed(4, "i4")),
            "carries sequence number 4 now, the plan was made at sequence number 3",
        ),
        (moved_target("orders", THERE, None), "carries no sequence number now, the plan was made at sequence number 3"),
        (moved_target("new", target()), "new: the target lake:new exists now"),
        (moved_source(None), "orders: the source pg:public.orders is gone"),
        (moved_source(source(identity="postgres:8/16384")), "orders: the source is in another system"),
        (moved_source(source(identity="postgres:7/20001")), "orders: the source was recreated under its name"),
        (moved_source(source(ORDERS[:2])), "orders: the source pg:public.orders has no column updated_at any more"),
        (moved_source(source((*ORDERS, replace(ID, name="more")))), "orders: .* has a new column more"),
        (moved_source(altered(1, type=types.Decimal(12, 4))), r"column amount now: it is decimal\(12,4\), it was"),
        (moved_source(altered(0, nullable=True)), "column id now: it is bigint, it was bigint not null"),
    ],
)
def test_a_world_that_moved_makes_it_stale(saved, now, reason):
    with pytest.raises(StalePlan, match=reason):
        check_fresh(saved, flow(), now, TABLES)


def test_columns_that_are_not_read_and_files_that_came_since_may_have_changed(saved):
    narrow = table(columns=ColumnRules(exclude=("amount",)))
    before = world({"orders": seen()}, {"orders": recorded(narrow, OLD)})
    made = plan(before, narrow)
    now = replace(before, tables={"orders": replace(seen(), source=altered(1, type=types.STRING))})
    check_fresh(made, flow(), now, {"orders": narrow})
    wide = replace(seen(), source=source((*ORDERS, replace(ID, name="more"))))
    tables = {**first_and_later().tables, "orders": replace(wide, positions="files")}
    check_fresh(saved, flow(), replace(first_and_later(), tables=tables), TABLES)


def test_a_plan_that_an_older_flowctl_saved_says_less_and_is_compared_by_that(saved):
    document = to_json(saved)
    for one in document["steps"]:
        del one["target_shape"], one["target_commit"]
    older = from_json(document)
    check_fresh(older, flow(), moved_target("orders", target(ORDERS[:2]), None), TABLES)
    with pytest.raises(StalePlan):
        check_fresh(older, flow(), moved_target("orders", target(version=8)), TABLES)


def test_a_changed_spec_makes_it_stale(saved):
    with pytest.raises(StalePlan, match="the spec"):
        check_fresh(saved, replace(flow(), digest="e" * 64), first_and_later(), TABLES)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_file_without_a_plan_is_refused(tmp_path, text):
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="is not a plan"):
        load(tmp_path / "plan.json")


def test_a_plan_of_another_format_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text('{"format": 2, "steps": []}', encoding="utf-8")
    with pytest.raises(StalePlan, match="format 2"):
        load(tmp_path / "plan.json")
