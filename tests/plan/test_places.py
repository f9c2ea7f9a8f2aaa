"""Two names of one place, as the systems tell."""

from __future__ import annotations

from flowctl.plan.build import shared_places
from flowctl.plan.document import action_of
from tests.plan.worlds import NEW, high, observed, plan, source, step, table, target, world


def test_both_tables_of_one_place_are_refused():
    assert shared_places({"a": "pg/public/t", "b": "pg/public/t", "c": "pg/public/u"}) == {
        "a": "writes the same table as b",
        "b": "writes the same table as a",
    }


def test_a_sidecar_s_place_is_taken():
    assert shared_places({"a": "pg/public/t", "b": "pg/public/t__observed"}) == {
        "b": "writes to where a keeps its observations"
    }


def test_the_plan_stops_both():
    tables = (table("a"), table("b"))
    seen = world({"a": observed(high(NEW)), "b": observed(high(NEW))}, places={"a": "x/t", "b": "x/t"})
    steps = plan(seen, *tables).steps
    assert [(action_of(made), made.reason) for made in steps] == [
        ("stop", "a writes the same table as b"),
        ("stop", "b writes the same table as a"),
    ]


def test_a_table_that_is_its_own_source_is_refused():
    made = step(table(), observed(high(NEW), source=source(identity="pg:7/1/2"), target=target(identity="pg:7/1/2")))
    assert (action_of(made), "are the same table" in made.reason) == ("stop", True)
