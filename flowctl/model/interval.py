"""What one step reads: ``(lower, upper]`` over positions, fixed when the plan is made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flowctl.model.codec import in_json
from flowctl.model.position import FileLogPosition, FilesPosition, FileStamp, Position
from flowctl.model.value import TypedValue


@dataclass(frozen=True)
class Interval:
    """``lower`` is the recorded position (None: from the beginning), ``upper`` what state records after the commit.

    For cursors the bounds that the read itself uses stand in ``read_from`` and ``read_to``: ``read_from`` is
    inclusive (ties of the last row may still arrive, and ``lag`` re-reads), ``read_to`` is inclusive for append and
    None for merge and scd2, which read everything above in one snapshot: an upper bound would starve rows that
    change faster than plan and read. Of the rows at ``read_from`` append leaves out those that the lower position says
    it has written. ``include_null`` reads rows whose cursor is null too (``cursor.nulls: always``).
    ``lag_seconds`` is only for people.

    ``files`` are exactly the files that are read, sorted by path. A plan lists them; what is recorded does not
    (:attr:`recorded`): there the entry of the file log that ``upper`` names has them.
    """

    lower: Position | None
    upper: Position
    cursor_column: str | None = None
    read_from: TypedValue | None = None
    read_to: TypedValue | None = None
    include_null: bool = False
    lag_seconds: float = 0.0
    files: tuple[FileStamp, ...] | None = field(default=None, metadata=in_json("not_default"))

    @property
    def recorded(self) -> Interval:
        """As state and run records keep it: the log has the files."""
        return replace(self, files=None)

    @property
    def files_read(self) -> tuple[FileStamp, ...] | None:
        """The files that are read; None where this interval is not one of files, or only their log has them."""
        if self.files is None and isinstance(self.upper, FileLogPosition) and self.upper == self.lower:
            return ()  # nothing new: only keys are compared
        if self.files is not None or not isinstance(self.upper, FilesPosition):
            return self.files
        known = set(self.lower.files) if isinstance(self.lower, FilesPosition) else set()
        return tuple(stamp for stamp in self.upper.files if stamp not in known)
