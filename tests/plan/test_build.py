"""Which step a table gets, for every state that it and its target can be in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors.source import HighWatermark
from flowctl.diagnostics import Mark
from flowctl.errors import StoppedByPolicy, TransientError
from flowctl.expect.not_null import NotNull
from flowctl.expect.rows import Rows
from flowctl.expect.unique import Unique
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import NoPosition, UpstreamPosition
from flowctl.model.step import Progress, RecordOnly, UpToDate, progress_after
from flowctl.model.table_info import Column, RowEstimate
from flowctl.plan.build import build
from flowctl.plan.document import action_of
from flowctl.resolve.names import own_columns
from flowctl.resolve.resolve import PlanOptions, Resolved
from flowctl.spec.spec import ColumnRules, Cursor, DetectMissingKeys, Guard
from tests.plan.worlds import (
    MARK,
    NEW,
    NOW,
    OLD,
    ORDERS,
    REFRESH,
    at,
    changes,
    committed,
    cursor,
    flow,
    high,
    intent,
    observed,
    plan,
    recorded,
    source,
    sql_table,
    statements,
    step,
    table,
    target,
    unchanged_target,
    world,
)  # fmt: skip


def test_first_run_creates_and_reads_from_the_beginning():
    made = step(table(), observed(high(NEW)))
    assert (action_of(made), made.seq, made.reason, made.write_full) == ("create", 1, "first run", False)
    assert made.interval == Interval(None, NEW, "updated_at")
    assert statements(made) and statements(made)[0].startswith("CREATE TABLE")
    assert progress_after(made) == Progress(1, NEW)


def test_first_run_starts_at_cursor_start():
    made = step(table(cursor=Cursor("updated_at", start="2020-01-01T00:00:00Z")), observed(high(NEW)))
    assert made.interval.read_from == at("2020-01-01T00:00:00Z")


def test_new_rows_are_read_from_the_recorded_position():
    made = step(table(), observed(high(NEW), **unchanged_target()), recorded(table(), OLD))
    assert (action_of(made), made.seq, made.table.via) == ("change", 4, "staged")
    assert made.interval == Interval(OLD, NEW, "updated_at", read_from=OLD.at)
    assert (changes(made), statements(made)) == ((), ())


def test_nothing_new_is_nothing_to_do():
    made = step(table(), observed(high(OLD), **unchanged_target()), recorded(table(), OLD))
    assert (action_of(made), made.reason, progress_after(made).seq) == ("none", "no new rows", 3)


def test_a_table_without_a_position_always_has_work():
    spec = table(mode="truncate")
    made = step(spec, observed(high(NoPosition()), **unchanged_target(NoPosition())), recorded(spec, NoPosition()))
    assert (action_of(made), made.reason, made.write_full, made.table.via) == (
        "change",
        "always reads in full",
        True,
        "direct",
    )


def test_foreign_target_stops_and_names_both_ways_on():
    made = step(table(), observed(high(NEW), target=target()))
    assert (action_of(made), made.by) == ("stop", "policy")
    assert made.reason == "lake:orders exists and was not made by this flow"
    assert "state adopt" in made.hint and "--full-refresh orders" in made.hint


def test_foreign_target_is_replaced_by_a_full_refresh_and_said_to_be_destructive():
    made = step(table(), observed(high(NEW), target=target()), request=REFRESH)
    assert (action_of(made), made.write_full, made.seq) == ("change", True, 1)
    assert (made.destructive, made.notes) == ("everything in lake:orders (1,000 rows)", ())


def test_scd2_never_takes_over_a_foreign_history():
    spec = table(mode="scd2", key=("id",), valid_from="updated_at")
    history = target((*ORDERS, *own_columns(spec).values()))
    made = step(spec, observed(high(NoPosition()), target=history), request=REFRESH)
    assert action_of(made) == "stop" and "--full-refresh" not in made.hint


def test_scd2_replaces_what_is_no_history_by_a_full_refresh_only():
    spec = table(mode="scd2", key=("id",), valid_from="updated_at")
    made = step(spec, observed(high(NoPosition()), target=target()), request=REFRESH)
    assert (action_of(made), made.write_full) == ("change", True)
    assert (made.destructive, made.notes) == ("everything in lake:orders (1,000 rows)", ())
    accepted = recorded(spec, NoPosition(), definition={})
    made = step(spec, observed(high(NoPosition()), target=target(), commit=committed()), accepted)
    assert action_of(made) == "stop" and "holds no history of id" in made.reason and "--full-refresh" in made.hint


def test_an_adopted_target_is_gone_on_with():
    state = recorded(table(), None, seq=0, intent_id="", definition={}, schema=(), highest=0)
    made = step(table(), observed(high(NEW), target=target()), state)
    assert (action_of(made), made.seq) == ("change", 1)


@pytest.mark.parametrize(
    ("commit", "found"),
    [
        pytest.param(committed(5, "i5"), "sequence number 5, ahead of the recorded", id="ahead"),
        pytest.param(committed(2, "i2"), "sequence number 2, behind the recorded", id="behind"),
        pytest.param(None, "no sequence number of this flow, behind the recorded", id="restored"),
        pytest.param(committed(3, "other"), "another commit of", id="another-intent"),
    ],
)
def test_a_target_that_disagrees_with_state_stops(commit, found):
    made = step(table(), observed(high(NEW), target=target(), commit=commit), recorded(table(), OLD))
    assert action_of(made) == "stop"
    assert made.reason.startswith(f"the target carries {found} sequence number 3")
    assert "state adopt" in made.hint


def test_another_table_of_the_same_name_stops():
    made = step(table(), observed(high(NEW), target=target(identity="delta-2")), recorded(table(), OLD))
    assert made.reason == "lake:orders is another table than the one this flow has written"


def test_a_dropped_target_stops_unless_it_is_to_be_made_anew():
    seen = observed(high(NEW))
    assert step(table(), seen, recorded(table(), OLD)).reason == "lake:orders is gone"
    anew = step(table(), seen, recorded(table(), OLD), REFRESH)
    assert (action_of(anew), anew.seq, anew.interval.lower) == ("create", 4, None)


@pytest.mark.parametrize("ahead", [None, 7])
def test_a_full_refresh_changes_the_position_and_never_the_number(ahead):
    commit = committed(ahead, "other") if ahead else committed(position=OLD)
    made = step(table(), observed(high(NEW), target=target(), commit=commit), recorded(table(), OLD), REFRESH)
    assert (action_of(made), made.seq, made.write_full) == ("change", (ahead or 3) + 1, True)
    assert made.interval.lower is None


def test_a_begun_number_is_finished_with_its_own_interval():
    begun = Interval(OLD, cursor("2026-11-20T01:00:00Z"), "updated_at", read_from=OLD.at)
    state = recorded(table(), OLD, intent=intent(table(), begun), highest=4)
    made = step(table(), observed(high(NEW), **unchanged_target()), state)
    assert (action_of(made), made.seq, made.interval, isinstance(made, RecordOnly)) == ("recover", 4, begun, False)


def test_a_begun_number_that_has_landed_is_only_recorded():
    begun = Interval(OLD, NEW, "updated_at")
    state = recorded(table(), OLD, intent=intent(table(), begun), highest=4)
    made = step(table(), observed(high(NEW), target=target(version=8), commit=committed(4, "i4", NEW)), state)
    assert (action_of(made), made.seq, isinstance(made, RecordOnly)) == ("recover", 4, True)


def test_the_first_number_ever_is_finished_though_its_target_was_only_created():
    state = recorded(table(), None, seq=0, intent_id="", definition={}, target_id="", highest=1,
                     intent=intent(table(), Interval(None, NEW, "updated_at"), seq=1, target_id=""))  # fmt: skip
    made = step(table(), observed(high(NEW), target=replace(target(), created_by="i4")), state)
    assert (action_of(made), made.seq) == ("recover", 1)


@pytest.mark.parametrize("created_by", ["", "of another flow"])
def test_a_table_that_is_there_before_our_first_commit_is_foreign_although_a_number_is_begun(created_by: str) -> None:
    state = recorded(table(), None, seq=0, intent_id="", definition={}, target_id="", highest=1,
                     intent=intent(table(), Interval(None, NEW, "updated_at"), seq=1, target_id=""))  # fmt: skip
    made = step(table(), observed(high(NEW), target=replace(target(), created_by=created_by)), state)
    assert (action_of(made), made.by) == ("stop", "policy")
    assert "was not made by this flow" in made.reason


def test_a_number_given_up_before_there_was_a_table_makes_no_table_ours():
    state = recorded(table(), None, seq=1, target_id="", definition={}, highest=1)
    void = committed(1, "i3", target_id="", void=True)
    made = step(table(), observed(high(NEW), target=target(), commit=void), state)
    assert action_of(made) == "stop" and "was not made by this flow" in made.reason


def test_a_table_that_never_was_is_created_although_its_first_number_was_given_up():
    state = recorded(table(), None, seq=1, target_id="", definition={"mode": "merge"}, highest=1)
    made = step(table(), observed(high(NEW), commit=None), replace(state, definition={}, position=OLD))
    assert action_of(made) == "create"


def test_a_begun_number_of_another_definition_stops():
    begun = intent(table(mode="append"), Interval(OLD, NEW, "updated_at"))
    made = step(table(), observed(high(NEW), **unchanged_target()), recorded(table(), OLD, intent=begun, highest=4))
    assert action_of(made) == "stop" and made.reason.startswith("the definition changed")


@pytest.mark.parametrize("landed", [False, True])
def test_a_number_that_was_given_up_is_void_unless_it_is_committed_and_the_next_one_starts(landed):
    state = recorded(table(), OLD, intent=intent(table(), Interval(OLD, NEW)), given_up=True, highest=4)
    commit = committed(4, "i4", NEW) if landed else committed(position=OLD)
    made = step(table(), observed(high(NEW), target=target(), commit=commit), state)
    assert (action_of(made), made.seq) == ("change", 5)
    assert made.notes[0] == "sequence number 4, begun by run 20261119T221004-1, " + (
        "is committed in the target: it is recorded first" if landed else "is given up: it is committed as void first"
    )


def test_a_source_whose_rows_are_all_younger_than_delay_is_not_empty():
    deletes = DetectMissingKeys(action="hard")
    spec = table(cursor=Cursor("updated_at", delay=3600.0), deletes=deletes)
    young = HighWatermark(None, RowEstimate(), NOW, has_younger=True)
    made = step(spec, observed(young, **unchanged_target()), recorded(spec, OLD))
    assert action_of(made) == "change" and made.reason == "looks for deleted keys"
    emptied = step(spec, observed(replace(young, has_younger=False), **unchanged_target()), recorded(spec, OLD))
    assert action_of(emptied) == "stop" and "the source has no rows" in emptied.reason


def test_merge_may_go_back():
    made = step(table(), observed(high(NEW), **unchanged_target()), recorded(table(), cursor("2026-11-01T00:00:00Z")))
    assert action_of(made) == "change"


@pytest.mark.parametrize(
    ("error", "by"),
    [(TransientError("pg cannot be reached"), "error"), (StoppedByPolicy("infinite cursor"), "policy")],
)
def test_what_cannot_be_observed_stops_its_table_and_what_needs_it(error, by):
    orders, other, daily = table(), table("other"), sql_table("daily", "orders")
    seen = {"orders": observed(error=error), "other": observed(high(NEW)), "daily": observed(source=None)}
    steps = {made.id: made for made in plan(world(seen), orders, other, daily).steps}
    assert {id: action_of(made) for id, made in steps.items()} == {"orders": "stop", "other": "create", "daily": "stop"}
    assert (steps["orders"].reason, steps["orders"].by) == (error.message, by)
    assert (steps["daily"].reason, steps["daily"].by) == ("requires orders, which is stopped", "dependency")


def test_a_missing_object_is_an_error_of_its_table():
    made = step(table(), observed(source=None))
    assert (action_of(made), made.by, made.reason) == (
        "stop",
        "error",
        "pg:public.orders does not exist: it is not there",
    )


def test_a_table_that_left_the_spec_is_shown_unless_only_some_are_selected():
    seen = world({"orders": observed(high(NEW))}, {"gone": recorded(table("gone"), OLD)})
    assert [(made.id, action_of(made)) for made in plan(seen, table()).steps] == [
        ("orders", "create"),
        ("gone", "removed"),
    ]
    assert len(plan(seen, table(), request=PlanOptions(select=("orders",))).steps) == 1


def test_a_pattern_that_cannot_be_listed_stops_alone_and_removes_nothing():
    states = {"raw_a": recorded(table("raw_a"), OLD), "gone": recorded(table("gone"), OLD)}
    pattern = table("raw_${table}", mode="truncate")
    seen = world({"orders": observed(high(NEW))}, states, unexpanded={pattern.id: TransientError("no route")})
    made = build(
        flow(table(), pattern), Resolved((table(),), {"orders": ()}, frozenset({"orders"})), seen, PlanOptions()
    )
    assert [(one.id, action_of(one)) for one in made.steps] == [
        ("orders", "create"),
        ("raw_${table}", "stop"),
        ("gone", "removed"),
    ]


def test_sql_tables_follow_the_numbers_of_what_they_read():
    orders, daily = table(), sql_table("daily", "orders")
    states = {"orders": recorded(orders, OLD), "daily": recorded(daily, UpstreamPosition((("orders", 3),)))}
    downstream = observed(None, None, target(), committed(3, "i3", table="daily"))

    def made(orders_watermark):
        seen = {"orders": observed(high(orders_watermark), **unchanged_target()), "daily": downstream}
        return plan(world(seen, states), orders, daily).steps[1]

    assert (action_of(made(OLD)), made(OLD).reason) == ("none", "nothing changed upstream")
    assert (action_of(made(NEW)), made(NEW).reason, made(NEW).table.needs) == ("change", "orders changed", ("orders",))
    assert made(NEW).interval.upper == UpstreamPosition((("orders", 4),))


def test_a_sql_table_over_one_that_was_never_loaded_and_is_not_selected_stops():
    made = plan(world({"daily": observed(source=None)}), table(), sql_table("daily", "orders"),
                request=PlanOptions(select=("daily",))).steps[0]  # fmt: skip
    assert action_of(made) == "stop"
    assert made.hint == "Select it too: --select +daily; with a cursor, orders is loaded once its source has rows"


def test_a_sql_table_waits_for_the_first_rows_of_what_it_reads():
    seen = {"orders": observed(high(None, rows=0)), "daily": observed(source=None)}
    steps = plan(world(seen), table(), sql_table("daily", "orders")).steps
    assert [made.reason for made in steps] == ["the source has no rows", "orders has no rows yet"]
    assert isinstance(steps[1], UpToDate) and steps[1].notes == ("runs once orders has rows",)


def test_types_of_sql_tables_are_known_when_declared_or_recorded():
    once = sql_table("daily", columns=ColumnRules(types={"one": "bigint"}))
    seen = observed(None, None)
    assert step(once, seen).columns.target == (Column("one", types.INT64),)
    assert changes(step(sql_table("daily"), seen)) is None
    added = step(table(columns=ColumnRules(add={"half": "amount / 2"})), observed(high(NEW)))
    assert (changes(added), added.columns.source) == (None, ORDERS)


@pytest.mark.parametrize(
    ("checked_at", "action"),
    [(None, "change"), ("2026-11-19T05:00:00.000000Z", "change"), ("2026-11-20T05:00:00.000000Z", "none")],
)
def test_missing_keys_are_looked_for_when_it_is_time(checked_at, action):
    spec = table(deletes=DetectMissingKeys(every=86400))
    state = recorded(
        spec,
        OLD,
        deletes_checked_at=checked_at,
        target_columns=(*target().columns, Column("_deleted_at", types.TIMESTAMP)),
    )
    kept = target((*ORDERS, Column("_deleted_at", types.TIMESTAMP)))
    made = step(spec, observed(high(OLD), target=kept, commit=committed(position=OLD)), state)
    assert (action_of(made), getattr(made, "check_deletes", False)) == (action, action == "change")


def test_an_empty_source_trips_max_deleted_before_anything_is_read():
    spec = table(deletes=DetectMissingKeys(action="hard"))
    made = step(spec, observed(high(None, rows=0), **unchanged_target()), recorded(spec, OLD))
    assert (action_of(made), made.reason) == ("stop", "guard max_deleted 10%: the source has no rows")
    assert "guard: {max_deleted: 100%, allow_empty: true}" in made.hint
    spec = replace(spec, guard=Guard(max_deleted=1.0, allow_empty=True))
    made = step(spec, observed(high(None, rows=0), **unchanged_target()), recorded(spec, OLD))
    assert (action_of(made), made.check_deletes) == ("change", True)


@pytest.mark.parametrize(("rows", "action"), [(RowEstimate(0, "count"), "stop"), (RowEstimate(0, "stats"), "change")])
def test_allow_empty_is_decided_by_a_count_and_never_by_statistics(rows, action):
    spec = table(mode="truncate", guard=Guard(allow_empty=False))
    seen = observed(replace(high(NoPosition()), rows=rows), **unchanged_target(NoPosition()))
    made = step(spec, seen, recorded(spec, NoPosition()))
    assert action_of(made) == action
    assert [(check.name, check.at) for check in made.checks] == [
        ("allow_empty", "plan" if action == "stop" else "commit")
    ]


@pytest.mark.parametrize(
    ("keys", "via"),
    [
        ({}, "direct"),
        ({"guard": Guard(allow_empty=False)}, "direct"),
        ({"guard": Guard(max_shrink=0.5)}, "staged"),
        ({"expect": (NotNull(column="id", mark=MARK),)}, "direct"),
        ({"expect": (NotNull(column="id", on_fail="quarantine", mark=MARK),)}, "staged"),
        ({"expect": (Rows(least=1, on_fail="warn", mark=MARK),)}, "staged"),
        ({"expect": (Unique(column="id", mark=MARK),)}, "staged"),
    ],
)
def test_only_aggregate_checks_need_a_staged_batch(keys, via):
    assert step(table(mode="truncate", **keys), observed(high(NoPosition()))).table.via == via


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"columns": ColumnRules(exclude=("sssn",))}, 'columns.exclude: "sssn" is not a column of pg:public.orders'),
        ({"cursor": Cursor("changed")}, 'cursor.column: "changed" is not a column of pg:public.orders'),
        ({"key": ("order_id",)}, 'the key column "order_id" is not among the target\'s columns'),
        ({"columns": ColumnRules(exclude=("id",))}, 'the key column "id" is not among the target\'s columns'),
        ({"mode": "scd2", "key": ("id",), "valid_from": "amount"}, 'valid_from: "amount" is decimal(12,2), not a time'),
    ],
)
def test_names_that_the_source_does_not_have_stop_the_first_run(keys, reason):
    made = step(table(**keys), observed(high(NEW)))
    assert (action_of(made), made.reason) == ("stop", reason)


def test_the_place_of_a_stop_is_the_line_behind_it():
    line = Mark("spec.yaml", 52, 7)
    made = step(table(key=("nope",), marks={"key": line}), observed(high(NEW)))
    assert made.table.mark == line


def test_idle_tables_keep_their_schema_changes_for_the_next_rows():
    wider = source((*ORDERS, Column("discount", types.Decimal(12, 2))))
    made = step(table(), observed(high(OLD), wider, **unchanged_target()), recorded(table(), OLD))
    assert (action_of(made), statements(made)) == ("none", ())
    assert [change.column for change in changes(made)] == ["discount"]
    assert made.columns.target == unchanged_target()["target"].columns
    assert made.notes == ("schema changes are applied with the next rows",)
