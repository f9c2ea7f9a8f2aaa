"""Which snapshots a table no longer needs, and the commit that forgets them.

Their files are deleted afterwards, with all others that no snapshot needs (:mod:`.vacuum`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from time import time
from typing import TYPE_CHECKING

from flowctl.connectors.iceberg import record as records
from flowctl.connectors.iceberg.table import OpenTable
from flowctl.connectors.iceberg.writer import Draft
from flowctl.connectors.lake.stored_files import LEAST_RETENTION

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

#: Properties of a table: how long its snapshots are kept, in milliseconds, how many at least, and whether others may
#: delete its files.
_AGE, _LEAST, _ALLOWED = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep", "gc.enabled"


def retention_seconds(metadata: TableMetadata) -> float:
    """How long a version can be read after it was replaced, at least a week."""
    ages = [_number(metadata.properties, _AGE), *(ref.max_snapshot_age_ms for ref in metadata.refs.values())]
    return max(LEAST_RETENTION, *(age / 1000 for age in ages if age is not None), 0)


def is_allowed(metadata: TableMetadata) -> bool:
    return metadata.properties.get(_ALLOWED, "true").lower() != "false"


def expired(metadata: TableMetadata) -> list[int]:
    """The ids of snapshots that were replaced before the retention began. What a tag or another branch needs stays."""
    before = (time() - retention_seconds(metadata)) * 1000
    main = list(records.ancestors(metadata))
    kept = {one.snapshot_id for one in main[: max(1, _least(metadata))]}
    # A version is readable until its successor was made.
    kept |= {older.snapshot_id for newer, older in pairwise(main) if newer.timestamp_ms >= before}
    for name, ref in metadata.refs.items():
        if name != "main":
            kept |= {one.snapshot_id for one in _ancestors_of(metadata, ref.snapshot_id)}
    on_main = {one.snapshot_id for one in main}
    return [
        one.snapshot_id
        for one in metadata.snapshots
        if one.snapshot_id not in kept and (one.snapshot_id in on_main or one.timestamp_ms < before)
    ]


def expire(table: OpenTable, snapshot_ids: list[int]) -> bool:
    """Commits; False if another writer has committed since the table was opened."""
    from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate

    draft, newest = Draft(table, table.transaction()), table.snapshot
    unchanged = {"ref": "main", "snapshot-id": newest.snapshot_id if newest is not None else None}
    draft.apply(
        RemoveSnapshotsUpdate.model_validate({"snapshot-ids": snapshot_ids}),
        AssertRefSnapshotId.model_validate(unchanged),
    )
    return draft.hand_over()


def _ancestors_of(metadata: TableMetadata, snapshot_id: int) -> list[Snapshot]:
    found: list[Snapshot] = []
    snapshot = metadata.snapshot_by_id(snapshot_id)
    while snapshot is not None:
        found.append(snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = metadata.snapshot_by_id(parent) if parent is not None else None
    return found


def _least(metadata: TableMetadata) -> int:
    of_main = metadata.refs["main"].min_snapshots_to_keep if "main" in metadata.refs else None
    return max(of_main or 1, _number(metadata.properties, _LEAST) or 1)


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name, "")
    return int(text) if text.isdigit() else None
