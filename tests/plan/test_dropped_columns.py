"""Columns that the source fills no longer: what is kept of them, what is named, what stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.plan.document import action_of
from flowctl.resolve.names import own_columns
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.spec import ColumnRules, Cursor, SchemaPolicies
from tests.plan.differences import VAT, columns, differing, told
from tests.plan.worlds import (
    ORDERS,
    REFRESH,
    changes,
    statements,
    table,
)  # fmt: skip


@pytest.mark.parametrize(("policy", "action"), [("keep", "change"), ("fail", "stop")])
def test_dropped_column(policy, action):
    made = differing(before=(*ORDERS, VAT), on_schema_change=SchemaPolicies(dropped_column=policy))
    assert action_of(made) == action
    assert told(made) == [("vat", "dropped_column", policy)]
    if policy == "fail":
        assert made.reason == 'dropped_column: fail — column "vat" is gone'
    else:
        assert "vat" not in [part.column.name for part in made.columns.projection] and statements(made) == ()
        assert columns(made)["vat"] == "int"  # a merge leaves its stored values alone


@pytest.mark.parametrize("mode", ["truncate", "scd2", "merge", "append"])
@pytest.mark.parametrize("policy", ["keep", "null", "fail"])
def test_a_dropped_column_stops_where_stored_values_would_be_lost(mode, policy):
    """truncate reads every row anew; a history would take the gap for a change; the others keep what is stored."""
    history = own_columns(table(mode=mode, key=("id",))).values() if mode == "scd2" else ()
    there = (*ORDERS, VAT, *history)
    made = differing(
        before=(*ORDERS, VAT), there=there, left=there, mode=mode, key=("id",), cursor=Cursor("updated_at"),
        on_schema_change=SchemaPolicies(dropped_column=policy),
    )  # fmt: skip
    loses = mode in ("truncate", "scd2")
    action = "fail" if policy == "fail" or (loses and policy == "keep") else policy
    assert told(made) == [("vat", "dropped_column", action)]
    assert changes(made)[0].change_class == ("destructive" if loses else "safe")
    assert action_of(made) == ("stop" if action == "fail" else "change")
    if loses and policy == "keep":
        assert made.reason.endswith('column "vat" is gone, and its stored values would become null')
        assert '"null"' in made.hint


def test_a_full_refresh_does_not_null_a_dropped_column_in_silence():
    made = differing(before=(*ORDERS, VAT), request=REFRESH)
    assert (action_of(made), told(made)) == ("stop", [("vat", "dropped_column", "fail")])


def test_a_likely_rename_is_named():
    tax = replace(VAT, name="tax")
    made = differing((*ORDERS, tax), before=(*ORDERS, VAT), mode="truncate")
    assert action_of(made) == "stop" and "columns: {rename: {tax: vat}}" in made.hint
    renamed = differing(
        (*ORDERS, tax),
        before=(*ORDERS, VAT),
        mode="truncate",
        columns=ColumnRules(rename={"tax": "vat"}),
        accepted=True,
    )
    assert (action_of(renamed), told(renamed)) == ("change", [])
    assert [part.source for part in renamed.columns.projection if part.column.name == "vat"] == ["tax"]


def test_a_full_refresh_gives_the_target_the_shape_of_the_new_definition():
    """A column that is no longer taken, and those of another mode, go with the content; a mode that keeps content
    keeps them too."""
    there = (*ORDERS, VAT, *own_columns(table(mode="scd2", key=("id",))).values())
    keys = {"before": (*ORDERS, VAT), "there": there, "left": there, "columns": ColumnRules(exclude=("vat",))}
    made = differing((*ORDERS, VAT), **keys, recorded_as={"columns": ColumnRules()}, request=REFRESH)
    gone = ["vat", "valid_from", "valid_to", "is_current", "row_hash"]
    assert told(made) == [(name, "dropped_column", "drop") for name in gone]
    assert list(columns(made)) == ["id", "amount", "updated_at"]
    accepted = differing((*ORDERS, VAT), **keys, accepted=True)
    assert set(gone) <= set(columns(accepted)) and "is_current" not in [
        p.column.name for p in accepted.columns.projection
    ]


def test_a_replaced_table_names_what_an_accepted_definition_leaves_out():
    rules = ColumnRules(rename={"amount": "total"})
    made = differing(there=ORDERS, left=ORDERS, columns=rules, mode="truncate", accepted=True)
    assert action_of(made) == "stop" and 'column "amount" is not filled from the source' in made.reason
    assert "rename" not in made.hint


def test_a_dropped_column_is_told_once():
    made = differing(before=ORDERS, there=(*ORDERS, VAT), left=(*ORDERS, VAT))
    assert told(made) == [] and columns(made)["vat"] == "int"


@pytest.mark.parametrize("policy", ["keep", "null", "fail"])
@pytest.mark.parametrize("mode", ["truncate", "merge", "append", "scd2"])
def test_a_column_that_was_told_before_is_named_again_where_its_values_go(mode, policy):
    """Its values stayed then, or others have filled it since; or an older flowctl recorded a column of others."""
    keys = {"mode": mode, "key": ("id",), "request": PlanOptions() if mode == "truncate" else REFRESH}
    if mode == "scd2":  # a table of another mode becomes a history
        keys["recorded_as"] = {"mode": "merge"}
    keys |= {"cursor": Cursor("updated_at")} if mode == "append" else {}
    policies = SchemaPolicies(dropped_column=policy)
    made = differing(there=(*ORDERS, VAT), left=(*ORDERS, VAT), on_schema_change=policies, **keys)
    vat = next(change for change in changes(made) if change.column == "vat")
    if mode == "scd2":  # the definition is another one, in which the column goes
        assert (action_of(made), vat.action, vat.change_class) == ("change", "drop", "destructive")
        return
    assert (vat.action, vat.change_class) == ("null" if policy == "null" else "fail", "destructive")
    assert action_of(made) == ("change" if policy == "null" else "stop")
    if policy == "keep":
        lost = 'column "vat" is not filled from the source, and its stored values would become null'
        assert made.reason == f"dropped_column: keep — {lost}"
        assert made.hint.endswith("or drop the column in the target")
        dropped = differing(left=(*ORDERS, VAT), on_schema_change=policies, **keys)
        assert (action_of(dropped), told(dropped)) == ("change", [("vat", "drift", "show")])
