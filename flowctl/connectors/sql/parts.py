"""A read cut into parts that executors take side by side: conditions that together are true exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flowctl.engine.cost import range_count
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import ReadHints

#: Types whose values can be cut into ranges.
INTEGERS = (types.INT16, types.INT32, types.INT64)


@dataclass(frozen=True)
class Transfer:
    """``value`` is the database's expression that has the type of ``column``, which is as asked for; ``native`` is the
    source's type as people know it. In which form the value travels is the reader's business."""

    column: Column
    native: str
    value: str


@dataclass(frozen=True)
class Cut:
    """``ranges`` are conditions on the extra ``selected`` columns, one part each; ``condition`` holds for all."""

    ranges: Sequence[str] = ("true",)
    selected: tuple[str, ...] = ()
    condition: str = ""


@dataclass(frozen=True)
class Parts:
    """``rows`` stands after FROM. ``predicates`` belong after the WHERE around :meth:`select`, one for each part;
    each makes the ``assertion`` that it sees the moment that all of them read."""

    transfers: tuple[Transfer, ...]
    rows: str
    cut: Cut
    assertion: str

    def select(self, outgoing: Sequence[str]) -> str:
        """The SELECT of all parts, as columns :func:`nth`; ``outgoing`` says for each transfer in which form its value
        leaves the database."""
        selected = [f"{sql} AS {nth(at)}" for at, sql in enumerate(outgoing)]
        return f"SELECT {', '.join([*selected, *self.cut.selected])} FROM {self.rows}\n"

    @property
    def predicates(self) -> list[str]:
        return [f"({part}) AND ({self.assertion})" for part in self.cut.ranges]


def nth(at: int) -> str:
    """A column's name on its way: not every reader quotes what names may hold (Spark's JDBC source does not)."""
    return f"c{at}"


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


def explain_splitting(info: TableInfo, hints: ReadHints, size: int, *, has_pages: bool, is_increment: bool) -> str:
    """:func:`splitting` for people, from the size that was described: the read asks for it anew, in its snapshot."""
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


def number_ranges(column: str, low: int, high: int, splits: int) -> list[str]:
    """Even ranges of an integer column's values, both ends open, nulls with the first."""
    cuts = sorted({low + (high - low + 1) * at // splits for at in range(1, splits)} - {low})
    ranges = ranges_between(column, [str(cut) for cut in cuts])
    return [f"{ranges[0]} OR {column} IS NULL" if cuts else ranges[0], *ranges[1:]]


def ranges_between(column: str, cuts: Sequence[str]) -> list[str]:
    if not cuts:
        return ["true"]
    inner = [f"{column} >= {low} AND {column} < {high}" for low, high in itertools.pairwise(cuts)]
    return [f"{column} < {cuts[0]}", *inner, f"{column} >= {cuts[-1]}"]
