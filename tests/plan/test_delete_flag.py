"""A flag whose column cannot have the values that mean deleted stops the table."""

from __future__ import annotations

from typing import Any

import pytest

from flowctl.diagnostics import Mark
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.plan.document import action_of
from flowctl.spec.spec import ColumnRules, DetectFlag
from tests.plan.worlds import NEW, ORDERS, high, observed, source, step, table


def planned(kind: types.DataType, *values: Any, **given: Any) -> Any:
    deletes = DetectFlag("gone", values) if values else DetectFlag("gone")
    seen = observed(high(NEW), source=source((*ORDERS, Column("gone", kind))))
    return step(table(mode="merge", key=("id",), deletes=deletes, **given), seen)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (types.BOOL, ()),
        (types.BOOL, ("Y",)),
        (types.BOOL, (1,)),
        (types.INT16, ()),
        (types.INT32, ("1",)),
        (types.Decimal(1, 0), (1,)),
        (types.STRING, ("Y", True)),
        (types.BINARY, ("Y",)),
        (types.DATE, ("9999-12-31",)),
        (types.TIMESTAMP, (True, "2024-01-01 00:00:00")),
    ],
)
def test_a_flag_of_possible_values(kind: types.DataType, values: tuple[Any, ...]) -> None:
    made = planned(kind, *values)
    assert (action_of(made), made.notes) == ("create", ())


@pytest.mark.parametrize(
    ("kind", "values", "hint"),
    [
        (types.TIMESTAMP, (), "gone IS NOT NULL AS is_deleted"),
        (types.TIMESTAMP_NTZ, (True, 1), "gone IS NOT NULL AS is_deleted"),
        (types.DATE, ("Y",), "gone IS NOT NULL AS is_deleted"),
        (types.BINARY, (), "gone IS NOT NULL AS is_deleted"),
        (types.Array(types.STRING), ("Y",), "gone IS NOT NULL AS is_deleted"),
        (types.INT32, ("Y",), "deletes.values"),
        (types.BOOL, ("deleted",), "deletes.values"),
    ],
)
def test_a_flag_of_impossible_values_stops(kind: types.DataType, values: tuple[Any, ...], hint: str) -> None:
    made = planned(kind, *values)
    assert action_of(made) == "stop" and made.reason.startswith('deletes.column: "gone" is ')
    assert hint in made.hint


def test_a_flag_that_is_excluded_is_looked_at_too() -> None:
    assert action_of(planned(types.TIMESTAMP, columns=ColumnRules(exclude=("gone",)))) == "stop"


def test_only_a_text_column_without_values_is_noted() -> None:
    (note,) = planned(types.STRING).notes
    assert note.startswith('deletes.column: "gone" is text, and only the text "true" means deleted')
    assert planned(types.STRING, marks={"deletes.values": Mark("flow.yaml", 1, 1)}).notes == ()
