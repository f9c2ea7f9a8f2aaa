"""A topic's interval in slices, each for a commit of its own: a pure function of the interval and of the most messages
that one commit takes, so that a run commits exactly what its plan has shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition, Position


def count_slices(interval: Interval, rows: int | None) -> int:
    """How many slices :func:`slices` returns."""
    return 1 if rows is None else sum(_count(one, rows) for one in _successive(interval))


def slices(interval: Interval, rows: int | None) -> Iterator[Interval]:
    """The interval in slices of equal size, in order, each with the same share of every partition: at most ``rows``
    messages, or one of each partition if there are more of these. Partitions that the lower bound lacks come after the
    others. None, and what is no topic: the interval itself. Dead letters are read again with the first slice."""
    bounds: list[Position | None] = [interval.lower]
    for one in [interval] if rows is None else _successive(interval):
        count = 1 if rows is None else _count(one, rows)
        bounds += [*(_end(one, at, count) for at in range(1, count)), one.upper]
    for at, (lower, upper) in enumerate(pairwise(bounds)):
        assert upper is not None, "only the beginning of an interval may be unknown"
        yield replace(interval, lower=lower, upper=upper, letters=interval.letters if at == 0 else None)


def _successive(interval: Interval) -> list[Interval]:
    """The interval, or two if the lower bound lacks partitions: the messages of the other partitions first."""
    lower, upper = interval.lower, interval.upper
    if not isinstance(lower, OffsetsPosition) or not isinstance(upper, OffsetsPosition):
        return [interval]
    known = OffsetsPosition(tuple((one, end) for one, end in upper.offsets if lower.of(one) is not None))
    if not known.messages_since(lower) or not upper.messages_since(known):
        return [interval]
    return [replace(interval, upper=known), replace(interval, lower=known)]


def _count(interval: Interval, rows: int) -> int:
    messages = [count for _, _, count in _partitions(interval) if count]
    if not messages:
        return 1
    wanted = -(-sum(messages) // rows)
    if sum(-(-count // wanted) for count in messages) > rows:  # a slice's share of each partition is rounded
        wanted = -(-sum(messages) // max(1, rows - len(messages) + 1))
    return min(wanted, max(messages))


def _end(interval: Interval, at: int, count: int) -> OffsetsPosition:
    parts = _partitions(interval)
    return OffsetsPosition(tuple((one, first + messages * at // count) for one, first, messages in parts))


def _partitions(interval: Interval) -> list[tuple[int, int, int]]:
    """Each partition with its first offset and the number of its messages; none of what is no topic."""
    lower, upper = interval.lower, interval.upper
    if not isinstance(lower, OffsetsPosition) or not isinstance(upper, OffsetsPosition):
        return []
    return [(one, first := lower.of(one) or 0, max(0, end - first)) for one, end in upper.offsets]
