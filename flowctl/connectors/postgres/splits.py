"""Cutting one read into ranges that executors take side by side: conditions that together are true exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flowctl.engine.cost import range_count
from flowctl.model import types
from flowctl.model.table_info import TableInfo
from flowctl.spec.spec import ReadHints

#: `pg_class.relkind` of what lies in pages: tables, partitioned tables, materialized views.
PAGED_KINDS = ("r", "p", "m")
#: Types whose values can be cut into ranges.
INTEGERS = (types.INT16, types.INT32, types.INT64)


@dataclass(frozen=True)
class Splitting:
    """Into how many ranges of what a read is cut: the pages of a table, or the values of ``column``. A table with fewer
    pages or values than ``count`` gives fewer."""

    by: Literal["pages", "values", "nothing"]
    count: int = 1
    column: str = ""


def splitting(info: TableInfo, hints: ReadHints, size: int, *, has_pages: bool) -> Splitting:
    """As the hints say; by itself by pages, where there are none by an integer key. ``size`` is in bytes."""
    count = hints.splits or range_count(size)
    if hints.split_by != "auto":
        return Splitting("values", count, hints.split_by)
    if has_pages:
        return Splitting("pages", count)
    key = [column for column in info.columns if column.name in info.primary_key]
    if len(key) == 1 and key[0].type in INTEGERS:
        return Splitting("values", count, key[0].name)
    return Splitting("nothing")


def explained(info: TableInfo, hints: ReadHints, *, is_increment: bool) -> str:
    """:func:`splitting` for people, from the size that was described: the read asks for it anew, in its snapshot."""
    size = info.extra.get("heap") or info.rows.bytes or 0
    has_pages = info.extra.get("kind") in PAGED_KINDS and info.extra.get("whole", True)
    chosen = splitting(info, hints, size, has_pages=has_pages)
    if chosen.by == "nothing":
        return "read in one part (read.split_by and read.splits would cut it)"
    if chosen.count == 1:
        return "read in one part (read.splits would cut it)" if chosen.by == "values" and not hints.splits else ""
    by = f", by {chosen.column}" if chosen.by == "values" else ""
    if hints.splits:
        return f"read in up to {chosen.count} parts of one snapshot{by} (read.splits)"
    how = "read through an index or" if is_increment and chosen.by == "pages" else "read"
    return f"{how} in ≈ {chosen.count} parts of one snapshot{by} ({size / 1e6:,.0f} MB)"


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
