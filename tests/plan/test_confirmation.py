"""What a plan does with a write that its target does not confirm."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flowctl.connectors.target import WriteShape
from flowctl.errors import FlowctlError, StoppedByPolicy, TransientError
from flowctl.model.step import Load, Recover, Step, Stopped
from flowctl.model.table_info import ObjectName
from flowctl.observe.world import Observed
from flowctl.plan.confirmation import confirm_writes
from flowctl.state.document import TableState
from tests.plan.test_recovery import APPENDED, begun
from tests.plan.worlds import NEW, LakeDdl, high, observed, plan, recorded, source, unchanged_target, world


class Lake(LakeDdl):
    def __init__(self, answer: str | FlowctlError) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[tuple[str, Sequence[str]]] = []

    def confirm_write(self, object: ObjectName, write: WriteShape, written: Sequence[str]) -> str:
        self.asked.append((str(object), written))
        if isinstance(self.answer, FlowctlError):
            raise self.answer
        return self.answer


def confirmed(lake: Lake, seen: Observed, state: TableState | None = None) -> Sequence[Step]:
    there = world({APPENDED.id: seen}, {APPENDED.id: state} if state else None)
    return confirm_writes(plan(there, APPENDED), {APPENDED.id: APPENDED}, there, lambda name: lake).steps


def test_what_a_write_changes_elsewhere_is_shown() -> None:
    lake = Lake("registers version 1 of orders-value")
    [step] = confirmed(lake, Observed(source(), watermark=high(NEW)))
    assert isinstance(step, Load) and step.how[-1] == "registers version 1 of orders-value"
    assert lake.asked == [("orders", ["id", "amount", "updated_at"])]


@pytest.mark.parametrize(
    ("error", "by"),
    [(StoppedByPolicy("no", hint="Ask"), "policy"), (TransientError("nobody answers", hint="Try"), "error")],
)
def test_a_refused_write_stops_its_table(error: FlowctlError, by: str) -> None:
    [step] = confirmed(Lake(error), Observed(source(), watermark=high(NEW)))
    assert isinstance(step, Stopped)
    assert (step.reason, step.hint, step.by) == (error.message, error.hint, by)


def test_a_table_whose_begun_number_is_refused_reads_nothing_after_it() -> None:
    seen = observed(high(NEW), **unchanged_target())
    assert [type(step) for step in confirmed(Lake(""), seen, begun(APPENDED))] == [Recover, Load]
    assert [type(step) for step in confirmed(Lake(StoppedByPolicy("no")), seen, begun(APPENDED))] == [Stopped]


def test_a_table_with_nothing_to_write_is_not_asked_about() -> None:
    lake = Lake(StoppedByPolicy("no"))
    confirmed(lake, observed(high(NEW), **unchanged_target(NEW)), recorded(APPENDED, NEW))
    assert lake.asked == []
