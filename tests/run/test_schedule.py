"""Two steps of one table: the second runs after the first has ended well, from where that has left off."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flowctl.errors import FlowctlError, StalePlan, StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.commit import RowCounts
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, OffsetsPosition, Ties
from flowctl.model.projection import Columns, ProjectedColumn, RuntimeColumns
from flowctl.model.step import Load, Plan, PlannedTable, Recover, Runnable, Step, Stopped
from flowctl.model.table_info import Column, RowEstimate
from flowctl.run import events
from flowctl.run.attempt import TableResult
from flowctl.run.commits import commits
from flowctl.run.protocol import continued
from flowctl.run.schedule import ASKED_TO_STOP, Schedule
from flowctl.state.document import StateDocument, TableState
from tests.plan.worlds import LINEAGE, MARK, NEW, OLD

ORDERS = PlannedTable(id="orders", mark=MARK, source="pg:orders", target="lake:orders", mode="append")
SINCE = Interval(OLD, NEW, "updated_at")
FIRST = Recover(table=ORDERS, reason="finishes", seq=4, interval=Interval(None, OLD), columns=Columns())
SECOND = Load(table=ORDERS, reason="new rows", seq=5, follows=4, interval=SINCE, columns=Columns())
CLICKS = replace(
    SECOND,
    interval=Interval(OffsetsPosition(((0, 0),)), OffsetsPosition(((0, 25),))),
    rows=RowEstimate(25, "stats"),
    columns=Columns(statements=("ALTER",)),
    batch_rows=10,
)
DAILY = replace(SECOND, table=replace(ORDERS, id="daily", needs=("orders",)), seq=4, follows=None)


class Scripted:
    """With outcomes in place of runs of tables."""

    def __init__(self, steps: tuple[Step, ...], errors: dict[int, FlowctlError], stops_after: int = 0) -> None:
        self.errors, self.stops_after, self.ran = errors, stops_after, list[tuple[str, int]]()
        self.heard: list[events.Event] = []
        self.stopping = threading.Event()
        tables = {step.id: SimpleNamespace(on_error="continue") for step in steps}
        run: Any = SimpleNamespace(stopping=self.stopping, listener=self.heard.append, tables=tables)
        protocol: Any = SimpleNamespace(has_begun=lambda step: True, carry_out=self.carry_out)
        self.finish = Schedule(Plan("shop", LINEAGE, 1, "d", "now", "0", (), steps), protocol, run, 2).finish

    def carry_out(self, step: Runnable, finished: Step | None = None) -> TableResult:
        self.ran.append((step.id, step.seq))
        if step.seq == self.stops_after:
            self.stopping.set()
        error = self.errors.get(step.seq)
        counts = RowCounts() if error else RowCounts(read=10, inserted=9)
        return TableResult(step, 1.0, counts, None if error else step.seq, error=error)


def test_tables_that_need_it_wait_for_both_steps() -> None:
    schedule = Scripted((FIRST, SECOND, DAILY), {})
    assert [outcome.ok for outcome in schedule.finish().outcomes] == [True, True, True]
    assert schedule.ran == [("orders", 4), ("orders", 5), ("daily", 4)]


@pytest.mark.parametrize("failing", [4, 5])
def test_after_a_failure_nothing_follows(failing: int) -> None:
    schedule = Scripted((FIRST, SECOND, replace(DAILY, seq=9)), {failing: TableError("lost")})
    first, second, daily = schedule.finish().outcomes
    assert (first.ok, second.ok, daily.skipped_for) == (failing == 5, False, "orders was not brought up to date")
    assert second.skipped_for == ("sequence number 4 was not finished" if failing == 4 else None)


def test_what_the_plan_stops_behind_a_begun_number_is_stopped() -> None:
    stopped = Stopped(table=ORDERS, reason="position moved back", hint="", by="policy", follows=4)
    schedule = Scripted((FIRST, stopped), {})
    first, second = schedule.finish().outcomes
    assert first.ok and isinstance(second.error, StoppedByPolicy) and schedule.ran == [("orders", 4)]
    assert [type(event) for event in schedule.heard] == [events.TableFailed]


def test_a_run_that_is_asked_to_stop_begins_no_second_number() -> None:
    schedule = Scripted((FIRST, SECOND), {}, stops_after=4)
    assert [outcome.skipped_for for outcome in schedule.finish().outcomes] == [None, ASKED_TO_STOP]


def test_a_step_in_several_commits_has_one_result() -> None:
    schedule = Scripted((FIRST, CLICKS, DAILY), {})
    _, clicks, daily = schedule.finish().outcomes
    assert schedule.ran == [("orders", 4), ("orders", 5), ("orders", 6), ("orders", 7), ("daily", 4)]
    assert (clicks.step, clicks.seq, clicks.seconds, clicks.counts) == (CLICKS, 7, 3.0, RowCounts(read=30, inserted=27))
    assert (clicks.ok, daily.ok) == (True, True)


def test_what_was_committed_before_a_failure_counts() -> None:
    schedule = Scripted((CLICKS, DAILY), {6: TableError("lost")})
    clicks, daily = schedule.finish().outcomes
    assert schedule.ran == [("orders", 5), ("orders", 6)]
    assert (clicks.step, clicks.seq, clicks.counts.read, str(clicks.error)) == (CLICKS, 5, 10, "lost")
    assert daily.skipped_for == "orders was not brought up to date"


def test_a_run_that_is_asked_to_stop_ends_between_two_commits() -> None:
    schedule = Scripted((CLICKS,), {}, stops_after=6)
    (clicks,) = schedule.finish().outcomes
    assert (schedule.ran, clicks.seq, clicks.counts.read) == ([("orders", 5), ("orders", 6)], 6, 20)
    assert (clicks.ok, clicks.skipped_for) == (False, ASKED_TO_STOP)


def test_a_later_commit_finds_the_target_as_the_first_has_left_it() -> None:
    new = replace(CLICKS, write_full=True, refresh=True, destructive="", follows=None)
    first, second, third = commits(new)
    assert isinstance(first, Load) and isinstance(second, Load) and isinstance(third, Load)
    assert (first.creates, first.columns, first.refresh, first.follows) == (True, CLICKS.columns, True, None)
    assert (second.creates, second.columns, second.refresh, second.write_full) == (False, Columns(), False, False)
    assert [(one.seq, one.follows, one.continues) for one in (second, third)] == [(6, 5, True), (7, 6, False)]
    assert [one.rows.value for one in (first, second, third)] == [8, 8, 9]
    assert list(commits(SECOND)) == [SECOND]


def test_the_second_step_takes_the_rows_at_its_position_from_what_the_first_recorded() -> None:
    ties = Ties((("h", 1),), (Column("id", types.INT64),))
    written = CursorPosition(OLD.at, ties)
    document = StateDocument(LINEAGE, 2, tables={"orders": TableState(seq=4, position=written, target_id="made")})
    step = continued(SECOND, FIRST, document)
    assert step.interval.lower == written and step.table.seen.id == "made"
    planned = replace(SECOND, interval=Interval(CursorPosition(OLD.at, Ties(())), NEW))
    assert continued(planned, FIRST, document).interval == planned.interval


def test_a_later_commit_of_a_topic_knows_the_truncate_that_an_earlier_one_applied() -> None:
    written = OffsetsPosition(((0, 10),), "007")
    document = StateDocument(LINEAGE, 2, tables={"orders": TableState(seq=4, position=written)})
    planned = replace(SECOND, interval=Interval(OffsetsPosition(((0, 10),)), OffsetsPosition(((0, 20),))))
    assert continued(planned, FIRST, document).interval == replace(planned.interval, lower=written)


def test_columns_that_only_the_engine_could_tell_are_those_of_the_first() -> None:
    document = StateDocument(LINEAGE, 2, tables={"orders": TableState(seq=4, position=OLD)})
    made = (Column("id", types.INT64),)
    written = Columns(made, made, (ProjectedColumn(made[0], "id"),))
    late = replace(SECOND, columns=RuntimeColumns())
    assert continued(late, replace(FIRST, columns=written), document).columns == written
    assert continued(late, replace(FIRST, columns=RuntimeColumns()), document).columns == RuntimeColumns()


@pytest.mark.parametrize("state", [TableState(seq=3, position=OLD), TableState(seq=4, position=NEW)])
def test_the_second_step_stands_on_nothing_but_the_first(state: TableState) -> None:
    with pytest.raises(StalePlan):
        continued(SECOND, FIRST, StateDocument(LINEAGE, 2, tables={"orders": state}))
