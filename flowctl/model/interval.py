"""What one step reads: ``(lower, upper]`` over positions, fixed when the plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowctl.model import position, value
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
    files: tuple[FileStamp, ...] | None = None

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


def to_json(interval: Interval) -> dict[str, Any]:
    listed = interval.files
    files = {} if listed is None else {"files": [[stamp.path, stamp.size, stamp.tag] for stamp in listed]}
    return {
        "lower": position.to_json(interval.lower) if interval.lower else None,
        "upper": position.to_json(interval.upper),
        "cursor_column": interval.cursor_column,
        "read_from": interval.read_from.to_json() if interval.read_from else None,
        "read_to": interval.read_to.to_json() if interval.read_to else None,
        "include_null": interval.include_null,
        "lag_seconds": interval.lag_seconds,
        **files,
    }


def from_json(document: Mapping[str, Any]) -> Interval:
    def bound(name: str) -> TypedValue | None:
        return value.from_json(document[name]) if document[name] else None

    return Interval(
        lower=position.from_json(document["lower"]) if document["lower"] else None,
        upper=position.from_json(document["upper"]),
        cursor_column=document["cursor_column"],
        read_from=bound("read_from"),
        read_to=bound("read_to"),
        include_null=document["include_null"],
        lag_seconds=document["lag_seconds"],
        files=tuple(FileStamp(*entry) for entry in document["files"]) if "files" in document else None,
    )
