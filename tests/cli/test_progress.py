"""Progress bars and the lines that come while they are shown."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from flowctl.cli import output, progress
from flowctl.errors import TableError
from flowctl.model.commit import RowCounts
from flowctl.run.events import (
    Event,
    PhaseEntered,
    RowsRead,
    RunStarted,
    TableCommitted,
    TableFailed,
    TableSkipped,
    TableStarted,
)
from tests.plan.worlds import cursor, high, observed, source, step, table


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
    planned = step(table(), observed(high(cursor("2026-11-20T06:15:33Z")), source(), None))
    with progress.bars(Console(stderr=True, force_terminal=True, width=80), output.write_line) as listener:
        listener(TableStarted(planned.table))
        output.write_line("above the bars")
    shown = terminal.written.getvalue().decode()
    assert "orders" in shown
    before = shown.partition("above the bars")[0]
    assert before.endswith("\x1b[2K"), before[-40:]


def shown_by(monkeypatch: pytest.MonkeyPatch, *happened: Event) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    console = Console(stderr=True, force_terminal=True, width=120)
    with progress.bars(console, output.write_line) as listener:
        for event in happened:
            listener(event)
    return terminal.written.getvalue().decode()


def test_bars_tell_the_run_tables_done_rows_and_of_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        replace(step(table(), observed(high(cursor("2026-11-20T06:15:33Z")), source(), None)).table, id=id)
        for id in ("orders", "[red]odd[/red]")
    )
    error = TableError("no such [file]", hint="Check it")
    shown = shown_by(
        monkeypatch,
        RunStarted("20261120T061533Z-1f0c9a", 2),
        TableStarted(first, 15_204),
        TableStarted(second, 15_204),
        PhaseEntered("orders", "committing", 15_000),
        TableFailed("[red]odd[/red]", error, 1.0),
        PhaseEntered("orders", "recording"),
    )
    assert "run 20261120T061533Z-1f0c9a: 2 tables" in shown
    assert "15,000 of ≈ 15,204 rows" in shown or "recording  ≈ 15,204 rows" in shown
    assert "1/2 tables" in shown
    assert "error: [red]odd[/red]: no such [file]. Check it" in shown


def test_rows_move_while_they_are_read_and_leave_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = step(table(), observed(high(cursor("2026-11-20T06:15:33Z")), source(), None))
    reading = RowsRead("orders", 7_500)
    shown = shown_by(monkeypatch, RunStarted("r", 1), TableStarted(planned.table, 15_204), reading)
    assert "reading  7,500 of ≈ 15,204 rows" in shown
    progress.plain_lines(output.write_line, verbose=True)(reading)
    progress.json_lines(lambda record: output.write_record(record, output.OutputSettings()))(reading)
    assert capsys.readouterr().err == ""


def test_each_json_line_names_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    settings = output.OutputSettings(log_format="json", run_id="20261120T061533Z-1f0c9a")
    listener = progress.json_lines(lambda record: output.write_record(record, settings))
    listener(RunStarted("20261120T061533Z-1f0c9a", 3))
    output.write_error(TableError("no"), settings)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["run"] for line in lines] == ["20261120T061533Z-1f0c9a"] * 2
    assert lines[0]["event"] == "run_started" and lines[1]["level"] == "error" and all(line["at"] for line in lines)


def test_plain_lines_count_the_tables_that_have_ended() -> None:
    lines: list[str] = []
    listener = progress.plain_lines(lines.append, verbose=False)
    listener(RunStarted("20261120T061533Z-1f0c9a", 3))
    listener(TableCommitted("orders", 7, RowCounts(read=5, updated=3), 2.5))
    listener(TableFailed("items", TableError("no such file", hint="Check it"), 1.0))
    listener(TableSkipped("revenue", "items was not brought up to date"))
    assert lines == [
        "run 20261120T061533Z-1f0c9a: 3 tables",
        "[1/3] orders: committed sequence number 7, 5 read, 3 updated, 2.5 s",
        "error: items: no such file. Check it",
        "[3/3] revenue: skipped, because items was not brought up to date",
    ]


def test_bars_leave_what_is_committed_to_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = step(table(), observed(high(cursor("2026-11-20T06:15:33Z")), source(), None))
    shown = shown_by(
        monkeypatch,
        RunStarted("20261120T061533Z-1f0c9a", 2),
        TableStarted(planned.table, 5),
        TableCommitted("orders", 7, RowCounts(read=5, updated=3), 2.5),
    )
    assert "1/2 tables" in shown and "committed" not in shown
