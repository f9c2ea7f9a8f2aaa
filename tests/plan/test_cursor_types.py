"""A cursor column of another type than the recorded position: read on where the order is the same, else stopped."""

from __future__ import annotations

import shlex

import pytest

from flowctl.model import types
from flowctl.model.position import CursorPosition
from flowctl.model.table_info import Column
from flowctl.plan import ties
from flowctl.plan.finding import Idle, Stop, Work
from flowctl.plan.intervals import find
from flowctl.spec.spec import Cursor
from flowctl.state.changes import position_from_text
from flowctl.state.document import TableState
from tests.plan.worlds import at, high, source, table


@pytest.mark.parametrize(
    ("then", "now", "value"),
    [
        (types.INT64, types.INT32, "7"),
        (types.INT64, types.Decimal(20, 0), "7"),
        (types.Decimal(20, 0), types.INT64, "7"),
        (types.Decimal(10, 2), types.Decimal(12, 4), "7.25"),
        (types.DATE, types.TIMESTAMP_NTZ, "2026-01-01"),
    ],
)
def test_a_cursor_may_become_a_type_of_the_same_order(then, now, value):
    info, since = source((Column("updated_at", now),)), CursorPosition(at(value, then))
    made = find(table(), info, high(CursorPosition(at(value, now))), since, "cursor")
    assert isinstance(made, Idle) and made.upper == CursorPosition(at(value, now))


@pytest.mark.parametrize("mode", ["append", "merge", "scd2"])
@pytest.mark.parametrize(
    ("then", "now", "value"),
    [
        (types.INT64, types.STRING, "100"),
        (types.STRING, types.INT64, "100"),
        (types.TIMESTAMP_NTZ, types.TIMESTAMP, "2026-01-01"),
        (types.TIMESTAMP, types.TIMESTAMP_NTZ, "2026-01-01"),
        (types.TIMESTAMP_NTZ, types.DATE, "2026-01-01"),
        (types.DATE, types.STRING, "2026-01-01"),
        (types.Decimal(12, 4), types.Decimal(12, 2), "10.1256"),
        (types.INT64, types.DOUBLE, "100"),
    ],
)
def test_a_cursor_whose_type_changes_its_order_stops(mode, then, now, value):
    info, since = source((Column("updated_at", now),)), CursorPosition(at(value, then))
    spec = table(mode=mode, cursor=Cursor("updated_at"))
    made = find(spec, info, high(), since, "cursor", "flow.yaml")
    assert isinstance(made, Stop) and made.path == "cursor.column"
    assert "--full-refresh orders" in made.hint
    assert ("--append-again" in made.hint) == (mode == "append")
    command = shlex.split(made.hint.split("`")[1])
    given = position_from_text(command[command.index("--position") + 1].replace("VALUE", value), TableState())
    assert isinstance(find(spec, info, high(given, rows_at_position=1), given, "cursor"), Idle | Work)


@pytest.mark.parametrize(
    "value", ["it's $HOME", "a`b", "beginning", "full", '{"kind": "full"}', "-x", "2026-01-01 00:00", ""]
)
def test_a_position_in_a_hint_is_one_word_that_means_this_value(value):
    then = at(value, types.STRING)
    hint = ties.taking_all_for_written("orders", then, "'my flow.yaml' --var 'a=b c'")
    assert hint.count("treats all rows there as written") == 1
    words = shlex.split(hint.partition("` treats all")[0].removeprefix("`"))
    assert words[:7] == ["flowctl", "state", "set", "my flow.yaml", "--var", "a=b c", "orders"]
    assert position_from_text(words[8], TableState(position=CursorPosition(then))) == CursorPosition(then)
    back = ties.starting_over(table(mode="append"), at(f"{value}z", types.STRING), then, "flow.yaml")
    words = shlex.split(back.partition("` if rows")[0].removeprefix("`"))
    assert words[-1] == "--append-again" and words[-3] == "--position"
    assert position_from_text(words[-2], TableState(position=CursorPosition(then))) == CursorPosition(then)
