"""How a run ended: after `apply`, and in `runs RUN` from its record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl import text
from flowctl.cli import output
from flowctl.run.events import rows_per_second
from flowctl.text import Line, Piece

if TYPE_CHECKING:
    from flowctl.state.runs import Outcome, RunError, RunRecord, TableRun

_COUNTS = ("read", "inserted", "updated", "deleted", "ignored", "quarantined")
_HEADER = ("table", "result", *_COUNTS, "rows/s", "seconds")
#: Failures first: a truncated line still shows them.
_OUTCOMES: dict[Outcome, str] = {
    "failed": "failed",
    "stopped": "stopped",
    "skipped": "skipped",
    "committed": "committed",
    "unchanged": "up to date",
}


def show(record: RunRecord, explained: Collection[str] = ()) -> None:
    """On stdout: a line for each table that had something to do, then warnings and failures with the next step, then
    a summary of the run. Tables in ``explained`` are only counted: the plan above shows why they are stopped."""
    output.write_lines(_lines(record, explained, output.width()))


def outcomes(record: RunRecord) -> str:
    """The number of tables by outcome: ``1 failed, 3 committed``."""
    counts = ((record.count(outcome), name) for outcome, name in _OUTCOMES.items())
    return ", ".join(f"{count:,} {name}" for count, name in counts if count) or "nothing to do"


def rows_read(record: RunRecord) -> int:
    return sum(table.rows.read or 0 for table in record.tables)


def rows_written(record: RunRecord) -> int:
    """Inserted, updated or deleted, as far as targets report it."""
    counts = (table.rows for table in record.tables)
    return sum((rows.inserted or 0) + (rows.updated or 0) + (rows.deleted or 0) for rows in counts)


def seconds(record: RunRecord) -> float:
    ended, started = map(dt.datetime.fromisoformat, (record.finished_at, record.started_at))
    return (ended - started).total_seconds()


def _lines(record: RunRecord, explained: Collection[str], width: int) -> Iterator[Line]:
    tables = [table for table in record.tables if table.outcome != "unchanged" and table.id not in explained]
    if tables:
        yield ()
        header, *rows = text.table(_HEADER, [*map(_row, tables)], width, left=("table", "result"))
        yield (Piece(header, "dim"),)
        yield from ((Piece(row),) for row in rows)
    for table in tables:
        for warning in table.warnings:
            yield from _paragraph(f"{table.id}: warning: {warning}", width, "yellow")
    for failed in _failures(tables):
        yield from _failure(failed, width)
    if record.error:
        yield from _error("the run ended", record.error, width)
    yield ()
    read, written = rows_read(record), rows_written(record)
    moved = f"; {text.counted(read, 'row')} read, {written:,} written" if read or written else ""
    yield from _paragraph(f"run {record.id}: {outcomes(record)}{moved}; {seconds(record):,.1f} s", width, "bold")


def _row(table: TableRun) -> Sequence[str]:
    counts = (getattr(table.rows, name) for name in _COUNTS)
    return (
        table.id,
        table.outcome,
        *(f"{count:,}" if count else "" for count in counts),
        rows_per_second(table.rows.read, table.seconds),
        f"{table.seconds:,.1f}",
    )


def _failures(tables: Sequence[TableRun]) -> Iterable[Sequence[tuple[TableRun, RunError]]]:
    """Tables grouped by failure, regardless of its place in the spec."""
    alike: dict[tuple[str, str, str], list[tuple[TableRun, RunError]]] = {}
    for table in tables:
        if error := table.error:
            alike.setdefault((table.outcome, error.message, error.hint), []).append((table, error))
    return alike.values()


def _failure(alike: Sequence[tuple[TableRun, RunError]], width: int) -> Iterator[Line]:
    (first, error), *more = alike
    is_in_one_place = all(other.where == error.where for _, other in more)
    what = f"{len(alike):,} tables" if more else first.id
    yield from _error(f"{what} {first.outcome}", error if is_in_one_place else replace(error, where=""), width)
    if more:
        yield from text.labelled("tables", ", ".join(table.id for table, _ in alike), width)


def _error(what: str, error: RunError, width: int) -> Iterator[Line]:
    place = f" ({error.where})" if error.where else ""
    yield ()
    yield from _paragraph(f"! {what}: {error.message}{place}", width, "bold red")
    yield from text.labelled("next step", error.hint, width)


def _paragraph(message: str, width: int, style: str) -> Iterator[Line]:
    yield from ((Piece(line, style),) for line in text.paragraph(message, width, indent=4))
