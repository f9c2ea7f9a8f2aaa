"""How big a run is: by estimates, by what they can be at most, and by what a merge must look through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flowctl.engine.cost import INTERPRETED_LOAD, Size, is_interpreted, size_of_run
from flowctl.model import types
from flowctl.model.table_info import Column, RowEstimate
from flowctl.run.engine import load_of_run, rows_in_play
from tests.plan.worlds import cursor, high, observed, source, step, table, target


def in_play(mode: str, batch: int | None, of_source: int | None, of_target: int | None) -> int | None:
    seen = observed(high(cursor("2026-11-20T06:15:33Z")), source(), None)
    keys: dict[str, Any] = {"mode": mode}
    planned = replace(step(table(**keys), seen), rows=RowEstimate(batch))
    assert seen.source is not None
    there = replace(target(), rows=RowEstimate(of_target)) if of_target is not None else None
    return rows_in_play(planned, replace(seen, source=replace(seen.source, rows=RowEstimate(of_source)), target=there))


@pytest.mark.parametrize(
    ("mode", "batch", "of_source", "of_target", "rows"),
    [
        ("append", 10, 5_000, 9_000, 10),
        ("append", None, 5_000, 9_000, 5_000),
        ("merge", None, 5_000, 9_000, 5_180),
        ("merge", 10, 5_000, 9_000, 190),
        ("scd2", 10, 5_000, 9_000, 910),
        ("merge", 10, 5_000, None, 10),
        ("append", None, None, None, None),
    ],
)
def test_rows_in_play(
    mode: str, batch: int | None, of_source: int | None, of_target: int | None, rows: int | None
) -> None:
    assert in_play(mode, batch, of_source, of_target) == rows


@pytest.mark.parametrize(
    ("mode", "rows", "bytes", "columns", "load"),
    [
        ("append", 60_000, None, 3, 60_000),
        ("append", 60_000, None, 500, 1_875_000),  # rows of many columns are more work
        ("append", None, 250_000_000, 3, 2_500_000),  # files tell only their bytes
        ("merge", None, 250_000_000, 3, 2_500_000),
        ("append", None, None, 3, None),
    ],
)
def test_the_load_of_a_table(mode: str, rows: int | None, bytes: int | None, columns: int, load: int | None) -> None:
    seen = observed(high(cursor("2026-11-20T06:15:33Z")), source(), None)
    planned = replace(step(table(mode=mode), seen), rows=RowEstimate(rows, bytes=bytes))
    assert seen.source is not None
    wide = replace(seen.source, columns=tuple(Column(f"c{at}", types.INT64) for at in range(columns)))
    assert load_of_run([planned], {planned.id: replace(seen, source=wide)}) == {planned.id: load}


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        ([10, 20], "small"),
        ([10, None], "medium"),
        ([99_999, 1], "medium"),
        ([2_000_000, None], "large"),
        ([], "small"),
    ],
)
def test_the_size_of_a_run(rows: Sequence[int | None], size: Size) -> None:
    assert size_of_run(rows) == size


def test_small_tables_are_interpreted_and_unknown_ones_are_not() -> None:
    assert is_interpreted(INTERPRETED_LOAD - 1)
    assert not is_interpreted(INTERPRETED_LOAD)
    assert not is_interpreted(None)
