"""The changes of rows between two versions of a table: how they are read, whether they still can be, and how many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flowctl.connectors.iceberg.deletions import Deletions
from flowctl.connectors.iceberg.scan import Scan
from flowctl.connectors.iceberg.versions import LiveFile, TableVersion, older_version, version_at, version_of
from flowctl.connectors.lake.difference import MOST_BYTES, net_rows, with_key
from flowctl.connectors.lake.part import Part
from flowctl.connectors.lake.version_capture import why_another
from flowctl.connectors.source import ReadRequest, VersionChanges
from flowctl.engine.cost import IN_MEMORY_BYTES
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column, Estimate, RowEstimate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table.snapshots import Snapshot
    from pyroaring import BitMap64

#: Counts in a snapshot's summary of what does more than add rows, and one that every summary with counts has.
_CHANGING, _COUNTED = ("deleted-data-files", "added-delete-files", "removed-delete-files"), "total-data-files"


@dataclass(frozen=True)
class FilePart:
    """Rows of a data file: those with the numbers ``rows``, or None for all that live in their version."""

    file: LiveFile
    rows: BitMap64 | None = None

    @property
    def size(self) -> int:
        """In bytes, roughly."""
        size = self.file.file.file_size_in_bytes
        return size if self.rows is None else size * len(self.rows) // max(1, self.file.file.record_count)


@dataclass(frozen=True)
class ChangedFiles:
    """``removed`` live in the older version only, ``added`` in the newer one only."""

    removed: tuple[FilePart, ...]
    added: tuple[FilePart, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in (*self.removed, *self.added))


@dataclass(frozen=True)
class VersionRange:
    """The versions after ``lower`` up to ``upper``. If all snapshots only added rows, or wrote the same rows into other
    files, the files that they added are read. Otherwise the files of both versions are compared, and of files that both
    have, the rows that only one of them hides."""

    lower: TableVersion
    upper: TableVersion

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...] | None:
        """Those after ``lower``, oldest first; None if ``upper`` does not follow it, or one between has expired."""
        if self.lower.snapshot is None:  # all that lives is new; which snapshots had less is not known for sure
            return None
        found: list[Snapshot] = []
        snapshot = self.upper.snapshot
        while snapshot is not None and snapshot.snapshot_id != self.lower.snapshot.snapshot_id:
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = self.upper.handle.metadata.snapshot_by_id(parent) if parent is not None else None
        return tuple(reversed(found)) if snapshot is not None else None

    @cached_property
    def removes(self) -> str:
        """The first version that removed or changed rows; empty if none did."""
        if self.snapshots is None:
            return f"version {self.upper.version}, or one before it," if self.files.removed else ""
        return next((_shown(snapshot) for snapshot in self.snapshots if _removes(snapshot)), "")

    @cached_property
    def files(self) -> ChangedFiles:
        if self.snapshots is not None and not any(map(_removes, self.snapshots)):
            added = (file for one in self.snapshots if not _moves(one) for file in self.upper.added_by(one))
            return ChangedFiles((), tuple(map(FilePart, added)))
        return self._difference()

    def _difference(self) -> ChangedFiles:
        before, after = self.lower.data, self.upper.data
        removed = [FilePart(file) for path, file in before.items() if path not in after]
        added = [FilePart(file) for path, file in after.items() if path not in before]
        was, now = self._deletions
        for path in before.keys() & after.keys():
            old, new = before[path], after[path]
            if was.files_for(old) == now.files_for(new):
                continue
            hidden_before, hidden_now = was.hidden(old), now.hidden(new)
            if gone := hidden_now - hidden_before:
                removed.append(FilePart(old, gone))
            if back := hidden_before - hidden_now:
                added.append(FilePart(new, back))
        return ChangedFiles(tuple(removed), tuple(added))

    @cached_property
    def _deletions(self) -> tuple[Deletions, Deletions]:
        return Deletions(self.lower), Deletions(self.upper)

    def parts(self, columns: tuple[Column, ...], request: ReadRequest) -> Iterator[Part]:
        """``columns`` of the rows that ``request`` wants."""
        if not request.net or not self.files.removed:
            yield from self._added_rows(columns)
            return
        wider = with_key(columns, request.key, self.upper.columns)
        names = [column.name for column in columns]
        removed = self._removed_rows(wider)
        yield from net_rows(self._added_rows(wider), removed, wider, request.key, names, self.upper.place.shown)

    def _added_rows(self, columns: tuple[Column, ...]) -> Iterator[Part]:
        """In the order of versions."""
        import pyarrow as pa

        scan, (_, deletions) = Scan(self.upper, columns), self._deletions
        for part in sorted(self.files.added, key=lambda part: part.file.version):
            version = pa.scalar(part.file.version or self.upper.version, pa.int64())
            for batch in _rows(scan, part, deletions):
                yield Part(batch, versions=pa.repeat(version, batch.num_rows))

    def _removed_rows(self, columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
        scan, (deletions, _) = Scan(self.upper, columns), self._deletions
        for part in self.files.removed:
            yield from _rows(scan, part, deletions)


def _rows(scan: Scan, part: FilePart, deletions: Deletions) -> Iterator[pa.RecordBatch]:
    hidden = deletions.hidden(part.file) if part.rows is None else None
    return scan.rows(part.file, only=part.rows, without=hidden)


def range_between(lower: VersionPosition, upper: TableVersion) -> VersionRange:
    """:class:`TableError` if ``lower`` has expired."""
    return VersionRange(version_at(upper, lower), upper)


def changes_since(
    position: VersionPosition, upper: TableVersion, request: ReadRequest, estimate: Estimate
) -> VersionChanges:
    """What a plan knows of the changes after the version of ``position``."""
    since = position.version
    if why := why_another(position, upper.stamp_of(since)):
        return VersionChanges(since, lost=why)
    try:
        found = range_between(position, upper)
        if reason := _renamed(found.lower, upper, request.columns):
            return VersionChanges(since, lost=f"{reason} since version {since}")
        if request.net and not request.key and (removes := found.removes):
            return VersionChanges(since, removes=removes)
        size = found.files.size
        if request.net and found.files.removed and size > MOST_BYTES:
            return VersionChanges(since, lost=f"the files that changed since version {since} are larger than 128 MiB")
        return VersionChanges(since, _count(found, request, size, estimate), removes=found.removes)
    except TableError as error:
        return VersionChanges(since, lost=error.message)


def why_lost(lower: int | None, upper: VersionPosition, newest: TableVersion) -> str:
    """Why an interval that an earlier run has begun can no longer be read; empty if it can. ``lower``: None for the
    whole table at version ``upper``."""
    if why := why_another(upper, newest.stamp_of(upper.version)):
        return why
    try:
        older_version(newest, upper.version)
        if lower is not None:
            older_version(newest, lower)
    except TableError as error:
        return error.message
    return ""


def count_rows(version: TableVersion, estimate: Estimate) -> RowEstimate:
    """Exact from the manifests if nothing is deleted, or if counting is asked for."""
    if estimate == "count" and version.has_deletions:
        deletions = Deletions(version)
        rows = sum(one.file.record_count - len(deletions.hidden(one)) for one in version.data.values())
        return RowEstimate(rows, "count", _size(version.data.values()))
    stored = version.stored_rows
    if stored is None:
        stored = sum(one.file.record_count for one in version.data.values())
    return RowEstimate(stored, "stats" if version.has_deletions else "count", _total_size(version))


def _total_size(version: TableVersion) -> int | None:
    """From the snapshot's summary, which writers may leave out."""
    summary = version.snapshot.summary if version.snapshot is not None else None
    text = summary["total-files-size"] if summary is not None else None
    return int(text) if text is not None and text.isdigit() else None


def _size(files: Iterable[LiveFile]) -> int:
    return sum(one.file.file_size_in_bytes for one in files)


def _count(found: VersionRange, request: ReadRequest, size: int, estimate: Estimate) -> RowEstimate:
    """Exact if only files' rows count, or if few bytes have to be compared, or if counting is asked for."""
    if estimate == "none":
        return RowEstimate(bytes=size)
    if found.files.removed and request.net and (size <= IN_MEMORY_BYTES or estimate == "count"):
        return RowEstimate(sum(part.rows.num_rows for part in found.parts(request.columns, request)), "count", size)
    added, (_, deletions) = found.files.added, found._deletions
    if found.files.removed and request.net:
        return RowEstimate(sum(_stored(part) for part in added) or None, "stats" if added else "unknown", size)
    hidden = sum(len(deletions.hidden(part.file)) for part in added if part.rows is None)
    return RowEstimate(sum(map(_stored, added)) - hidden, "count", size)


def _stored(part: FilePart) -> int:
    return part.file.file.record_count if part.rows is None else len(part.rows)


def _removes(snapshot: Snapshot) -> bool:
    """Whether it may have removed or changed rows."""
    from pyiceberg.table.snapshots import Operation

    summary = snapshot.summary
    if summary is None:
        return True
    if summary.operation in (Operation.APPEND, Operation.REPLACE):
        return False
    if summary.operation != Operation.OVERWRITE:
        return True
    return summary[_COUNTED] is None or any(summary[name] not in (None, "0") for name in _CHANGING)


def _moves(snapshot: Snapshot) -> bool:
    """Whether it only wrote the same rows into other files."""
    from pyiceberg.table.snapshots import Operation

    return snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE


def _shown(snapshot: Snapshot) -> str:
    operation = f" ({snapshot.summary.operation.value})" if snapshot.summary is not None else ""
    return f"version {version_of(snapshot)}{operation}"


def _renamed(lower: TableVersion, upper: TableVersion, columns: Sequence[Column]) -> str:
    """The first column of which unchanged rows have other values now, because of a change of the schema; empty if there
    is none."""
    from pyiceberg.schema import index_by_name, index_name_by_id

    names, ids = index_name_by_id(lower.schema), index_by_name(lower.schema)
    before, now = ({column.name: column.type for column in one.columns} for one in (lower, upper))
    read = {column.name for column in columns} & now.keys()
    for path, field in index_by_name(upper.schema).items():
        if path not in read and path.partition(".")[0] not in read:
            continue
        if (former := names.get(field, path)) != path:
            return f"column {path} was renamed from {former}"
        if field not in names and path in ids:
            return f"column {path} was dropped and added again"
        old, new = before.get(path), now.get(path)
        if old is not None and new is not None and old != new and not types.is_wider(new, old):
            return f"the type of column {path} was changed"
    return ""
