"""Quarantine in a stream that does not send all values: the target has to have them."""

from __future__ import annotations

from typing import Any

import pytest

from flowctl.expect.between import Between
from flowctl.model.step import Stopped
from flowctl.spec.spec import ColumnRules
from tests.plan.stream_worlds import info, new_stream, seen, step_of, stream_plan, stream_table
from tests.plan.worlds import MARK

EXPECT = (Between(column="id", low=0, high=9, on_fail="quarantine", mark=MARK),)
LONG = {"long_columns": ["id", "note"]}


def reason(extra: dict[str, Any], **keys: Any) -> str:
    """Why the table stops; empty if it does not."""
    table = stream_table("orders", **{"expect": EXPECT, **keys})
    step = step_of(stream_plan(new_stream(), [(table, seen(table, info("orders", **extra)))]), "orders")
    return step.reason if isinstance(step, Stopped) else ""


@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_rows_in_quarantine_have_no_values_for_later_updates(mode: str) -> None:
    assert "an update that leaves note unchanged does not send them" in reason(LONG, mode=mode)


@pytest.mark.parametrize(
    ("extra", "keys"),
    [
        ({}, {}),
        ({"long_columns": ["id"]}, {}),
        ({**LONG, "replica_identity": "f"}, {}),
        (LONG, {"mode": "append"}),
        (LONG, {"expect": (Between(column="id", low=0, high=9, mark=MARK),)}),
        (LONG, {"columns": ColumnRules(include=("id", "amount"))}),
    ],
)
def test_quarantine_goes_on_elsewhere(extra: dict[str, Any], keys: dict[str, Any]) -> None:
    assert reason(extra, **keys) == ""
