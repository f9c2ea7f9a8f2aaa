"""What one frame reads: a SELECT inside the held snapshot, and the conditions that cut it into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowctl.connectors.postgres.columns import Transfer


def nth(at: int) -> str:
    """A column's name on its way: not every reader quotes what names may hold (Spark's JDBC source does not)."""
    return f"c{at}"


@dataclass(frozen=True)
class Cut:
    """``ranges`` are conditions on the extra ``selected`` columns, one part each; ``condition`` holds for all."""

    ranges: list[str]
    selected: tuple[str, ...] = ()
    condition: str = ""


@dataclass(frozen=True)
class Parts:
    """``rows`` stands after FROM. ``predicates`` belong after the WHERE around :meth:`select`, one for each part;
    each asserts that it runs in the snapshot."""

    transfers: tuple[Transfer, ...]
    rows: str
    cut: Cut
    assertion: str

    def select(self, outgoing: Sequence[str]) -> str:
        """The SELECT of all parts, as columns :func:`nth`; ``outgoing`` says for each transfer in which form its value
        leaves PostgreSQL."""
        selected = [f"{sql} AS {nth(at)}" for at, sql in enumerate(outgoing)]
        return f"SELECT {', '.join([*selected, *self.cut.selected])} FROM {self.rows}\n"

    @property
    def predicates(self) -> list[str]:
        return [f"({part}) AND ({self.assertion})" for part in self.cut.ranges]
