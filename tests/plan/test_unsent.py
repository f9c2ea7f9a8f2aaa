"""Which changes of columns give rows values that no stream sends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.model import types
from flowctl.model.step import Advance, Load, Stopped
from flowctl.model.table_info import Column
from flowctl.spec.spec import SchemaPolicies
from tests.plan.stream_worlds import info, joined, running, stream_plan, stream_table
from tests.plan.worlds import AMOUNT, ID, ORDERS, UPDATED_AT

NEW = Column("new", types.INT64)


def planned(columns: tuple[Column, ...], policy: str = "resnapshot", **extra: object) -> object:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent=policy, dropped_column="null"))  # type: ignore[arg-type]
    there, state = joined(table, 4)
    there = replace(there, source=info("orders", columns, **extra))
    return stream_plan(running({"orders": state}), [(table, there)]).steps[0]


@pytest.mark.parametrize(
    ("columns", "step"),
    [
        (ORDERS, Advance),
        ((*ORDERS, NEW), Advance),
        ((*ORDERS, replace(NEW, nullable=False)), Load),
        ((ID, AMOUNT), Advance),
        ((ID, NEW, UPDATED_AT), Load),  # amount, under another name
        ((ID, replace(AMOUNT, type=types.Decimal(14, 2)), UPDATED_AT), Advance),
        ((ID, replace(AMOUNT, type=types.Decimal(14, 1)), UPDATED_AT), Stopped),  # other_type: fail
    ],
)
def test_changes_of_columns(columns: tuple[Column, ...], step: type) -> None:
    assert isinstance(planned(columns), step)


def test_a_new_column_with_a_default() -> None:
    filled = {"filled": {"new": "default"}}
    assert isinstance(planned((*ORDERS, NEW), **filled), Load)
    noted = planned((*ORDERS, NEW), "note", **filled)
    assert isinstance(noted, Advance) and "rows have values in new that no change has sent" in noted.notes
    stopped = planned((*ORDERS, NEW), "fail", **filled)
    assert isinstance(stopped, Stopped) and "on_schema_change.unsent: fail" in stopped.reason


@pytest.mark.parametrize(
    ("old", "new", "is_read_again"),
    [
        ("character varying(10)", "character varying(20)", False),
        ("character varying(20)", "character varying(10)", True),
        ("character varying(20)", "text", False),
        ("text", "character varying(10)", True),
    ],
)
def test_lengths_of_texts(old: str, new: str, is_read_again: bool) -> None:
    table = stream_table("orders", on_schema_change=SchemaPolicies(unsent="resnapshot"))
    before, after = (Column("note", types.STRING, native=native) for native in (old, new))
    there, state = joined(table, 4, schema=(*ORDERS, before))
    there = replace(there, source=info("orders", (*ORDERS, after)))
    step = stream_plan(running({"orders": state}), [(table, there)]).steps[0]
    assert isinstance(step, Load if is_read_again else Advance)
