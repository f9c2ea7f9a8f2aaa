"""The file logs of a run: files to read are logged before its intents refer to them; entries that have become
unreachable are retired at its end."""

from __future__ import annotations

from collections.abc import Iterable

from flowctl.errors import StalePlan
from flowctl.model.file_log import FileEntry, FileLog
from flowctl.model.position import FileLogPosition, FilesPosition
from flowctl.model.step import Load
from flowctl.observe.world import World
from flowctl.state import file_log
from flowctl.storage.blobs import BlobStore


def put(blobs: BlobStore, steps: Iterable[Load], world: World) -> None:
    """Stores the entries of ``steps``. :class:`StalePlan` if a saved plan continues a different log."""
    for step in steps:
        grown = _grown(step, world)
        if grown is None:
            continue
        if grown.position != step.interval.upper:
            raise StalePlan(f"{step.id}: other files were read since the plan was made", hint="Plan again")
        file_log.put_entries(blobs, [*_carried_over(step, world), grown.entries[-1]])


def retire(blobs: BlobStore, steps: Iterable[Load], world: World, serial: int) -> None:
    """Retires, for committed ``steps``, the entries that were reachable from their old positions and are not from the
    new ones, in ``serial``."""
    for step in steps:
        grown, known = _grown(step, world), [*_entries(world, step.id), *_base(step, world).entries]
        if grown is not None:
            left = {entry.digest for entry in known} - {entry.digest for entry in grown.entries}
            file_log.retire(blobs, sorted(left), serial)


def _carried_over(step: Load, world: World) -> Iterable[FileEntry]:
    """Entries for the files that an older flowctl listed in its state document."""
    state = world.state.table(step.id)
    begun = state.intent.interval.upper if state.intent is not None and step.follows is not None else state.position
    return _base(step, world).entries if isinstance(begun, FilesPosition) else ()


def _grown(step: Load, world: World) -> FileLog | None:
    """The log after ``step`` is committed; None if the step adds nothing to a log."""
    interval = step.interval
    if not isinstance(interval.upper, FileLogPosition):
        return None
    if not interval.files or interval.upper == interval.lower:
        return None
    older = _base(step, world) if interval.lower is not None else FileLog()
    return older.with_read(step.id, interval.files)


def _base(step: Load, world: World) -> FileLog:
    """The log that ``step`` continues."""
    seen = world.tables[step.id]
    return (seen.pending_log if step.follows is not None else seen.file_log) or FileLog()


def _entries(world: World, table: str) -> Iterable[FileEntry]:
    log = world.tables[table].file_log
    return log.entries if log is not None else ()
