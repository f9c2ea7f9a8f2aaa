"""The table of sources and targets that :mod:`tests.connectors.test_hostile_flows` fills: what passed, and how long it
took."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

_CELL = re.compile(r"test_hostile_flows\.py::test_columns\[(\w+)-(\w+)-(\w+)\]$")


def pairs(passed: Iterable[pytest.TestReport], failed: Iterable[pytest.TestReport]) -> Iterator[str]:
    """One line for each source, in columns of targets: the modes that passed, with the seconds of all of them. Modes
    that failed are in capitals. Nothing without a cell."""
    cells: dict[tuple[str, str], list[str]] = defaultdict(list)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for report, is_failed in [*((one, False) for one in passed), *((one, True) for one in failed)]:
        if (found := _CELL.search(report.nodeid)) is not None:
            source, target, mode = found.groups()
            cells[source, target].append(mode.upper() if is_failed else mode)
            seconds[source, target] += report.duration
    sources, targets = (sorted({cell[side] for cell in cells}) for side in (0, 1))
    rows = [["from \\ to", *targets]]
    for source in sources:
        rows.append([source, *(_cell(cells[source, target], seconds[source, target]) for target in targets)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if cells else []
    for row in rows if cells else ():
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _cell(modes: list[str], seconds: float) -> str:
    return f"{' '.join(sorted(modes))} {seconds:.0f} s" if modes else "–"
