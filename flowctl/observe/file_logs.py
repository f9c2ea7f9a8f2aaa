"""Which files a table has read: from the log that its state names, or the list that an older flowctl recorded."""

from __future__ import annotations

from flowctl.errors import StoppedByPolicy
from flowctl.model.commit import Commit
from flowctl.model.file_log import FileLog, log_of
from flowctl.model.position import FileLogPosition, FileStamp, Position
from flowctl.state import file_log
from flowctl.state.blobs import BlobStore
from flowctl.state.document import TableState


def files_read(blobs: BlobStore, table: str, position: Position | None, *, read_anew: bool = False) -> FileLog:
    """:class:`StoppedByPolicy` when the log cannot be read, unless everything is ``read_anew``."""
    if not isinstance(position, FileLogPosition):
        return log_of(table, position)
    try:
        return file_log.read_log(blobs, position)
    except StoppedByPolicy:
        if read_anew:
            return FileLog()
        raise


def pending_files(blobs: BlobStore, state: TableState) -> tuple[FileStamp, ...] | None:
    """The files of the begun interval, where only their log has them."""
    interval = state.intent.interval if state.intent and not state.given_up else None
    if interval is None or interval.files_read is not None or not isinstance(interval.upper, FileLogPosition):
        return None
    return file_log.read_entry(blobs, interval.upper.entry).read


def files_written(blobs: BlobStore, table: str, state: TableState, commit: Commit | None) -> FileLog | None:
    """The files that the target's own record names, where that is another position than state's."""
    position = commit.position if commit else None
    begun = state.intent.interval.upper if state.intent else None
    return None if position in (None, state.position, begun) else files_read(blobs, table, position)
