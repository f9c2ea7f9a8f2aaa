"""How a run's events read."""

from __future__ import annotations

import pytest

from flowctl.model.commit import RowCounts
from flowctl.run.events import describe_counts


@pytest.mark.parametrize(
    ("counts", "seconds", "text"),
    [
        (RowCounts(read=336_776, inserted=336_776), 15.0, "336,776 inserted (22,452 rows/s)"),
        (RowCounts(read=3_322, inserted=9, updated=9), 27.1, "3,322 read, 9 inserted, 9 updated"),
        (RowCounts(read=16, inserted=16), 9.0, "16 inserted"),
        (RowCounts(read=3_322), 9.0, "3,322 read, nothing to change"),
        (RowCounts(read=0, deleted=2), 9.0, "2 deleted"),
        (RowCounts(read=0), 9.0, "no rows"),
        (RowCounts(), 9.0, "done"),
    ],
)
def test_counts_say_what_happened_and_how_fast_when_that_means_something(
    counts: RowCounts, seconds: float, text: str
) -> None:
    assert describe_counts(counts, seconds) == text
