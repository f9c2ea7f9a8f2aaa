"""The times of captured transactions: each has a later one, so that a history keeps what each of them has left."""

from __future__ import annotations

from flowctl.changes.capture import RowBuilder
from flowctl.changes.segment import Op

SECOND = 1_000_000


def times(builder: RowBuilder) -> list[int]:
    return [int(at) for at in builder.take()["event_at"].cast("int64").to_pylist()]


def add(builder: RowBuilder, *ats: int) -> None:
    for lsn, at in enumerate(ats):
        builder.begin(lsn, at, lsn)
        builder.add(1, Op.INSERT, b"")


def test_a_clock_that_stands_or_goes_back_does_not_stop_the_order() -> None:
    builder = RowBuilder()
    add(builder, 5 * SECOND, 5 * SECOND, 3 * SECOND, 5 * SECOND + 1, 6 * SECOND)
    assert times(builder) == [5 * SECOND, 5 * SECOND + 1, 5 * SECOND + 2, 5 * SECOND + 3, 6 * SECOND]


def test_what_has_landed_before_is_earlier() -> None:
    builder = RowBuilder()
    builder.event_at = 7 * SECOND
    add(builder, 7 * SECOND, 6 * SECOND)
    assert times(builder) == [7 * SECOND + 1, 7 * SECOND + 2]


def test_the_changes_of_one_transaction_have_one_time() -> None:
    builder = RowBuilder()
    add(builder, SECOND)
    builder.add(1, Op.UPDATE, b"")
    assert times(builder) == [SECOND, SECOND]
    builder.add(1, Op.UPDATE, b"")  # goes on behind what was taken
    assert times(builder) == [SECOND]
