"""The events of a run, as values; listeners display them (progress bars, lines, JSON)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from flowctl import text
from flowctl.errors import FlowctlError
from flowctl.model.commit import RowCounts
from flowctl.model.effects import Effects
from flowctl.model.step import PlannedTable
from flowctl.plan import effect_text

Phase = Literal["waiting for the engine", "reading", "staging", "checking", "comparing", "committing", "recording"]


@dataclass(frozen=True)
class RunStarted:
    """``tables`` is the number of tables that have something to do."""

    run_id: str
    tables: int


@dataclass(frozen=True)
class TableStarted:
    """``rows`` is the plan's estimate."""

    table: PlannedTable
    rows: int | None = None


@dataclass(frozen=True)
class PhaseEntered:
    """``rows`` is the number read or staged so far, if known."""

    table: str
    phase: Phase
    rows: int | None = None


@dataclass(frozen=True)
class RowsRead:
    """``rows`` is the number that this process has read so far, in the current pass over the source."""

    table: str
    rows: int


@dataclass(frozen=True)
class TableRetried:
    table: str
    attempt: int
    wait_seconds: float
    error: FlowctlError


@dataclass(frozen=True)
class TableCommitted:
    """``seconds`` since the table's start; ``recovered``: an earlier run's commit was found and only recorded.
    ``continues``: more commits of the table follow."""

    table: str
    seq: int
    counts: RowCounts
    seconds: float
    recovered: bool = False
    warnings: tuple[str, ...] = ()
    continues: bool = False


@dataclass(frozen=True)
class FollowStarted:
    """A run that goes on until it is asked to stop. ``streams`` are followed, ``tables`` run at intervals."""

    run_id: str
    streams: tuple[str, ...]
    tables: int


@dataclass(frozen=True)
class DryRunStarted:
    """Nothing will be committed. ``tables`` is the number of tables to compare."""

    tables: int


@dataclass(frozen=True)
class TableNoted:
    """``note`` is what a plan would note, and is known only now."""

    table: str
    note: str


@dataclass(frozen=True)
class TableCompared:
    """A table has finished in a dry run. ``seconds`` since its start."""

    table: str
    effects: Effects
    seconds: float


@dataclass(frozen=True)
class BatchLanded:
    """A batch of captured changes is durable, and acknowledged to the source soon. ``upper`` is its end."""

    stream: str
    batch: int
    changes: int
    bytes: int
    upper: str


@dataclass(frozen=True)
class RoundCommitted:
    """All tables of a stream have the changes up to ``batch``, which ends at ``upper``."""

    stream: str
    batch: int
    upper: str
    tables: int
    seconds: float


@dataclass(frozen=True)
class StreamFailed:
    """A stream that is followed has failed, and is tried again in ``wait`` seconds. ``cause`` as in
    :class:`TableFailed`."""

    stream: str
    error: FlowctlError
    wait: float
    cause: BaseException | None = None


@dataclass(frozen=True)
class TableFailed:
    """``cause`` is the original exception, for its traceback (`--verbose`)."""

    table: str
    error: FlowctlError
    seconds: float
    cause: BaseException | None = None


@dataclass(frozen=True)
class TableSkipped:
    """``because`` is the reason: a dependency that failed, or what ended the run."""

    table: str
    because: str


Event = (
    RunStarted
    | FollowStarted
    | DryRunStarted
    | TableStarted
    | PhaseEntered
    | RowsRead
    | TableRetried
    | TableCommitted
    | TableNoted
    | TableCompared
    | BatchLanded
    | RoundCommitted
    | StreamFailed
    | TableFailed
    | TableSkipped
)
Listener = Callable[[Event], None]


def line(event: Event) -> str | None:
    """The event as text, or None if only a progress bar shows it."""
    match event:
        case RunStarted(run_id, tables):
            return f"run {run_id}: {text.counted(tables, 'table')}"
        case FollowStarted(run_id, streams, tables):
            parts = [text.some(streams)] if streams else []
            parts += [f"{text.counted(tables, 'table')} at intervals"] if tables else []
            return f"run {run_id}: follows {' and '.join(parts)}"
        case DryRunStarted(tables):
            return f"dry run: {text.counted(tables, 'table')}"
        case TableStarted(planned, expected):
            rows = f", ≈ {text.counted(expected, 'row')}" if expected else ""
            return f"{planned.id}: {planned.mode} {planned.source} → {planned.target}{rows}"
        case PhaseEntered() | RowsRead():
            return None
        case TableRetried(table, attempt, wait, error):
            return f"{table}: attempt {attempt} failed, retrying in {wait:.1f} s: {error.message}"
        case TableCommitted(table, seq, counts, seconds, recovered, warnings):
            how = "recovered" if recovered else describe_counts(counts, seconds)
            line = f"{table}: committed sequence number {seq}, {how}, {seconds:.1f} s"
            return "\n".join([line, *(f"{table}: warning: {warning}" for warning in warnings)])
        case BatchLanded(stream, batch, changes, bytes, upper):
            changed = f"{text.counted(changes, 'change')}, {text.size(bytes)}"
            return f"{stream}: captured batch {batch} up to {upper}, {changed}"
        case RoundCommitted(stream, batch, upper, tables, seconds):
            return f"{stream}: {text.counted(tables, 'table')} at {upper} (batch {batch}), {seconds:.1f} s"
        case StreamFailed(stream, error, wait):
            return f"error: {stream}: {error.sentences} (again in {wait:.0f} s)"
        case TableNoted(table, note):
            return f"{table}: note: {note}"
        case TableCompared(table, effects, seconds):
            return f"{table}: compared, {effect_text.describe(effects)}, {seconds:.1f} s"
        case TableFailed(table, error):
            where = f"{error.mark}: " if error.mark else ""
            return f"{where}error: {table}: {error.message}" + (f". {error.hint}" if error.hint else "")
        case TableSkipped(table, because):
            return f"{table}: skipped, because {because}"
        case _:
            assert_never(event)


#: The minimum for which a rate is shown.
_RATE_ROWS, _RATE_SECONDS = 10_000, 1.0


def describe_counts(counts: RowCounts, seconds: float) -> str:
    """``3,322 read, 9 inserted, 9 updated`` or ``336,776 inserted (22,499 rows/s)``. Unknown counts are omitted, and so
    is the number read if all of these rows were inserted."""
    parts = [
        f"{value:,} {name}"
        for name, value in (
            ("inserted", counts.inserted),
            ("updated", counts.updated),
            ("deleted", counts.deleted),
            ("ignored", counts.ignored),
            ("quarantined", counts.quarantined),
        )
        if value
    ]
    if counts.read is not None and not parts:
        parts = [f"{counts.read:,} read, nothing to change" if counts.read else "no rows"]
    elif counts.read and counts.read != counts.inserted:
        parts = [f"{counts.read:,} read", *parts]
    rate = rows_per_second(counts.read, seconds)
    return (", ".join(parts) or "done") + (f" ({rate} rows/s)" if rate else "")


def rows_per_second(rows: int | None, seconds: float) -> str:
    """``22,499``; empty for few rows or short times, where it would show waiting time rather than throughput."""
    if rows is None or rows < _RATE_ROWS or seconds < _RATE_SECONDS:
        return ""
    return f"{rows / seconds:,.0f}"


def as_json(event: Event) -> dict[str, Any] | None:
    """The event as one JSON log record (`--log-format json`), or None if only a progress bar shows it."""
    match event:
        case RunStarted(_, tables):
            return {"event": "run_started", "tables": tables}
        case FollowStarted(run_id, streams, tables):
            return {"event": "follow_started", "run": run_id, "streams": list(streams), "tables": tables}
        case DryRunStarted(tables):
            return {"event": "dry_run_started", "tables": tables}
        case TableStarted(planned, rows):
            return {"event": "table_started", "table": planned.id, "mode": planned.mode, "rows": rows}
        case PhaseEntered(table, phase, rows):
            return {"event": "phase", "table": table, "phase": phase, "rows": rows}
        case RowsRead():
            return None
        case TableRetried(table, attempt, wait, error):
            return {
                "event": "table_retried",
                "table": table,
                "attempt": attempt,
                "wait_seconds": round(wait, 3),
                "error": error.message,
            }
        case TableCommitted(table, seq, counts, seconds, recovered, warnings, continues):
            return {
                "event": "table_committed",
                "table": table,
                "seq": seq,
                "rows": vars(counts),
                "seconds": round(seconds, 3),
                "recovered": recovered,
                "warnings": list(warnings),
                "continues": continues,
            }
        case BatchLanded(stream, batch, changes, bytes, upper):
            return {
                "event": "batch_landed",
                "stream": stream,
                "batch": batch,
                "changes": changes,
                "bytes": bytes,
                "to": upper,
            }
        case RoundCommitted(stream, batch, upper, tables, seconds):
            return {
                "event": "round_committed",
                "stream": stream,
                "batch": batch,
                "to": upper,
                "tables": tables,
                "seconds": round(seconds, 3),
            }
        case StreamFailed(stream, error, wait):
            return {
                "event": "stream_failed",
                "stream": stream,
                "error": error.message,
                "hint": error.hint,
                "source": str(error.mark) if error.mark else None,
                "wait_seconds": round(wait, 3),
            }
        case TableNoted(table, note):
            return {"event": "table_noted", "table": table, "note": note}
        case TableCompared(table, effects, seconds):
            return {
                "event": "table_compared",
                "table": table,
                "effects": effect_text.describe(effects),
                "seconds": round(seconds, 3),
            }
        case TableFailed(table, error, seconds):
            return {
                "event": "table_failed",
                "table": table,
                "error": error.message,
                "hint": error.hint,
                "source": str(error.mark) if error.mark else None,
                "exit_code": error.exit_code,
                "seconds": round(seconds, 3),
            }
        case TableSkipped(table, because):
            return {"event": "table_skipped", "table": table, "because": because}
        case _:
            assert_never(event)
