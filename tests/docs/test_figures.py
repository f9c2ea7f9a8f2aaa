"""The README's benchmark figures are those of the results that `python -m bench run` has written."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_figure_is_one_of_the_results() -> None:
    (table,) = re.findall(r"^\| seconds \|.*\n\|-.*\n((?:\|.*\n)+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    cells = [cell for row in table.splitlines() for cell in row.split("|")[2:]]
    figures = [figure for cell in cells for figure in re.findall(r"\d+\.\d+", cell)]
    measured = set(re.findall(r"\| (\d+\.\d+) \(", (ROOT / "bench" / "RESULTS.md").read_text()))
    assert len(figures) > 20
    assert set(figures) <= measured
