"""A topic's interval in slices: nothing is lost or read twice, whatever the partitions are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowctl.model.interval import Interval
from flowctl.model.position import NoPosition, OffsetsPosition
from flowctl.model.slices import count_slices, slices


def at(*offsets: int) -> OffsetsPosition:
    return OffsetsPosition(tuple(enumerate(offsets)))


partitions = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 300)), min_size=1, max_size=40)


@given(partitions, st.integers(1, 2_000))
def test_slices_cover_the_interval_in_order_and_none_is_too_large(parts: list[tuple[int, int]], rows: int) -> None:
    lower, upper = at(*(first for first, _ in parts)), at(*(first + count for first, count in parts))
    made = list(slices(Interval(lower, upper), rows))
    assert len(made) == count_slices(Interval(lower, upper), rows)
    assert (made[0].lower, made[-1].upper) == (lower, upper)
    assert all(before.upper == after.lower for before, after in pairwise(made))
    with_messages = sum(1 for _, count in parts if count)
    for one in made:
        assert isinstance(one.lower, OffsetsPosition)
        assert isinstance(one.upper, OffsetsPosition)
        bounds = zip(one.lower.offsets, one.upper.offsets, strict=True)
        assert all(start[1] <= end[1] for start, end in bounds)
        messages = one.upper.messages_since(one.lower)
        assert messages <= max(rows, with_messages)
        assert messages > 0 or len(made) == 1


def test_each_slice_has_the_same_share_of_every_partition() -> None:
    made = list(slices(Interval(at(100, 0), at(400, 600)), 300))
    assert [one.upper for one in made] == [at(200, 200), at(300, 400), at(400, 600)]


@pytest.mark.parametrize(
    ("interval", "rows", "count"),
    [
        (Interval(at(0), at(900)), 300, 3),
        (Interval(at(0), at(901)), 300, 4),
        (Interval(at(0), at(900)), 900, 1),
        (Interval(at(0), at(900)), None, 1),
        (Interval(at(5), at(5)), 1, 1),
        (Interval(at(0, 0, 0), at(5, 5, 2)), 1, 5),  # there are more partitions
        (Interval(None, NoPosition()), 1, 1),
    ],
)
def test_how_many_commits_an_interval_takes(interval: Interval, rows: int | None, count: int) -> None:
    assert count_slices(interval, rows) == count == len(list(slices(interval, rows)))


def test_dead_letters_are_read_again_with_the_first_slice() -> None:
    made = list(slices(Interval(at(0), at(30), letters=3), 10))
    assert [one.letters for one in made] == [3, None, None]


def test_added_partitions_are_read_after_the_others() -> None:
    """The first bound lacks them. A run that ends in between continues in the same order."""
    made = list(slices(Interval(at(100), at(400, 200), letters=3), 200))
    assert [one.upper for one in made] == [at(250), at(400), at(400, 200)]
    assert [one.letters for one in made] == [3, None, None]
    assert count_slices(Interval(at(250), at(500, 200)), 200) == 3
    for lower, upper in ((at(100), at(100, 200)), (at(100), at(200, 0)), (at(100, 0), at(200, 100))):
        assert [one.upper for one in slices(Interval(lower, upper), 200)] == [upper]
    assert list(slices(Interval(at(100), at(400, 200)), None)) == [Interval(at(100), at(400, 200))]
