"""The table of sources and targets that :mod:`tests.connectors.test_hostile_flows` and
:mod:`tests.connectors.matrix.test_pairs` fill: what passed, how long it took, and why something was left out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.connectors.matrix.sources import ELSEWHERE

_CELL = re.compile(r"test_(?:hostile_flows|pairs)\.py::test_(\w+)\[(\w+)-(\w+)(?:-(\w+))?\]$")
_OTHERS = ("columns", "tables", "changes", "kills", "million")


@dataclass
class _Cell:
    """Checks by their names, each with how it ended: failed, passed, or the reason why it was left out."""

    ended: dict[str, str] = field(default_factory=dict)
    seconds: float = 0

    def __str__(self) -> str:
        if not self.ended:
            return "–"
        said = {"failed": str.upper, "passed": str}
        names = [said.get(how, lambda name: f"({name})")(name) for name, how in sorted(self.ended.items())]
        return f"{' '.join(names)} {self.seconds:.0f} s"


def pairs(passed: Iterable[pytest.TestReport], failed: Iterable[pytest.TestReport]) -> Iterator[str]:
    """A table for each test: one line for each source, in columns of targets: the checks that passed, with the seconds
    of all of them. Checks that failed are in capitals, those left out in parentheses, with their reasons below. Nothing
    without a cell."""
    tests: dict[str, dict[tuple[str, str], _Cell]] = defaultdict(lambda: defaultdict(_Cell))
    for report, is_failed in [*((one, False) for one in passed), *((one, True) for one in failed)]:
        found = _CELL.search(report.nodeid)
        if found is None or found[1] not in _OTHERS or (found[1] == "tables" and "hostile" in report.nodeid):
            continue
        test, source, target, mode = found.groups()
        cell = tests[test][source, target]
        cell.seconds += report.duration
        gap = getattr(report, "wasxfail", "")
        checks = [list(value) for name, value in report.user_properties if name == "check"]
        for name, how, _ in checks:
            cell.ended[name] = gap if gap and how == "failed" else how
        if mode or (is_failed and all(how != "failed" for _, how, _ in checks)):
            cell.ended[mode or test] = "failed" if is_failed else gap or "passed"
    for test, cells in tests.items():
        yield from _table(test, cells)
    for connector, reason in ELSEWHERE.items() if tests else ():
        yield f"{connector}: {reason}"


def _table(test: str, cells: dict[tuple[str, str], _Cell]) -> Iterator[str]:
    sources, targets = (sorted({cell[side] for cell in cells}) for side in (0, 1))
    rows = [[f"{test}: from \\ to", *targets]]
    rows += [[source, *(str(cells.get((source, target), _Cell())) for target in targets)] for source in sources]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
    reasons: dict[str, list[str]] = defaultdict(list)
    for (source, target), cell in sorted(cells.items()):
        for name, how in cell.ended.items():
            if how not in ("passed", "failed"):
                reasons[f"({name}): {how}"].append(f"{source} → {target}")
    for reason, where in sorted(reasons.items()):
        yield f"{reason}: {', '.join(where)}"
