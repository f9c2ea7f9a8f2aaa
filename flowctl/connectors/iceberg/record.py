"""How the record of a commit is kept, and how the newest one is found from a table's metadata alone.

A record is a property of its snapshot, so it becomes visible with the rows, and a rollback takes it back. The table has
a copy of the newest one of each application as a property of its own, which the same commit sets: snapshots expire, and
a rollback does not take back the property, so no number is used twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from flowctl.connectors.iceberg.ancestry import is_left_behind
from flowctl.connectors.lake.record import Record, counts, parse
from flowctl.model.commit import Commit

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

#: Properties of a snapshot: its record, and what the commit counted.
RECORD, METRICS = "flowctl.record", "flowctl.metrics"
#: The first part of the table's properties; the application id follows.
_NEWEST = "flowctl.newest."


def snapshot_properties(record: Record, metrics: Mapping[str, int]) -> dict[str, str]:
    return {RECORD: record.text, METRICS: json.dumps(dict(metrics))}


def table_properties(record: Record, snapshot_id: int, version: int) -> dict[str, str]:
    newest = {"record": record.text, "snapshot": snapshot_id, "version": version}
    return {f"{_NEWEST}{record.app_id}": json.dumps(newest)}


def newest(metadata: TableMetadata, app: str, earlier: Iterable[TableMetadata]) -> Record | None:
    """The record of the newest number of ``app``. ``earlier`` are older metadata of the table, newest first, which are
    read if its snapshot has expired.

    A rollback reverts content but not numbers. The result then has the newest number (the next must be higher) and the
    rest from the commit whose content the table has now, so it equals nothing in state.
    """
    text = metadata.properties.get(f"{_NEWEST}{app}")
    if text is None:
        return None
    kept = json.loads(text)
    record = parse(kept["record"])
    if record is None:
        return None
    for snapshot in ancestors(metadata):
        if snapshot.snapshot_id == kept["snapshot"]:
            return _logged(record, snapshot)
        if (snapshot.sequence_number or 0) < kept["version"]:
            break
    else:  # all that are left are younger: it has expired
        if not is_left_behind(metadata, kept["snapshot"], kept["version"], earlier):
            return record.logged(version=kept["version"], restored=record.restores or None)
    for snapshot in ancestors(metadata):
        before = record_of(snapshot, app)
        if before is not None:
            return before.logged(seq=record.seq, restored=before.restores or before.seq)
    _, lineage, name = app.split(":", 2)
    return Record(Commit(lineage, name, record.seq, "", str(metadata.table_uuid), None))


def record_of(snapshot: Snapshot, app: str) -> Record | None:
    """The record of ``app`` in a snapshot; None if it has none."""
    record = parse(snapshot.summary[RECORD]) if snapshot.summary is not None else None
    return _logged(record, snapshot) if record is not None and record.app_id == app else None


def _logged(record: Record, snapshot: Snapshot) -> Record:
    metrics = json.loads((snapshot.summary[METRICS] if snapshot.summary is not None else None) or "{}")
    return record.logged(version=snapshot.sequence_number, counts=counts(metrics), restored=record.restores or None)


def ancestors(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The newest snapshot, and those before it as far as they are kept."""
    snapshot = metadata.snapshot_by_name("main")
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = metadata.snapshot_by_id(parent) if parent is not None else None
