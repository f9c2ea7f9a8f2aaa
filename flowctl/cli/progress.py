"""How a run's events are shown: bars on a terminal, plain lines elsewhere, JSON records on request. All on stderr."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, assert_never

from flowctl.cli import output
from flowctl.run import events
from flowctl.run.events import (
    BatchLanded,
    DryRunStarted,
    Event,
    FollowStarted,
    Listener,
    PhaseEntered,
    RoundCommitted,
    RowsRead,
    RunStarted,
    StreamFailed,
    TableCommitted,
    TableCompared,
    TableFailed,
    TableNoted,
    TableRetried,
    TableSkipped,
    TableStarted,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

#: Writes one line of text to stderr, through the redactor.
Write = Callable[[str], None]


@contextmanager
def listening(settings: output.OutputSettings) -> Iterator[Listener]:
    """Shows a run as ``settings`` require, until the context ends."""
    if settings.log_format == "json":
        yield json_lines(lambda record: output.write_record(record, settings))
    elif sys.stderr.isatty() and not settings.verbose:
        from rich.console import Console

        with bars(Console(stderr=True), output.write_line) as listener:
            yield listener
    else:
        yield plain_lines(output.write_line, verbose=settings.verbose)


def say(settings: output.OutputSettings, text: str) -> None:
    """Writes one line that belongs to no table. Also called from threads, which have no click context with the
    settings."""
    if settings.log_format == "json":
        output.write_record({"event": "message", "message": text}, settings)
    else:
        output.write_line(text)


def json_lines(write: Callable[[Mapping[str, Any]], None]) -> Listener:
    """One JSON object per line; `--log-format json`."""

    def listen(event: Event) -> None:
        if (record := events.as_json(event)) is not None:
            write(record)

    return listen


def plain_lines(write: Write, *, verbose: bool) -> Listener:
    """One line for the start and the end of each table, with the number of tables that have ended; with ``verbose``
    also phases and tracebacks."""
    count = _Count()

    def listen(event: Event) -> None:
        text = events.line(event)
        done = count.after(event)
        if text is not None:
            is_counted = count.tables and isinstance(event, TableCommitted | TableCompared | TableSkipped)
            write(f"[{done}] {text}" if is_counted else text)
        if verbose:
            _details(event, write)

    return listen


class _Count:
    """How many of the run's tables have ended. Events come from several threads."""

    def __init__(self) -> None:
        self.tables = 0
        self.done: set[str] = set()
        self._lock = threading.Lock()

    def after(self, event: Event) -> str:
        """``3/5`` once ``event`` has happened."""
        with self._lock:
            match event:
                case RunStarted(_, tables) | DryRunStarted(tables):
                    self.tables = tables
                case (
                    TableCommitted(table=table, continues=False)
                    | TableCompared(table=table)
                    | TableFailed(table=table)
                    | TableSkipped(table=table)
                ):
                    self.done.add(table)
                case _:
                    pass
            return f"{len(self.done)}/{self.tables}"


def _details(event: Event, write: Write) -> None:
    match event:
        case PhaseEntered(table, phase, rows):
            write(f"{table}: {phase}" + (f" {rows:,} rows" if rows is not None else ""))
        case TableFailed(cause=cause) | StreamFailed(cause=cause) if cause is not None:
            write("".join(traceback.format_exception(cause)))
        case _:
            return


@contextmanager
def bars(console: Console, write: Write) -> Iterator[Listener]:
    """The number of finished tables, and a bar for each active one: phase, rows, expected rows if known, and time.
    Lines for tables that failed, wait or are skipped appear above. The bars disappear at the end; the result has the
    details."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    lines = plain_lines(write, verbose=False)
    with Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=24, table_column=Column(min_width=24)),
        TextColumn("{task.fields[detail]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        yield _Bars(progress, lines).listen


class _Bars:
    def __init__(self, progress: Progress, lines: Listener) -> None:
        self._progress = progress
        self._lines = lines
        self._count = _Count()
        self._run: TaskID | None = None
        self._tasks: dict[str, TaskID] = {}
        self._expected: dict[str, int | None] = {}
        self._lock = threading.Lock()

    def listen(self, event: Event) -> None:
        with self._lock:
            done = self._count.after(event)
            match event:
                case RunStarted(_, tables) | DryRunStarted(tables):
                    self._run = self._progress.add_task("tables", total=tables, detail=f"{done} tables")
                    self._lines(event)
                case TableStarted(planned, expected):
                    self._expected[planned.id] = expected
                    self._tasks[planned.id] = self._progress.add_task(planned.id, total=None, detail="starting")
                case PhaseEntered(table, phase, rows):
                    self._enter(table, phase, rows)
                case RowsRead(table, rows):
                    self._enter(table, "reading", rows)
                case TableCommitted(table=table) | TableCompared(table=table):
                    self._end(table, done)
                case TableFailed(table=table) | TableSkipped(table=table):
                    self._end(table, done)
                    self._lines(event)
                case (
                    TableRetried() | TableNoted() | BatchLanded() | RoundCommitted() | StreamFailed() | FollowStarted()
                ):
                    self._lines(event)
                case _:
                    assert_never(event)

    def _enter(self, table: str, phase: str, rows: int | None) -> None:
        """The bar moves once rows are counted; until then it only shows activity."""
        expected = self._expected.get(table)
        if rows is not None:
            of = f" of {'≈ ' if expected != rows else ''}{expected:,}" if expected else ""
            total = max(expected or 0, rows, 1)
            detail = f"{phase}  {rows:,}{of} rows"
            self._progress.update(self._tasks[table], completed=rows, total=total, detail=detail)
        else:
            known = f"  ≈ {expected:,} rows" if expected else ""
            self._progress.update(self._tasks[table], detail=f"{phase}{known}")

    def _end(self, table: str, done: str) -> None:
        if (task := self._tasks.pop(table, None)) is not None:
            self._progress.remove_task(task)
        if self._run is not None:
            self._progress.update(self._run, completed=len(self._count.done), detail=f"{done} tables")
