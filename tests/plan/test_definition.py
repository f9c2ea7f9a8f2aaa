"""A spec, or a source, that is not what state has recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import NoPosition
from flowctl.model.reserved import FIRST_OBSERVED
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import Column, view_digest
from flowctl.plan.definition import definition, differences, is_recorded, misses_changes
from flowctl.plan.document import action_of
from flowctl.spec.spec import ColumnRules, Cursor
from tests.plan.worlds import (
    EVERYTHING,
    NEW,
    OLD,
    ORDERS,
    REFRESH,
    committed,
    high,
    intent,
    observed,
    recorded,
    source,
    sql_table,
    step,
    table,
    target,
    unchanged_target,
)

CREATED_AT = ColumnRules(add={"created_at": "updated_at - INTERVAL 1 DAY"}, types={"created_at": "timestamp"})


def test_a_changed_definition_stops_and_names_both_ways_on():
    before = table(key=("id",), where="amount > 0")
    made = step(table(), observed(high(NEW), **unchanged_target()), recorded(before, OLD))
    assert made.reason == "the definition changed: where: amount > 0 → none"
    assert "--full-refresh orders" in made.hint and "--accept-definition" in made.hint
    refreshed = step(table(), observed(high(NEW), **unchanged_target()), recorded(before, OLD), REFRESH)
    assert action_of(refreshed) == "change"


@pytest.mark.parametrize(
    ("before", "now", "misses"),
    [
        ("16400", "16500", True),
        ("16400,16433", "16500", True),
        ("16400", "16400,16433", False),  # its schema was added, too
        ("16400,16433", "16433", False),
        ("0", "16433", False),  # an older flowctl wrote 0 for a schema
        ("16400", "0", False),  # a publication of all tables, which is another one
        ("", "16400", False),
    ],
)
def test_a_table_misses_changes_if_no_entry_of_its_publication_has_stayed(before: str, now: str, misses: bool):
    assert misses_changes({"published": before}, {"published": now}) is misses


def test_a_source_of_the_same_name_in_another_database_is_a_changed_definition():
    made = step(
        table(), observed(high(NEW), source(identity="postgres:8/1"), **unchanged_target()), recorded(table(), OLD)
    )
    assert made.reason == "the definition changed: the source is in another system (postgres:7 → postgres:8)"


def test_a_system_that_cannot_be_told_is_not_another():
    """The right to ask for its identifier was taken away, or given."""
    spec = table()
    for before, now in (("pg:7", "pg:unknown@db:5432"), ("pg:unknown@db:5432", "pg:7")):
        old, new = source(identity=f"{before}/5/16384"), source(identity=f"{now}/5/16384")
        state = replace(recorded(spec, OLD), definition=definition(spec, old), target_id=f"{before}/5/9")
        there = replace(unchanged_target()["target"], identity=f"{now}/5/9")
        made = step(spec, observed(high(NEW), new, target=there, commit=unchanged_target()["commit"]), state)
        assert action_of(made) == "change", made.reason
        other = replace(there, identity=f"{now}/5/10")
        made = step(spec, observed(high(NEW), new, target=other, commit=unchanged_target()["commit"]), state)
        assert "another table" in made.reason


def test_an_sqlite_file_at_another_path_is_another_system_unless_an_older_flowctl_recorded_it():
    file = replace(source(identity="sqlite"), system="sqlite:/data/prod.db")
    for recorded_system, reason in (
        ("sqlite:/data/prod.db", ""),
        ("sqlite", ""),
        (
            "sqlite:/data/dev.db",
            "the definition changed: the source is in another system (sqlite:/data/dev.db → sqlite:/data/prod.db)",
        ),
    ):
        then = {**definition(table(), file), "source_system": recorded_system}
        state = replace(recorded(table(), OLD), definition=then)
        made = step(table(), observed(high(NEW), file, **unchanged_target()), state)
        assert (action_of(made), made.reason if reason else "") == ("stop" if reason else "change", reason)


def test_a_source_that_was_made_anew_stops_only_a_table_with_a_position():
    anew = source(identity="postgres:7/20001")
    made = step(table(), observed(high(NEW), anew, **unchanged_target()), recorded(table(), OLD))
    assert made.reason == (
        "the definition changed: the source was recreated under its name (postgres:7/16384 → postgres:7/20001)"
    )
    full = table(mode="truncate")
    seen = observed(high(NoPosition()), anew, **unchanged_target(NoPosition()))
    assert action_of(step(full, seen, recorded(full, NoPosition()))) == "change"


def test_a_view_with_another_query_is_a_changed_definition():
    def planned(before, now, **keys):
        spec = table(**keys)
        state = replace(recorded(spec, OLD), definition=definition(spec, replace(source(), view=before)))
        return step(spec, observed(high(NEW), replace(source(), view=now), **unchanged_target()), state)

    one, other = view_digest("SELECT 1"), view_digest("SELECT 2")
    stopped = planned(one, other)
    assert stopped.reason == "the definition changed: the view has another query"
    assert "--full-refresh orders" in stopped.hint and "--accept-definition" in stopped.hint
    filled = planned("", one)  # as an older flowctl, or one without the right to see it, has left it
    assert (action_of(filled), filled.table.definition["source_view"]) == ("change", one)
    upgraded = view_digest("SELECT 1", "17"), view_digest("select 1", "18")
    for before, now in ((one, one), (one, ""), upgraded):
        assert action_of(planned(before, now)) == "change"


def test_a_view_that_is_read_in_full_may_have_another_query():
    for spec in (table(cursor=None), table(mode="truncate", cursor=None)):
        assert "source_view" not in definition(spec, replace(source(), view=view_digest("SELECT 1")))


def test_the_same_definition_says_nothing_of_the_source_when_the_cursor_goes():
    made = step(table(cursor=None), observed(high(NEW), **unchanged_target()), recorded(table(), OLD))
    assert made.reason == "the definition changed: cursor: updated_at → none"


def history(valid_from="updated_at", **keys):
    return table(mode="scd2", **{"key": ("id",), "cursor": Cursor("updated_at"), "valid_from": valid_from, **keys})


def planned_history(now, before, request=EVERYTHING, **keys):
    columns = (*ORDERS, *(Column(name, types.STRING) for name in ("valid_from", "valid_to", "is_current", "row_hash")))
    seen = replace(
        observed(high(NEW), target=target(columns), commit=committed(position=OLD)),
        sidecars={
            OBSERVED: target(tuple(Column(name, types.STRING) for name in (*before.key, "_event_at", *FIRST_OBSERVED)))
        },
    )
    return step(now, seen, replace(recorded(before, OLD), **keys), request)


def test_versions_of_a_history_that_begin_at_other_times_cannot_be_continued():
    """The new times may be earlier: the versions of before would stay current."""
    made = planned_history(history("created_at", columns=CREATED_AT), history(columns=CREATED_AT))
    assert made.reason == "the definition changed: valid_from: updated_at → created_at"
    assert made.hint == (
        "Replace the history by a new one with --full-refresh orders; it cannot continue from here: "
        "the versions of the history have other times (valid_from: updated_at)"
    )
    made = planned_history(history("created_at", columns=CREATED_AT), history(columns=CREATED_AT), REFRESH)
    assert made.write_full and "everything in lake:orders" in made.destructive


def test_a_history_whose_versions_begin_when_they_are_read_continues():
    made = planned_history(history("now"), history())
    assert made.reason == "the definition changed: valid_from: updated_at → now"
    assert "Read all again" in made.hint and "--accept-definition" in made.hint
    made = planned_history(history("now"), history(), REFRESH)
    assert not made.write_full and "reads everything again; the existing history is kept" in made.notes


def test_times_that_were_accepted_or_begun_are_not_forgotten_in_a_full_refresh():
    """Versions may have been written with them."""
    old, new = (definition(one, source()) for one in (history(), history("now")))
    for now, written in ((history("created_at", columns=CREATED_AT), old), (history(), new)):
        made = planned_history(now, now, REFRESH, definition={}, accepted=(written, new))
        assert made.write_full
    begun = replace(intent(history(), Interval(OLD, NEW)), definition=new)
    assert planned_history(history(), history(), REFRESH, intent=begun).write_full


def test_a_history_of_an_older_flowctl_does_not_stop_and_records_its_times():
    old = history(columns=CREATED_AT)
    before = definition(old, source())
    del before["valid_from"]
    made = planned_history(history("created_at", columns=CREATED_AT), old, definition=before)
    assert action_of(made) == "change"
    assert made.table.definition["valid_from"] == "created_at"


def test_columns_of_a_history_by_sql_are_known_though_an_older_flowctl_recorded_it():
    spec = sql_table("orders", mode="scd2", key=("id",), valid_from="updated_at")
    before = definition(spec, None)
    del before["valid_from"]
    assert is_recorded(before, definition(spec, None))
    assert not is_recorded({}, definition(spec, None))
    assert not is_recorded({**before, "key": ["amount"]}, definition(spec, None))


def test_the_order_of_a_historys_key_is_no_change():
    made = planned_history(history(key=("amount", "id")), history(key=("id", "amount")))
    assert action_of(made) == "change"
    made = planned_history(history(key=("amount", "id")), history(key=("id", "amount")), REFRESH)
    assert not made.write_full
    made = planned_history(history(key=("id",)), history(key=("id", "amount")))
    assert made.reason == 'the definition changed: key: ["id", "amount"] → ["id"]'


def test_the_order_of_the_columns_that_are_left_out_or_taken_is_no_change():
    for kind in ("exclude", "include"):
        before, after = (
            table(columns=ColumnRules(**{kind: names})) for names in (("id", "updated_at"), ("updated_at", "id"))
        )
        old, new = definition(before, None), definition(after, None)
        assert not differences(old, new) and is_recorded(old, new)
        fewer = definition(table(columns=ColumnRules(**{kind: ("id",)})), None)
        assert differences(old, fewer) == (f'columns.{kind}: ["id", "updated_at"] → ["id"]',)


def test_the_order_of_a_key_that_a_message_may_have_is_a_change():
    old, new = (definition(table(key=key), None) for key in (("id", "amount"), ("amount", "id")))
    assert differences(old, new) == ('key: ["id", "amount"] → ["amount", "id"]',)
