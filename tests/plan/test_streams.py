"""What a plan makes of a change stream: it begins, advances, captures or stops, and its tables with it. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from flowctl.connectors.stream import StreamProblem
from flowctl.errors import TransientError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition, LsnPosition
from flowctl.model.step import Advance, Load, Plan, RecordOnly, Recover, Stopped, StreamPlan
from flowctl.model.table_info import Column, ObjectName
from flowctl.plan.document import from_json, to_json
from flowctl.plan.render import View
from flowctl.spec.spec import ColumnRules, ReportedDeletes
from flowctl.state.document import StateDocument, StreamState
from tests.plan.stream_worlds import (
    STREAM,
    SYSTEM,
    asked,
    batch,
    info,
    joined,
    new_stream,
    running,
    seen,
    shape,
    step_of,
    stream_plan,
    stream_table,
)
from tests.plan.test_goldens import GOLDEN, ROOT, held, shown_as
from tests.plan.worlds import ORDERS, committed, intent

PUBLISHED = "the publication was changed, made again or dropped, and has no changes from in between"
ORDERS_TABLE, LINES = stream_table("orders"), stream_table("lines")


def two_tables(**keys: Any) -> StreamPlan:
    """Both have come to batch 4; batch 5 waits with 3 changes of orders."""
    orders, orders_state = joined(ORDERS_TABLE, 4)
    lines, lines_state = joined(LINES, 2)
    stream = running(
        {"orders": orders_state, "lines": lines_state},
        [batch(5, {"orders": 3})],
        shapes={"s1": shape("orders")},
        **{name: value for name, value in keys.items() if name in ("stream", "info")},
    )
    spec = keys.get("spec", STREAM)
    changed = keys.get("lines")
    return stream_plan(stream, [(ORDERS_TABLE, orders), (LINES, changed or lines)], spec)


def begins() -> Plan:
    history = stream_table("history", mode="scd2")
    tables = [(ORDERS_TABLE, seen(ORDERS_TABLE)), (LINES, seen(LINES)), (history, seen(history))]
    create = "CREATE PUBLICATION flowctl_shop_cdc FOR TABLE public.orders, public.lines, public.history"
    return whole(stream_plan(new_stream(source_changes=(create,)), tables))


def goes_on() -> Plan:
    discount = Column("discount", types.Decimal(12, 2), native="numeric(12,2)")
    orders, orders_state = joined(ORDERS_TABLE, 4)
    lines, lines_state = joined(LINES, 4)
    returns, notes, log = stream_table("returns"), stream_table("notes"), stream_table("log", mode="append", key=())
    problem = StreamProblem(
        "public.notes has no replica identity, so its updates and deletions name no row",
        "Add a primary key, or: ALTER TABLE public.notes REPLICA IDENTITY FULL",
        ObjectName(("public", "notes")),
    )
    waiting = [batch(5, {"orders": 40112}), batch(6, {"orders": 43000}, "s2"), batch(7, {"lines": 12}, "s3")]
    stream = running(
        {"orders": orders_state, "lines": lines_state},
        waiting,
        info=asked([problem], source_changes=("ALTER PUBLICATION flowctl_shop_cdc ADD TABLE public.returns",)),
        shapes={"s1": shape("orders"), "s2": shape("orders", (*ORDERS, discount)), "s3": shape("lines")},
    )
    orders = replace(orders, source=info("orders", (*ORDERS, discount)))
    tables = [(ORDERS_TABLE, orders), (LINES, lines), (returns, seen(returns)), (notes, seen(notes)), (log, seen(log))]
    return whole(stream_plan(stream, tables))


def whole(stream: StreamPlan) -> Plan:
    return Plan("shop", "", 0, "d" * 64, "2026-11-20T06:20:00.000000Z", "0.1.0", (), (), (stream,))


PLANS = {"stream_begins": begins, "stream_goes_on": goes_on}


@pytest.mark.parametrize("name", PLANS)
def test_text(name: str) -> None:
    view = View(command="flowctl apply spec.yaml --plan plan.json", is_saved=True)
    held(GOLDEN / f"{name}.txt", shown_as(PLANS[name](), view) + "\n")


@pytest.mark.parametrize("name", PLANS)
def test_json(name: str) -> None:
    made = PLANS[name]()
    document = to_json(made)
    held(GOLDEN / f"{name}.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    jsonschema.validate(document, json.loads((ROOT / "schemas" / "plan.schema.json").read_text(encoding="utf-8")))
    assert from_json(json.loads(json.dumps(document))) == made


def test_a_new_stream_reads_its_tables_at_the_moment_of_its_reader() -> None:
    made = stream_plan(new_stream(), [(ORDERS_TABLE, seen(ORDERS_TABLE)), (LINES, seen(LINES))])
    assert (made.action, made.batch, made.applied) == ("create", 0, 0)
    assert all(isinstance(step, Load) and step.interval.lower is None for step in made.steps)


def test_tables_take_what_has_landed() -> None:
    made = two_tables()
    assert (made.action, made.batch, made.applied, made.waiting) == ("advance", 5, 4, 3)
    orders, lines = made.steps
    assert isinstance(orders, Advance) and isinstance(lines, Advance)
    assert (orders.waiting, lines.waiting) == (3, 0)


def test_nothing_to_do_at_the_end_of_the_log() -> None:
    orders, state = joined(ORDERS_TABLE, 4)
    stream = running({"orders": state}, info=asked(head=LsnPosition(0x4000)))
    assert stream_plan(stream, [(ORDERS_TABLE, orders)]).action == "none"


def test_a_table_that_lags_behind_is_work() -> None:
    orders, state = joined(ORDERS_TABLE, 2)
    behind = StreamState(source=SYSTEM, applied=4, apart={"orders": 2})
    waiting = [batch(3, {"orders": 2}), batch(4, {"lines": 7})]
    stream = running({"orders": state}, waiting, behind, asked(head=LsnPosition(0x4000)), {"s1": shape("orders")})
    made = stream_plan(stream, [(ORDERS_TABLE, orders)])
    assert made.action == "advance"
    assert isinstance(step := made.steps[0], Advance) and step.waiting == 2


def test_what_a_table_has_not_applied_counts_from_where_the_stream_is() -> None:
    """Its own last commit may be older: nothing of it has changed in between."""
    lines, state = joined(LINES, 2)
    stream = running({"lines": state}, [batch(5, {"lines": 6})], shapes={"s1": shape("lines")})
    assert isinstance(step := stream_plan(stream, [(LINES, lines)]).steps[0], Advance) and step.waiting == 6


def test_tables_wait_for_a_stopped_one() -> None:
    broken = seen(LINES, info("lines", identity_columns=[]), error=TransientError("no", hint="Run again"))
    made = two_tables(lines=broken)
    assert made.action == "capture" and made.runs
    orders = step_of(made, "orders")
    assert isinstance(orders, Stopped) and orders.by == "dependency"
    assert orders.reason == "waits for lines (on_table_error: stop)"


def test_detached_tables_go_on() -> None:
    broken = seen(LINES, error=TransientError("no", hint="Run again"))
    made = two_tables(lines=broken, spec=replace(STREAM, on_table_error="detach"))
    assert made.action == "advance"
    assert isinstance(step_of(made, "orders"), Advance) and isinstance(step_of(made, "lines"), Stopped)


def test_a_table_that_was_never_read_holds_nobody() -> None:
    orders, state = joined(ORDERS_TABLE, 4)
    problem = StreamProblem("it has no replica identity", "Add a primary key", ObjectName(("public", "lines")))
    stream = running({"orders": state}, info=asked([problem]))
    made = stream_plan(stream, [(ORDERS_TABLE, orders), (LINES, seen(LINES))])
    assert made.action == "advance"
    assert isinstance(step_of(made, "orders"), Advance)
    stopped = step_of(made, "lines")
    assert isinstance(stopped, Stopped) and (stopped.reason, stopped.hint) == (problem.what, problem.repair)


@pytest.mark.parametrize(
    ("keys", "mode", "is_stopped"),
    [
        ({"deferrable_keys": [["id"]]}, "merge", True),
        ({"deferrable_keys": [["id"]]}, "scd2", True),
        ({"deferrable_keys": [["id"]]}, "append", False),
        ({"deferrable_keys": [["id"]], "immediate_keys": [["id"]]}, "merge", False),
        ({"deferrable_keys": [["id", "n"], ["n"]], "immediate_keys": [["id"]]}, "merge", False),
        ({"deferrable_keys": [["n"]]}, "merge", False),
        ({"immediate_keys": [["id"]]}, "merge", False),
    ],
)
def test_a_key_whose_values_one_statement_can_exchange(keys: dict[str, Any], mode: Any, is_stopped: bool) -> None:
    table = stream_table("lines", mode=mode)
    made = stream_plan(new_stream(), [(table, seen(table, info("lines", **keys)))])
    (step,) = made.steps
    assert isinstance(step, Stopped) == is_stopped
    if isinstance(step, Stopped):
        assert step.reason.startswith("the key (id) of public.lines is deferrable: one statement can hand its values")
        assert step.hint.startswith("Add the key again without DEFERRABLE, name another `key`")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"oldest": None}, "the slot flowctl_shop_cdc is gone"),
        ({"oldest": LsnPosition(0x8000)}, "the slot flowctl_shop_cdc is at 0/8000, and captured is only up to 0/5000"),
        ({"head": LsnPosition(0x3000)}, "the source is at 0/3000, before what was captured (0/5000): it was restored"),
        ({"system": "postgres:9/5"}, "the source is another system now (postgres:7/5 → postgres:9/5)"),
        ({"lost": "the server has removed its log"}, "the server has removed its log"),
        ({"published": "11/900"}, PUBLISHED),
        ({"published": ""}, PUBLISHED),
    ],
)
def test_a_lost_position_stops_the_stream(change: dict[str, Any], reason: str) -> None:
    made = two_tables(info=asked(**change))
    assert (made.action, made.reason) == ("stop", f"the position is lost: {reason}")
    assert "`flowctl state resnapshot spec.yaml cdc`" in made.hint
    assert all(isinstance(step, Stopped) and step.by == "policy" for step in made.steps)
    again = two_tables(info=asked(**change), spec=replace(STREAM, on_lost_position="resnapshot"))
    assert again.action == "create"
    assert all(isinstance(step, Load) for step in again.steps)


def test_a_stream_begins_anew_when_asked_to() -> None:
    orders, state = joined(ORDERS_TABLE, 4)
    anew = StreamState(source=SYSTEM, published="11/700", applied=4, anew=True)
    stream = running({"orders": replace(state, position=None)}, stream=anew, info=asked(oldest=None))
    made = stream_plan(stream, [(ORDERS_TABLE, orders)])
    assert made.action == "create"
    assert isinstance(step := made.steps[0], Load) and step.write_full


@pytest.mark.parametrize(("begun", "action"), [("", "stop"), ("slot flowctl_shop_cdc", "create")])
def test_a_reader_found_before_the_first_batch(begun: str, action: str) -> None:
    """It is another's, unless an interrupted run has begun to create it."""
    document = StateDocument("l", 1, stream=StreamState(begun=begun))
    stream = replace(new_stream(), state=document, info=asked())
    assert stream_plan(stream, [(ORDERS_TABLE, seen(ORDERS_TABLE))]).action == action


def test_rows_are_not_appended_twice() -> None:
    log = stream_table("log", mode="append", key=(), metadata=("op",))
    there, state = joined(log, 4)
    lost = replace(state, position=None)
    stream = running({"log": lost})
    stopped = stream_plan(stream, [(log, there)]).steps[0]
    assert isinstance(stopped, Stopped) and "appended again" in stopped.reason
    again = running({"log": replace(lost, append_again=True)})
    assert isinstance(step := stream_plan(again, [(log, there)]).steps[0], Load) and not step.write_full
    refreshed = stream_plan(stream, [(log, there)], full_refresh=True).steps[0]
    assert isinstance(refreshed, Load) and refreshed.write_full


def test_soft_deletes_and_histories_keep_their_rows_when_read_again() -> None:
    soft = stream_table("soft", deletes=ReportedDeletes("soft"))
    there, state = joined(soft, 4)
    step = stream_plan(running({"soft": replace(state, position=None)}), [(soft, there)]).steps[0]
    assert isinstance(step, Load) and not step.write_full and step.check_deletes


def test_an_interrupted_round_is_finished_and_a_snapshot_is_not() -> None:
    orders, state = joined(ORDERS_TABLE, 4)
    of_batches = intent(ORDERS_TABLE, Interval(LandedPosition(4), LandedPosition(5)), definition=state.definition)
    stream = running(
        {"orders": replace(state, intent=of_batches)}, [batch(5, {"orders": 3})], shapes={"s1": shape("orders")}
    )
    assert isinstance(stream_plan(stream, [(ORDERS_TABLE, orders)]).steps[0], Recover)
    landed = replace(orders, commit=committed(4, "i4", LandedPosition(5)))
    assert isinstance(stream_plan(stream, [(ORDERS_TABLE, landed)]).steps[0], RecordOnly)
    snapshot = intent(ORDERS_TABLE, Interval(None, LandedPosition(4)), definition=state.definition)
    first = replace(state, position=None, intent=snapshot)
    assert isinstance(stream_plan(running({"orders": first}), [(ORDERS_TABLE, orders)]).steps[0], Load)


def test_columns_that_the_stream_has_not_reached_are_announced() -> None:
    discount = Column("discount", types.Decimal(12, 2), native="numeric(12,2)")
    orders, state = joined(ORDERS_TABLE, 4)
    now = replace(orders, source=info("orders", (*ORDERS, discount)))
    step = stream_plan(running({"orders": state}), [(ORDERS_TABLE, now)]).steps[0]
    assert isinstance(step, Advance)
    assert step.notes == ('a new column "discount" (numeric(12,2)) comes when the stream reaches it',)
    waiting = running({"orders": state}, [batch(5, {"orders": 1})], shapes={"s1": shape("orders", (*ORDERS, discount))})
    step = stream_plan(waiting, [(ORDERS_TABLE, now)]).steps[0]
    assert isinstance(step, Advance) and [change.column for change in step.columns.changes] == ["discount"]


@pytest.mark.parametrize("kind", [types.Array(types.INT32), types.Struct((("a", types.INT32),))])
def test_a_key_that_cannot_be_compared_stops_before_the_first_read(kind: types.DataType) -> None:
    columns = (Column("id", kind, nullable=False), *ORDERS[1:])
    there = seen(ORDERS_TABLE, info("orders", columns))
    made = stream_plan(new_stream(), [(ORDERS_TABLE, there), (LINES, seen(LINES))])
    orders, lines = made.steps
    assert isinstance(orders, Stopped) and 'the key column "id" is ' in orders.reason
    assert isinstance(lines, Load)
    log = stream_table("orders", mode="append", key=())
    assert isinstance(stream_plan(new_stream(), [(log, seen(log, info("orders", columns)))]).steps[0], Load)


@pytest.mark.parametrize("waits", [False, True])
def test_no_change_is_announced_of_columns_that_the_spec_declares_or_leaves_out(waits: bool) -> None:
    rules = ColumnRules(types={"day": "string"}, exclude=("region",))
    spec = stream_table("orders", columns=rules)
    there, state = joined(spec, 4)
    now = (*ORDERS, Column("day", types.DATE, native="date"), Column("region", types.INT32, native="integer"))
    text = Column("day", types.STRING, native="date", as_text=True)
    state = replace(state, schema=(*ORDERS, text))
    stream = running({"orders": state}, [batch(5, {"orders": 1})] if waits else [], shapes={"s1": shape("orders", now)})
    step = stream_plan(stream, [(spec, replace(there, source=info("orders", now)))]).steps[0]
    assert isinstance(step, Advance) and step.notes == ()


def test_generated_columns_are_named() -> None:
    """They are not among the columns of the source, as its stream has them."""
    made = info("orders", undelivered=["total", "tax"])
    note = ("generated columns are not in the stream, and left out: total, tax",)
    first = stream_plan(new_stream(), [(ORDERS_TABLE, seen(ORDERS_TABLE, made))]).steps[0]
    assert isinstance(first, Load) and first.notes == note
    there, state = joined(ORDERS_TABLE, 4)
    step = stream_plan(running({"orders": state}), [(ORDERS_TABLE, replace(there, source=made))]).steps[0]
    assert isinstance(step, Advance) and step.notes == note
    spec = stream_table("orders", columns=ColumnRules(add={"total": "id * 2"}, types={"total": "int"}))
    first = stream_plan(new_stream(), [(spec, seen(spec, made))]).steps[0]
    assert isinstance(first, Load) and first.notes == (note[0].replace("total, ", ""),)
