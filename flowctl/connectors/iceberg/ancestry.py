"""Whether a table's content includes that of a snapshot which has expired.

Newer metadata does not say: a table that was rolled back, written again and then cleaned up looks like one whose older
snapshots have merely expired. Earlier metadata, which a table keeps for some commits, still has the parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from flowctl.connectors.at_once import at_once

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

#: Metadata files that are read at the same time.
_AT_ONCE = 16


def is_left_behind(metadata: TableMetadata, snapshot_id: int, version: int, earlier: Iterable[TableMetadata]) -> bool:
    """Whether the newest snapshot certainly does not follow ``snapshot_id``, which had the number ``version``.
    ``earlier`` are older metadata of the table, newest first; only as many are read as it takes."""
    main = metadata.snapshot_by_name("main")
    if main is None:
        return True
    known: dict[int, Snapshot] = {}
    for one in chain([metadata], earlier):
        _learn(known, one)
        found = _follows(known, main.snapshot_id, snapshot_id, version)
        if found is not None:
            return not found
    return False


def read_earlier(metadata: TableMetadata, io: FileIO) -> Iterator[TableMetadata]:
    """The metadata before ``metadata``, newest first, up to the first that was deleted or cannot be read."""
    from pyiceberg.serializers import FromInputFile

    def read(path: str) -> TableMetadata | None:
        try:
            return FromInputFile.table_metadata(io.new_input(path))
        except (FileNotFoundError, PermissionError):
            return None

    paths: Sequence[str] = [entry.metadata_file for entry in reversed(metadata.metadata_log)]
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        found = at_once(read, {path: path for path in some})
        for path in some:
            if (one := found[path]) is None:
                return
            yield one


def _learn(known: dict[int, Snapshot], metadata: TableMetadata) -> None:
    """A snapshot whose parent has expired may no longer name it."""
    for one in metadata.snapshots:
        if one.snapshot_id not in known or known[one.snapshot_id].parent_snapshot_id is None:
            known[one.snapshot_id] = one


def _follows(known: dict[int, Snapshot], newest: int, wanted: int, version: int) -> bool | None:
    """None: not known yet."""
    at: int | None = newest
    while at is not None and at != wanted:
        if at not in known:
            return None
        if (known[at].sequence_number or 0) < version:
            return False
        at = known[at].parent_snapshot_id
    return True if at == wanted else None
