"""Which files a table has read: from the log that state refers to, or from the list that an older flowctl recorded."""

from __future__ import annotations

from flowctl.errors import StoppedByPolicy
from flowctl.model.commit import Commit
from flowctl.model.file_log import FileLog, log_of
from flowctl.model.position import FileLogPosition, Position
from flowctl.state import file_log
from flowctl.state.document import TableState
from flowctl.storage.blobs import BlobStore


def files_read(blobs: BlobStore, table: str, position: Position | None, *, read_anew: bool = False) -> FileLog:
    """Raises :class:`StoppedByPolicy` if the log cannot be read, unless everything is ``read_anew``."""
    if not isinstance(position, FileLogPosition):
        return log_of(table, position)
    try:
        return file_log.read_log(blobs, position)
    except StoppedByPolicy:
        if read_anew:
            return FileLog()
        raise


def pending_log(blobs: BlobStore, table: str, state: TableState) -> FileLog | None:
    """The log after the pending interval; its newest entry lists the files of that interval."""
    begun = state.pending
    return files_read(blobs, table, begun.interval.upper) if begun is not None else None


def files_written(blobs: BlobStore, table: str, state: TableState, commit: Commit | None) -> FileLog | None:
    """The log of the position in the target's own commit record, if that differs from state's positions. A sequence
    number that was given up may have been committed nevertheless."""
    position = commit.position if commit else None
    begun = state.pending.interval.upper if state.pending else None
    return None if position in (None, state.position, begun) else files_read(blobs, table, position)
