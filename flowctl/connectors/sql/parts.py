"""Splits a read into parts for parallel executors: of their conditions, exactly one is true for each row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flowctl.engine.cost import range_count
from flowctl.model import types
from flowctl.model.table_info import Column, TableInfo
from flowctl.spec.spec import ReadHints

#: Types whose values can be split into ranges.
INTEGERS = (types.INT16, types.INT32, types.INT64)


@dataclass(frozen=True)
class Transfer:
    """``value`` is the database's expression for ``column``, with the requested type; ``native`` is the source's type
    as people know it. The reader chooses the form in which the value travels."""

    column: Column
    native: str
    value: str


@dataclass(frozen=True)
class Cut:
    """``ranges`` are conditions on the extra ``selected`` columns, one per part; ``condition`` applies to all parts."""

    ranges: Sequence[str] = ("true",)
    selected: tuple[str, ...] = ()
    condition: str = ""


@dataclass(frozen=True)
class Parts:
    """``rows`` is the text after FROM. ``predicates`` belong into a WHERE around :meth:`select`, one for each part;
    each checks the ``assertion`` that its part sees the common snapshot."""

    transfers: tuple[Transfer, ...]
    rows: str
    cut: Cut
    assertion: str

    def select(self, outgoing: Sequence[str]) -> str:
        """The SELECT of all parts, with columns named by :func:`nth`; ``outgoing`` holds, for each transfer, the
        expression in which its value leaves the database."""
        selected = [f"{sql} AS {nth(at)}" for at, sql in enumerate(outgoing)]
        return f"SELECT {', '.join([*selected, *self.cut.selected])} FROM {self.rows}\n"

    @property
    def predicates(self) -> list[str]:
        return [f"({part}) AND ({self.assertion})" for part in self.cut.ranges]


def nth(at: int) -> str:
    """A column's name in transit: not every reader quotes names correctly (Spark's JDBC source does not)."""
    return f"c{at}"


@dataclass(frozen=True)
class Splitting:
    """How a read is split: into ``count`` ranges of a table's pages or of the values of ``column``; fewer if the table
    has fewer pages or values."""

    by: Literal["pages", "values", "nothing"]
    count: int = 1
    column: str = ""


def splitting(info: TableInfo, hints: ReadHints, size: int, *, has_pages: bool) -> Splitting:
    """Follows the hints; by default splits by pages, or by an integer key if there are no pages. ``size`` is in
    bytes."""
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
    """:func:`splitting` for people, from the described size; the read queries the size again, in its snapshot."""
    chosen = splitting(info, hints, size, has_pages=has_pages)
    if chosen.by == "nothing":
        return "read in one part (read.split_by and read.splits would split it)"
    if chosen.count == 1:
        return "read in one part (read.splits would split it)" if chosen.by == "values" and not hints.splits else ""
    by = f", by {chosen.column}" if chosen.by == "values" else ""
    if hints.splits:
        return f"read in up to {chosen.count} parts of one snapshot{by} (read.splits)"
    how = "read through an index or" if is_increment and chosen.by == "pages" else "read"
    return f"{how} in ≈ {chosen.count} parts of one snapshot{by} ({size / 1e6:,.0f} MB)"


def number_ranges(column: str, low: int, high: int, splits: int) -> list[str]:
    """Even ranges of an integer column's values, open at both ends; the first includes nulls."""
    cuts = sorted({low + (high - low + 1) * at // splits for at in range(1, splits)} - {low})
    ranges = ranges_between(column, [str(cut) for cut in cuts])
    return [f"{ranges[0]} OR {column} IS NULL" if cuts else ranges[0], *ranges[1:]]


def ranges_between(column: str, cuts: Sequence[str]) -> list[str]:
    if not cuts:
        return ["true"]
    inner = [f"{column} >= {low} AND {column} < {high}" for low, high in itertools.pairwise(cuts)]
    return [f"{column} < {cuts[0]}", *inner, f"{column} >= {cuts[-1]}"]
