"""What one step reads: ``(lower, upper]`` over positions, fixed when the plan is made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flowctl.model.codec import in_json
from flowctl.model.position import FileLogPosition, FilesPosition, FileStamp, Position
from flowctl.model.value import TypedValue


@dataclass(frozen=True)
class Interval:
    """``lower`` is the recorded position (None: from the beginning), ``upper`` what state records after the commit
    (None: the beginning). If ``upper`` is None, nothing is read.

    For cursors, ``read_from`` and ``read_to`` are the bounds of the read itself. ``read_from`` is inclusive (ties of
    the last row may still arrive, and ``lag`` re-reads rows). ``read_to`` is inclusive for append and None for merge
    and scd2, which read everything above in one snapshot: with an upper bound, a row that keeps changing between plan
    and read would never be read. At ``read_from``, append skips the rows that the lower position records as written.
    ``include_null`` also reads rows with a null cursor (``cursor.nulls: always``). ``lag_seconds`` is only for display.

    ``files`` are exactly the files to read, sorted by path. A plan lists them; state and run records do not
    (:attr:`recorded`), because the file log entry that ``upper`` refers to has them.

    ``letters``: the dead letters of sequence numbers up to this one are read again too.

    ``is_complete``: no more rows come at ``upper``, as `cursor.delay` says; only of append.

    ``is_backfill``: a range at or below the recorded position, which stays. ``read_to`` is then set in every mode.
    """

    lower: Position | None
    upper: Position | None
    cursor_column: str | None = None
    read_from: TypedValue | None = None
    read_to: TypedValue | None = None
    include_null: bool = False
    lag_seconds: float = 0.0
    files: tuple[FileStamp, ...] | None = field(default=None, metadata=in_json("not_default"))
    letters: int | None = field(default=None, metadata=in_json("not_default"))
    is_backfill: bool = field(default=False, metadata=in_json("not_default"))
    is_complete: bool = field(default=False, metadata=in_json("not_default"))

    @property
    def recorded(self) -> Interval:
        """The form kept in state and run records, without the files: the file log has them."""
        return replace(self, files=None)

    @property
    def files_read(self) -> tuple[FileStamp, ...] | None:
        """The files to read; None if this interval is not one of files, or if only the file log lists them."""
        if self.files is None and isinstance(self.upper, FileLogPosition) and self.upper == self.lower:
            return ()  # nothing new: only keys are compared
        if self.files is not None or not isinstance(self.upper, FilesPosition):
            return self.files
        known = set(self.lower.files) if isinstance(self.lower, FilesPosition) else set()
        return tuple(stamp for stamp in self.upper.files if stamp not in known)
