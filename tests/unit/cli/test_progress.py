"""Progress bars and the lines that come while they are shown."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from flowctl.cli import output, progress
from flowctl.run.events import TableStarted
from tests.unit.plan.worlds import cursor, head, observed, source, step, table


class Terminal(io.TextIOWrapper):
    """With bytes below it, as real streams have: click writes to those."""

    def __init__(self) -> None:
        self.written = io.BytesIO()
        super().__init__(self.written, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True


def test_a_line_goes_above_the_bars_and_not_into_them(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    planned = step(table(), observed(head(cursor("2026-11-20T06:15:33Z")), source(), None))
    with progress.bars(Console(stderr=True, force_terminal=True, width=80), output.write_line, False) as listener:
        listener(TableStarted(planned))
        output.write_line("above the bars")
    shown = terminal.written.getvalue().decode()
    assert "orders" in shown
    before = shown.partition("above the bars")[0]
    assert before.endswith("\x1b[2K"), before[-40:]
