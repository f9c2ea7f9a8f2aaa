"""Two steps of one table: the second runs after the first has ended well, from where that has left off."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flowctl.errors import FlowctlError, StalePlan, StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import CursorPosition, Ties
from flowctl.model.projection import Columns, ProjectedColumn, RuntimeColumns
from flowctl.model.step import Load, Plan, PlannedTable, Recover, Runnable, Step, Stopped
from flowctl.model.table_info import Column
from flowctl.run import events
from flowctl.run.attempt import TableResult
from flowctl.run.protocol import continued
from flowctl.run.schedule import ASKED_TO_STOP, Schedule
from flowctl.state.document import StateDocument, TableState
from tests.plan.worlds import LINEAGE, MARK, NEW, OLD

ORDERS = PlannedTable(id="orders", mark=MARK, source="pg:orders", target="lake:orders", mode="append")
SINCE = Interval(OLD, NEW, "updated_at")
FIRST = Recover(table=ORDERS, reason="finishes", seq=4, interval=Interval(None, OLD), columns=Columns())
SECOND = Load(table=ORDERS, reason="new rows", seq=5, follows=4, interval=SINCE, columns=Columns())
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
        return TableResult(step, error=self.errors.get(step.seq))


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


def test_the_second_step_takes_the_rows_at_its_position_from_what_the_first_recorded() -> None:
    ties = Ties((("h", 1),), (Column("id", types.INT64),))
    written = CursorPosition(OLD.at, ties)
    document = StateDocument(LINEAGE, 2, tables={"orders": TableState(seq=4, position=written, target_id="made")})
    step = continued(SECOND, FIRST, document)
    assert step.interval.lower == written and step.table.seen.id == "made"
    planned = replace(SECOND, interval=Interval(CursorPosition(OLD.at, Ties(())), NEW))
    assert continued(planned, FIRST, document).interval == planned.interval


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
