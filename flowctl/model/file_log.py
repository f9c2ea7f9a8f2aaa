"""The log of files that a table has read: immutable entries, each named by the digest of its content.

State, intents, commits in targets and run records refer to an entry (:class:`flowctl.model.position.FileLogPosition`)
instead of listing every file. An entry lists the files that one commit read, and refers to the older entries whose
files were read before. It is written before the intent that refers to it, so every reference resolves: a crash leaves
at most an unreferenced entry. Equal content has the same name, so concurrent writers of one entry are harmless, and a
position that is set, rolled back or adopted always leads to the same files.

**Compaction.** A new entry absorbs the files of the newest older entries as long as these are no larger than itself,
and no longer refers to them. A position therefore leads to about log2(n) entries at most, and each file is written
about log2(n) times in total.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flowctl.model import codec
from flowctl.model.position import FileLogPosition, FilesPosition, FileStamp, Position

FORMAT = 1


@dataclass(frozen=True)
class FileEntry:
    """One entry of ``table``'s log. ``before`` lists the digests of older entries (oldest first), ``taken_in`` the
    files of entries that this one replaces, ``read`` the files of its own commit. A later stamp of a path replaces an
    earlier one."""

    table: str
    read: tuple[FileStamp, ...]
    taken_in: tuple[FileStamp, ...] = ()
    before: tuple[str, ...] = ()

    @cached_property
    def data(self) -> bytes:
        """Canonical JSON: equal entries have equal bytes."""
        document = {
            "format": FORMAT,
            "table": self.table,
            "before": list(self.before),
            "taken_in": codec.to_json(self.taken_in),
            "read": codec.to_json(self.read),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def files(self) -> tuple[FileStamp, ...]:
        """All files in this entry, in the order in which they were read."""
        return (*self.taken_in, *self.read)


def entry_from_json(document: Mapping[str, Any]) -> FileEntry:
    """Raises ``ValueError`` for an entry written by a newer flowctl."""
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']}, this flowctl reads {FORMAT}")
    return codec.from_json(FileEntry, document)


@dataclass(frozen=True)
class FileLog:
    """What a table has read up to one position: the entries reachable from the position, oldest first."""

    entries: tuple[FileEntry, ...] = ()

    @cached_property
    def files(self) -> Mapping[str, FileStamp]:
        """The files by path, each as it was when last read."""
        return {stamp.path: stamp for entry in self.entries for stamp in entry.files}

    @property
    def position(self) -> FileLogPosition | None:
        """The newest entry; None if nothing was read."""
        return FileLogPosition(self.entries[-1].digest, len(self.files)) if self.entries else None

    def with_read(self, table: str, read: Iterable[FileStamp]) -> FileLog:
        """Returns the log after reading ``read``: a new entry, and the older ones that it does not absorb."""
        new = tuple(sorted(read, key=lambda stamp: stamp.path))
        older, taken_in = list(self.entries), dict[str, FileStamp]()
        while older and len(older[-1].files) <= len(taken_in) + len(new):
            taken_in = {stamp.path: stamp for stamp in older.pop().files} | taken_in
        before = tuple(entry.digest for entry in older)
        return FileLog((*older, FileEntry(table, new, tuple(taken_in.values()), before)))


def log_of(table: str, recorded: Position | None) -> FileLog:
    """Converts the position of an older flowctl, which lists its files, into a log; empty for other positions."""
    if not isinstance(recorded, FilesPosition) or not recorded.files:
        return FileLog()
    return FileLog().with_read(table, recorded.files)
