"""The bounds of a range that is read again: the first value that is read, and the last."""

from __future__ import annotations

import pytest

from flowctl.model import types
from flowctl.model.backfill import Backfill
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue, from_text
from flowctl.observe.ranges import range_of


@pytest.mark.parametrize(
    ("kind", "start", "stop", "first", "last"),
    [
        (types.DATE, "2026-10-01", "2026-11-01", "2026-10-01", "2026-10-31"),
        (types.TIMESTAMP_NTZ, "2026-10-01", "2026-11-01", "2026-10-01T00:00:00", "2026-10-31T23:59:59.999999"),
        (types.TIMESTAMP, "2026-10-01", "2026-11-01", "2026-10-01T00:00:00Z", "2026-10-31T23:59:59.999999Z"),
        (types.TIMESTAMP, "2026-10-01T00:00:00+02:00", None, "2026-09-30T22:00:00Z", "2026-11-20T00:00:00Z"),
        (
            types.TIMESTAMP,
            "2026-10-01T00:00:00.123456000Z",
            None,
            "2026-10-01T00:00:00.123456Z",
            "2026-11-20T00:00:00Z",
        ),
        (types.INT32, "10", "20", "10", "19"),
        (types.INT64, "-5", None, "-5", "1000"),
        (types.Decimal(9, 2), "1.5", "2", "1.5", "1.99"),
        (types.Decimal(9, 2), "1", "2.005", "1", "2.00"),
        (types.DOUBLE, "1", "2", "1.0", "1.9999999999999998"),
        (types.STRING, "a", None, "a", "m"),
    ],
)
def test_bounds(kind: DataType, start: str, stop: str | None, first: str, last: str) -> None:
    found = range_of(Backfill(start, stop), kind, position(kind), None)
    assert (found.first, found.last) == (from_text(kind, first), from_text(kind, last))
    assert not found.is_empty


def position(kind: DataType) -> TypedValue:
    texts = {types.DATE: "2026-11-20", types.TIMESTAMP_NTZ: "2026-11-20", types.TIMESTAMP: "2026-11-20"}
    return from_text(kind, texts.get(kind, "m" if kind == types.STRING else "1000"))


@pytest.mark.parametrize(
    ("kind", "start", "stop"),
    [
        (types.DATE, "2026-10-01T12:00", None),
        (types.DATE, "10", None),
        (types.INT64, "2026-10-01", None),
        (types.TIMESTAMP_NTZ, "2026-10-01T00:00:00Z", None),
        (types.TIMESTAMP_NTZ, None, "2026-10-01T00:00:00+01:00"),
        (types.TIMESTAMP_NTZ, "2026-10-01T00:00:00.1234567", None),
        (types.TIMESTAMP, None, "2026-10-01T00:00:00,0000009Z"),
        (types.STRING, None, "b"),
        (types.Decimal(9, 2), "many", None),
        (types.BOOL, "true", None),
    ],
)
def test_what_is_no_bound(kind: DataType, start: str | None, stop: str | None) -> None:
    at = from_text(types.INT64, "1") if kind == types.BOOL else position(kind)
    with pytest.raises((ValueError, ArithmeticError)):
        range_of(Backfill(start, stop), kind, at, None)


def test_without_a_start_the_range_begins_where_the_first_run_did() -> None:
    at = from_text(types.INT64, "1000")
    assert range_of(Backfill(None, "20"), types.INT64, at, None).first is None
    assert range_of(Backfill(None, "20"), types.INT64, at, "5").first == from_text(types.INT64, "5")


def test_rows_above_the_position_are_left_to_the_next_run() -> None:
    at = from_text(types.INT64, "1000")
    cut = range_of(Backfill("10", "2000"), types.INT64, at, None)
    assert (cut.last, cut.is_cut) == (at, True)
    exact = range_of(Backfill("10", "1001"), types.INT64, at, None)
    assert (exact.last, exact.is_cut) == (at, False)
    assert range_of(Backfill("1001", None), types.INT64, at, None).is_empty
    assert range_of(Backfill("20", "20"), types.INT64, at, None).is_empty
