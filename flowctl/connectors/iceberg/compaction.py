"""Merges small files into large ones: other files, the same rows.

PyIceberg has no compaction. Each commit is a snapshot with the operation REPLACE, which readers of changes skip, and
requires that the table's newest snapshot is the one whose files were read. If another writer commits first, the files
are chosen again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from flowctl import crashpoints
from flowctl.connectors.iceberg import data_files
from flowctl.connectors.iceberg.table import OpenTable, TablePlace, open_existing
from flowctl.connectors.iceberg.writer import Draft
from flowctl.connectors.lake.small_files import MANY, small_size
from flowctl.errors import TableError, TransientError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.typedef import Record as Partition

#: Bytes of files that one commit replaces: the work lost to a kill or to another writer's commit.
_COMMIT_BYTES = 1 << 30
_TRIES = 10


def groups(table: OpenTable) -> list[list[int]]:
    """Which files to write again, as groups of their indexes: the small files of each partition, if they become fewer.
    Files with deletions of their own are left to whoever writes those, and so are files of an older partitioning."""
    small = _small_size(table)
    by_partition: dict[Partition, list[int]] = defaultdict(list)
    for at, task in enumerate(table.files):
        file = task.file
        is_current = file.spec_id == table.metadata.default_spec_id
        if file.file_size_in_bytes < small and is_current and not task.delete_files:
            by_partition[file.partition].append(at)
    return [group for group in by_partition.values() if _written(table, group) < len(group)]


def saved_files(table: OpenTable, chosen: Sequence[Sequence[int]]) -> int:
    """By about how many files the table shrinks."""
    return sum(len(group) - _written(table, group) for group in chosen)


def is_due(table: OpenTable, chosen: Sequence[Sequence[int]]) -> bool:
    return saved_files(table, chosen) > MANY


def _small_size(table: OpenTable) -> int:
    return small_size(data_files.target_size(table.metadata))


def _written(table: OpenTable, group: Sequence[int]) -> int:
    """About how many files a group becomes."""
    size = sum(table.files[at].file.file_size_in_bytes for at in group)
    return max(-(-size // data_files.target_size(table.metadata)), 1)


def why_left_out(table: OpenTable) -> str:
    """Why flowctl does not compact the table; empty if it does."""
    if other := next((column for column in table.columns if column.as_text), None):
        return f"column {other.name} of type {other.native} is not written by flowctl"
    return ""


def compact(place: TablePlace, before_commit: Callable[[], None]) -> None:
    """Rewrites the files that :func:`groups` chooses until it chooses none, or a round leaves as many small ones.
    ``before_commit`` is called before each commit, and may raise."""
    lost = 0
    while True:
        table = open_existing(place)
        if why := why_left_out(table):
            raise TableError(f"{place.shown}: {why}", hint="Run `flowctl maintain` again")
        chosen = _up_to(_COMMIT_BYTES, table.files, groups(table))
        if not chosen:
            return
        added = _replace(table, chosen, before_commit)
        if added is None:
            lost += 1
        elif sum(file.file_size_in_bytes < _small_size(table) for file in added) >= len(chosen):
            return
        if lost == _TRIES:
            raise TransientError(f"{place.shown} is written by others too fast to be compacted")


def _up_to(most: int, files: Sequence[FileScanTask], chosen: Sequence[Sequence[int]]) -> list[int]:
    """As many groups as have about ``most`` bytes, at least one; of a large group only the first files."""
    found: list[int] = []
    size = 0
    for at in (at for group in chosen for at in group):
        size += files[at].file.file_size_in_bytes
        if len(found) > 1 and size > most:
            break
        found.append(at)
    return found


def _replace(table: OpenTable, chosen: Sequence[int], before_commit: Callable[[], None]) -> list[DataFile] | None:
    """Commits once and returns the new files; None if another writer has committed since the table was opened."""
    files, name = table.files, table.place.identifier[-1]
    removed = [files[at].file for at in chosen]
    draft = Draft(table, table.transaction())
    added = data_files.write(table.metadata, table.place.storage, _rows(table, chosen))
    expected, written = (sum(file.record_count for file in some) for some in (removed, added))
    if written != expected:
        raise TableError(
            f"{table.place.shown}: files of {expected:,} rows, as its manifests count them, have {written:,}",
            hint="Compare the table with its source, then report this with --verbose",
        )
    draft.replace_files(added, removed, same_rows=True)
    before_commit()
    crashpoints.reached("in_commit", name)
    is_committed = draft.hand_over()
    crashpoints.reached("after_commit", name)
    return added if is_committed else None


def _rows(table: OpenTable, chosen: Sequence[int]) -> Iterator[pa.RecordBatch]:
    from pyroaring import BitMap64

    search = table.search(table.columns, table.files)
    for at in chosen:
        for rows in search.other_rows(at, BitMap64()):
            yield from rows.to_batches()
