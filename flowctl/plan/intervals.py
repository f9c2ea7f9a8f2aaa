"""What a step reads: the interval from the recorded position to the source's watermark, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowctl.connectors.source import HighWatermark
from flowctl.model.file_log import FileLog, log_of
from flowctl.model.interval import Interval
from flowctl.model.position import (
    CursorPosition,
    FilesPosition,
    FileStamp,
    NoPosition,
    OffsetsPosition,
    Position,
    UpstreamPosition,
    VersionPosition,
)
from flowctl.model.table_info import TableInfo
from flowctl.model.types import keeps_order
from flowctl.observe.world import PositionKind
from flowctl.plan.cursors import cursor_interval
from flowctl.plan.finding import Finding, Idle, Stop, Work
from flowctl.plan.offsets import expired, from_beginnings, offsets_interval
from flowctl.plan.versions import has_version, versions_interval
from flowctl.spec.spec import TableSpec
from flowctl.text import counted, some


def find(
    table: TableSpec,
    info: TableInfo,
    watermark: HighWatermark,
    recorded: Position | None,
    positions: PositionKind,
    spec_path: str = "SPEC",
    log: FileLog | None = None,
) -> Finding:
    """The interval of a table with a source of its own. ``recorded`` is its position in state; None reads from the
    beginning. ``spec_path`` is for the commands in hints. ``log`` holds the files up to ``recorded``, if that does not
    list them itself."""
    if table.cursor is not None:
        return cursor_interval(table, table.cursor, info, watermark, recorded, spec_path)
    if positions == "files" and isinstance(watermark.position, FilesPosition | None):
        now, notes = watermark.position or FilesPosition(()), tuple(_closed(watermark))
        return _files(table, now, recorded, log or log_of(table.id, recorded), notes)
    if positions == "offsets":
        return offsets_interval(table, watermark, recorded, spec_path)
    if positions == "version":
        return versions_interval(table, watermark, recorded, spec_path)
    return Work(Interval(None, NoPosition()), "always reads in full")


def find_upstream(sequences: Mapping[str, int], recorded: Position | None) -> Finding:
    """The interval of a SQL table. ``sequences`` has the sequence number that each upstream table will have when it
    runs."""
    upper = UpstreamPosition(tuple(sorted(sequences.items())))
    if not sequences:
        return Work(Interval(None, NoPosition()), "always runs in full")
    if recorded == upper:
        return Idle("nothing changed upstream", upper)
    known = dict(recorded.sequences) if isinstance(recorded, UpstreamPosition) else {}
    moved = sorted(table_id for table_id, seq in sequences.items() if known.get(table_id) != seq)
    reason = "never ran" if recorded is None else f"{', '.join(moved)} changed"
    return Work(Interval(recorded, upper), reason)


def can_be_read_again(interval: Interval, watermark: HighWatermark | None, source: TableInfo | None) -> bool:
    """Whether a pending interval can still be read: all its files must exist unchanged, and its cursor must have the
    same order as when its bounds were recorded."""
    cursor = source.column(interval.cursor_column) if source and interval.cursor_column else None
    if cursor and isinstance(interval.upper, CursorPosition) and not keeps_order(cursor.type, interval.upper.at.type):
        return False
    if isinstance(interval.lower, OffsetsPosition) and watermark is not None:
        assert isinstance(interval.upper, OffsetsPosition), "both bounds are of one kind"
        lower = from_beginnings(interval.lower, interval.upper)
        return isinstance(watermark.position, OffsetsPosition) and not expired(lower, watermark)
    if isinstance(interval.upper, VersionPosition) and watermark is not None:
        return has_version(watermark, interval.upper)
    if interval.files_read is None or watermark is None:
        return True
    there = set(watermark.position.files) if isinstance(watermark.position, FilesPosition) else set()
    return set(interval.files_read) <= there


def _files(
    table: TableSpec, now: FilesPosition, recorded: Position | None, log: FileLog, notes: tuple[str, ...]
) -> Finding:
    if table.mode == "truncate":
        return _all_files(table, now, recorded)
    known = log.files
    new = tuple(stamp for stamp in now.files if known.get(stamp.path) != stamp)
    changed = [stamp.path for stamp in new if stamp.path in known]
    if changed and table.mode == "append":
        return Stop(
            f"{some(changed)} changed after being read: its rows would be duplicated",
            "Give new content a new name, or --full-refresh",
            "from",
        )
    notes = (*_gone(known, now), *notes)
    if not new:
        return Idle("no new files", recorded, notes)
    upper = log.with_read(table.id, new).position
    assert upper is not None, "a log to which files were added has an entry"
    return Work(Interval(log.position, upper, files=new), counted(len(new), "new file"), notes)


def _all_files(table: TableSpec, now: FilesPosition, recorded: Position | None) -> Finding:
    """All files, whenever any of them changed. No files at all is an empty source, which is left to the guard."""
    upper = FileLog().with_read(table.id, now.files).position
    assert upper is not None, "a log to which files were added has an entry"
    if recorded in (now, upper):
        return Idle("the files are unchanged", recorded)
    return Work(Interval(None, upper, files=now.files), "first run" if recorded is None else "the files changed")


def _closed(watermark: HighWatermark) -> Iterable[str]:
    if watermark.closed:
        yield f"{some(watermark.closed)} cannot be opened any more; the columns are those of the last run and new files"


def _gone(known: Mapping[str, FileStamp], now: FilesPosition) -> Iterable[str]:
    gone = sorted(known.keys() - {stamp.path for stamp in now.files})
    if gone:
        yield f"{some(gone)} no longer {'exists' if len(gone) == 1 else 'exist'}; the rows read earlier stay"
