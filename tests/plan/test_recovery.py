"""A begun number and what has come since: two steps of one plan, the second from where the first ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors.source import HighWatermark
from flowctl.model import types
from flowctl.model.commit import IntendedColumns
from flowctl.model.file_log import FileLog
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, FilesPosition, FileStamp, NoPosition, Ties, UpstreamPosition
from flowctl.model.step import RecordOnly, progress_after
from flowctl.model.table_info import Column, RowEstimate
from flowctl.observe.world import Observed
from flowctl.plan.document import action_of, from_json, to_json
from flowctl.spec.spec import Cursor, DetectMissingKeys, TableSpec
from flowctl.state.document import TableState
from tests.plan.worlds import (
    ID,
    NEW,
    NOW,
    OLD,
    ORDERS,
    at,
    changes,
    committed,
    cursor,
    high,
    intent,
    observed,
    plan,
    recorded,
    source,
    sql_table,
    statements,
    steps,
    table,
    target,
    unchanged_target,
    world,
)

BEGUN_TO = cursor("2026-11-20T01:00:00Z")
APPENDED = table(mode="append", cursor=Cursor("updated_at"))
HISTORY = table(mode="scd2", key=("id",), valid_from="updated_at", cursor=Cursor("updated_at"))


def begun(spec: TableSpec, to: CursorPosition = BEGUN_TO, **keys: object) -> TableState:
    upper = to.at if spec.mode == "append" else None
    interval = Interval(OLD, to, "updated_at", read_from=OLD.at, read_to=upper)
    return recorded(spec, OLD, intent=intent(spec, interval), highest=4, **keys)


def landed(position: CursorPosition = BEGUN_TO) -> dict[str, object]:
    return {"target": target(version=8), "commit": committed(4, "i4", position)}


@pytest.mark.parametrize("spec", [APPENDED, table()], ids=["append", "merge"])
@pytest.mark.parametrize("is_committed", [False, True])
def test_what_has_come_since_is_read_under_the_next_number(spec: TableSpec, is_committed: bool) -> None:
    there = landed() if is_committed else unchanged_target()
    first, second = steps(spec, observed(high(NEW, rows=7, rows_at_position=1), **there), begun(spec))
    assert (action_of(first), first.seq, first.interval.upper) == ("recover", 4, BEGUN_TO)
    assert isinstance(first, RecordOnly) == is_committed
    assert (action_of(second), second.seq, second.follows, statements(second)) == ("change", 5, 4, ())
    assert (second.interval.lower, second.interval.read_from, second.interval.upper) == (BEGUN_TO, BEGUN_TO.at, NEW)
    assert second.reason == "new rows, once sequence number 4 is recorded"
    assert second.table.progress == progress_after(first)
    assert second.rows.value == (6 if spec.mode == "append" else 7)
    assert (second.columns.target, second.columns.projection, second.columns.source) == (
        target().columns,
        second.columns.projection,
        ORDERS,
    )
    assert second.columns.projection


def test_a_position_that_the_target_tells_keeps_what_was_written_there() -> None:
    ties = Ties((("h", 2),), (Column("id", types.INT64),))
    written = CursorPosition(BEGUN_TO.at, ties)
    _, second = steps(APPENDED, observed(high(NEW, rows_at_position=2), **landed(written)), begun(APPENDED))
    assert second.interval.lower == written


@pytest.mark.parametrize("spec", [APPENDED, table(), HISTORY], ids=["append", "merge", "scd2"])
@pytest.mark.parametrize("is_committed", [False, True])
def test_without_new_rows_there_is_nothing_more(spec: TableSpec, is_committed: bool) -> None:
    there = landed(NEW) if is_committed else unchanged_target()
    assert len(steps(spec, observed(high(NEW), **there), begun(spec, NEW))) == 1


def test_late_rows_are_looked_for_again_only_where_the_begun_number_has_not_just_done_so() -> None:
    spec = table(cursor=Cursor("updated_at", lag=3600))
    assert len(steps(spec, observed(high(NEW), **unchanged_target()), begun(spec, NEW))) == 1
    assert len(steps(spec, observed(high(NEW), **landed(NEW)), begun(spec, NEW))) == 2


def test_a_begun_interval_is_complete_once_a_delay_that_was_set_since_admits_its_end() -> None:
    spec = table(mode="append", cursor=Cursor("updated_at", delay=7200.0))
    old = CursorPosition(at("2026-11-19T00:30:00Z"))
    for newest, is_complete in ((NEW, True), (BEGUN_TO, True), (old, False)):
        seen = observed(high(newest, rows_at_position=1), **unchanged_target())
        assert steps(spec, seen, begun(spec))[0].interval.is_complete == is_complete
    without = steps(APPENDED, observed(high(NEW, rows_at_position=1), **unchanged_target()), begun(APPENDED))
    assert not any(one.interval.is_complete for one in without)


def test_keys_are_compared_once() -> None:
    spec = table(deletes=DetectMissingKeys(action="hard"))
    first, second = steps(spec, observed(high(NEW), **unchanged_target()), begun(spec))
    assert (first.check_deletes, second.check_deletes) == (True, False)
    first, second = steps(spec, observed(high(NEW), **landed()), begun(spec))
    assert isinstance(first, RecordOnly) and second.check_deletes


def test_new_columns_are_made_by_the_first_step_that_writes() -> None:
    wider = source((*ORDERS, Column("discount", types.Decimal(12, 2))))
    first, second = steps(APPENDED, observed(high(NEW), wider, **unchanged_target()), begun(APPENDED))
    assert (len(statements(first)), statements(second), changes(second)) == (1, (), ())
    assert second.columns.target == first.columns.target and "discount" in {one.name for one in second.columns.target}
    first, second = steps(APPENDED, observed(high(NEW), wider, **landed()), begun(APPENDED))
    assert (statements(first), len(statements(second))) == ((), 1)


def test_a_committed_number_records_the_columns_that_it_was_begun_with() -> None:
    """The source has dropped one of them since; without columns, an older flowctl has begun it."""
    wider = (*ORDERS, Column("discount", types.Decimal(12, 2)))
    there = {"target": target(wider, version=8), "commit": committed(4, "i4", BEGUN_TO)}
    state = begun(APPENDED)
    assert state.intent is not None
    of_older = steps(APPENDED, observed(high(NEW), **there), state)
    assert [(one.change, one.column) for one in changes(of_older[1])] == [("drift", "discount")]
    known = replace(state, intent=replace(state.intent, columns=IntendedColumns(wider, target(wider).columns)))
    first, second = steps(APPENDED, observed(high(NEW), **there), known)
    assert (first.columns.source, first.columns.recorded) == (wider, target(wider).columns)
    assert [(one.change, one.column) for one in changes(second)] == [("dropped_column", "discount")]
    same = replace(state, intent=replace(state.intent, columns=IntendedColumns()))
    first, _ = steps(APPENDED, observed(high(NEW), source(wider), **landed()), same)
    assert (first.columns.source, first.columns.recorded) == (state.schema, state.target_columns)


def test_a_first_run_that_was_interrupted_creates_and_continues() -> None:
    first_interval = Interval(None, BEGUN_TO, "updated_at", read_to=BEGUN_TO.at)
    begun = intent(APPENDED, first_interval, seq=1, target_id="")
    state = TableState(intent=begun, highest=1)
    first, second = steps(APPENDED, observed(high(NEW)), state)
    assert (action_of(first), first.seq, first.table.seen.exists) == ("recover", 1, False)
    assert (action_of(second), second.seq, statements(second), second.interval.lower) == ("change", 2, (), BEGUN_TO)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_table_that_is_read_in_full_is_read_once_now(is_committed: bool) -> None:
    spec = table(mode="truncate")
    state = recorded(spec, NoPosition(), intent=intent(spec, Interval(None, NoPosition())), highest=4)
    commit = committed(4, "i4", NoPosition()) if is_committed else committed(position=NoPosition())
    made = steps(spec, observed(high(NoPosition()), target=target(), commit=commit), state)
    assert [action_of(one) for one in made] == (["recover", "change"] if is_committed else ["recover"])


@pytest.mark.parametrize("is_committed", [False, True])
def test_new_files_are_those_that_neither_was_read_nor_was_begun(is_committed: bool) -> None:
    spec = table(mode="append", cursor=None)
    read, pending, new = (FileStamp(f"{name}.csv", 10, name) for name in ("a", "b", "c"))
    log = FileLog().with_read("orders", [read])
    after = log.with_read("orders", [pending])
    state = recorded(spec, log.position, intent=intent(spec, Interval(log.position, after.position)), highest=4)
    commit = committed(4, "i4", after.position) if is_committed else committed(position=log.position)
    seen = observed(high(FilesPosition((read, pending, new))), target=target(), commit=commit, positions="files")
    first, second = steps(spec, replace(seen, file_log=log, pending_log=after), state)
    assert first.interval.files_read == (pending,)
    assert second.interval == Interval(after.position, after.with_read("orders", [new]).position, files=(new,))


def test_what_stops_the_rows_since_does_not_stop_the_begun_number() -> None:
    future = cursor("2036-01-01T00:00:00Z")
    first, second = steps(APPENDED, observed(high(future), **unchanged_target()), begun(APPENDED))
    assert (action_of(first), action_of(second), second.follows) == ("recover", "stop", 4)
    assert "in the future" in second.reason


def test_tables_that_read_it_wait_for_both() -> None:
    orders, daily = table(), sql_table("daily", "orders")
    states = {
        "orders": begun(orders),
        "daily": recorded(daily, UpstreamPosition((("orders", 3),)), schema=(ID,), target_columns=(ID,)),
    }
    downstream = Observed(target=target((ID,)), commit=committed(table="daily"))
    seen = {"orders": observed(high(NEW), **unchanged_target()), "daily": downstream}
    made = plan(world(seen, states), orders, daily)
    assert [(one.id, action_of(one), one.seq) for one in made.steps] == [
        ("orders", "recover", 4),
        ("orders", "change", 5),
        ("daily", "change", 4),
    ]
    assert made.steps[2].interval.upper == UpstreamPosition((("orders", 5),))
    assert from_json(to_json(made)) == made


def test_a_table_that_reads_another_is_finished_and_follows() -> None:
    orders, daily = table(), sql_table("daily", "orders")
    pending = intent(daily, Interval(UpstreamPosition((("orders", 3),)), UpstreamPosition((("orders", 4),))))
    pending = replace(pending, definition=recorded(daily, None).definition)
    states = {
        "orders": begun(orders),
        "daily": recorded(daily, UpstreamPosition((("orders", 3),)), intent=pending, highest=4, schema=(ID,)),
    }
    downstream = Observed(target=target((ID,)), commit=committed(table="daily"))
    seen = {"orders": observed(high(NEW), **unchanged_target()), "daily": downstream}
    *_, finishing, since = plan(world(seen, states), orders, daily).steps
    assert (finishing.id, action_of(finishing), finishing.seq) == ("daily", "recover", 4)
    assert (since.id, action_of(since), since.seq, since.follows) == ("daily", "change", 5, 4)


def test_an_empty_source_leaves_only_the_begun_number() -> None:
    empty = HighWatermark(None, RowEstimate(0, "count"), NOW)
    assert [action_of(one) for one in steps(table(), observed(empty, **unchanged_target()), begun(table()))] == [
        "recover"
    ]


TEXT = source((ID, Column("updated_at", types.STRING)))


def test_a_begun_interval_of_a_cursor_with_another_order_since_is_given_up_and_the_position_with_it_stops() -> None:
    (made,) = steps(table(), observed(high(), TEXT, **unchanged_target()), begun(table()))
    assert action_of(made) == "stop" and '"updated_at" is string, was timestamp' in made.reason
    assert "--full-refresh orders" in made.hint
    first, second = steps(table(), observed(high(), TEXT, **landed()), begun(table()))
    assert isinstance(first, RecordOnly) and action_of(second) == "stop"


def test_a_begun_first_run_of_a_cursor_with_another_order_since_begins_again() -> None:
    spec = table()
    interval = Interval(None, BEGUN_TO, "updated_at")
    state = TableState(intent=intent(spec, interval, target_id=""), highest=4)
    newest = CursorPosition(at("zz", types.STRING))
    (made,) = steps(spec, observed(high(newest), TEXT), state)
    assert (action_of(made), made.seq) == ("create", 5) and made.interval.upper == newest
