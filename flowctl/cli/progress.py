"""How a run's events are shown: bars on a terminal, plain lines elsewhere, JSON records when asked. All on stderr."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flowctl.run import events
from flowctl.run.events import (
    Event,
    Listener,
    PhaseEntered,
    TableCommitted,
    TableFailed,
    TableSkipped,
    TableStarted,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

#: Writes one line of text to stderr, through the redactor.
Write = Callable[[str], None]


def json_lines(write: Write) -> Listener:
    """One JSON object a line, with the time; `--log-format json`."""

    def listen(event: Event) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        write(json.dumps({"at": now, **events.as_json(event)}, ensure_ascii=False))

    return listen


def plain_lines(write: Write, verbose: bool) -> Listener:
    """One line for each table's start and end; with ``verbose`` phases and traces too."""

    def listen(event: Event) -> None:
        text = events.line(event)
        if text is not None:
            write(text)
        if verbose:
            _details(event, write)

    return listen


def _details(event: Event, write: Write) -> None:
    match event:
        case PhaseEntered(table, phase, rows):
            write(f"{table}: {phase}" + (f" {rows:,} rows" if rows is not None else ""))
        case TableFailed(cause=cause) if cause is not None:
            write("".join(traceback.format_exception(cause)))
        case _:
            return


@contextmanager
def bars(console: Console, write: Write, verbose: bool) -> Iterator[Listener]:
    """A live line for each table under way, with rows, rows/s and time; its last line stays."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    lines = plain_lines(write, verbose)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[phase]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        shown = _Bars(progress, lines)
        yield shown.listen


class _Bars:
    def __init__(self, progress: Progress, lines: Listener) -> None:
        self._progress = progress
        self._lines = lines
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()

    def listen(self, event: Event) -> None:
        with self._lock:
            match event:
                case TableStarted(step):
                    self._tasks[step.id] = self._progress.add_task(step.id, total=None, phase="starting")
                    self._started[step.id] = time.monotonic()
                case PhaseEntered(table, phase, rows):
                    self._progress.update(self._tasks[table], phase=self._phase(table, phase, rows))
                case TableCommitted(table=table) | TableFailed(table=table) | TableSkipped(table=table):
                    if (task := self._tasks.pop(table, None)) is not None:
                        self._progress.remove_task(task)
                    self._lines(event)
                case _:
                    self._lines(event)

    def _phase(self, table: str, phase: str, rows: int | None) -> str:
        if not rows:
            return phase
        seconds = max(time.monotonic() - self._started[table], 0.001)
        return f"{phase} {rows:,} rows ({rows / seconds:,.0f} rows/s)"
