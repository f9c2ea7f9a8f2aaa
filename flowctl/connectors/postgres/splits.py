"""Cutting one read into ranges that executors take side by side: conditions that together are true exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

#: A range is worth a task from the first size on, and no range should be much longer than the second.
_SMALL_BYTES, _LARGE_BYTES = 8 << 20, 128 << 20
_FEW = 8


def default_splits(size: int) -> int:
    """How many ranges for ``size`` bytes: up to eight as soon as each has some megabytes, then one per 128 MiB."""
    return max(1, min(_FEW, size // _SMALL_BYTES), -(-size // _LARGE_BYTES))


def page_ranges(pages: Sequence[int], splits: int) -> list[str]:
    """Ranges of ``_flowctl_ctid`` with about as many pages each. ``pages`` has one number per partition: the same
    range is read from each of them, so the cuts even out the sum. The last range is open: tables grow."""
    cuts = [f"'({cut},0)'::tid" for cut in _even_cuts(pages, splits)]
    return _ranges("_flowctl_ctid", cuts)


def number_ranges(column: str, low: int, high: int, splits: int) -> list[str]:
    """Even ranges of an integer column's values, both ends open, nulls with the first."""
    cuts = sorted({low + (high - low + 1) * at // splits for at in range(1, splits)} - {low})
    ranges = _ranges(column, [str(cut) for cut in cuts])
    return [f"{ranges[0]} OR {column} IS NULL" if cuts else ranges[0], *ranges[1:]]


def _even_cuts(pages: Sequence[int], splits: int) -> list[int]:
    """Page numbers below which 1/n, 2/n, … of all pages lie."""
    total = sum(pages)
    cuts: set[int] = set()
    for part in range(1, splits):
        low, high = 0, max(pages, default=0)
        while low < high:
            middle = (low + high) // 2
            if sum(min(middle, size) for size in pages) * splits < total * part:
                low = middle + 1
            else:
                high = middle
        cuts.add(low)
    return sorted(cuts - {0})


def _ranges(column: str, cuts: Sequence[str]) -> list[str]:
    if not cuts:
        return ["true"]
    inner = [f"{column} >= {low} AND {column} < {high}" for low, high in itertools.pairwise(cuts)]
    return [f"{column} < {cuts[0]}", *inner, f"{column} >= {cuts[-1]}"]
