"""Finds and runs the maintenance due for one Iceberg table: compaction, expiration of snapshots, vacuum, in this order.

Each is safe by itself if any process is killed in between: a compaction is one commit for some files at a time, an
expiration one commit, and vacuum deletes what no snapshot needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flowctl import text
from flowctl.connectors.iceberg import compaction, expiration, vacuum
from flowctl.connectors.iceberg.table import OpenTable, TablePlace, open_existing
from flowctl.connectors.lake.small_files import MANY, small_size
from flowctl.connectors.lake.stored_files import removal
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.errors import TransientError
from flowctl.model.table_info import ObjectName, TableInfo

COMPACT, EXPIRE = "compact", "expire"
_TRIES = 10


def note_for_plan(info: TableInfo) -> str:
    """From what a plan knows, which are the totals of the newest snapshot; empty if nothing is due. Files of different
    partitions cannot be merged."""
    files, size = int(info.extra.get("files", 0)), info.rows.bytes
    if info.extra.get("partition_by") or size is None or files - size // small_size(info.extra["target_size"]) <= MANY:
        return ""
    return f"{files:,} files of {text.size(size // files)} on average"


def find_due(table: OpenTable, object: ObjectName) -> Maintenance:
    """Reads the manifests and lists the table's folder."""
    metadata, left_out = table.metadata, []
    tasks: list[Task] = []
    chosen = compaction.groups(table)
    if compaction.is_due(table, chosen):
        if why := compaction.why_left_out(table):
            left_out.append(f"compaction: {why}")
        else:
            tasks.append(_compaction(table, chosen))
    if not expiration.is_allowed(metadata):
        left_out.append("gc.enabled is false: snapshots and files are left to its owner")
        return Maintenance(object, tuple(tasks), "; ".join(left_out))
    days = f"{expiration.retention_seconds(metadata) / 86400:g} days"
    old = expiration.expired(metadata)
    if old:
        told = f"{text.counted(len(old), 'snapshot')} replaced over {days} ago"
        tasks.append(Task(EXPIRE, told, {"snapshots": len(old)}))
    files, why = vacuum.due(table, set(old))
    if why:
        left_out.append(why)
    elif files:
        tasks.append(removal(files, "that no other snapshot needs"))
    return Maintenance(object, tuple(tasks), "; ".join(left_out))


def carry_out(place: TablePlace, due: Maintenance, before_commit: Callable[[], None]) -> Iterator[Task]:
    """Runs each task of ``due`` and yields what was done."""
    for task in due.tasks:
        before_commit()
        if task.name == COMPACT:
            before = len(open_existing(place).files)
            compaction.compact(place, before_commit)
            after = len(open_existing(place).files)
            yield Task(COMPACT, f"{before:,} files became {after:,}", {"files": before, "files_after": after})
        elif task.name == EXPIRE:
            yield _expire(place, before_commit)
        else:
            table = open_existing(place)
            files, _ = vacuum.due(table)
            vacuum.delete(table, files, before_commit)
            yield removal(files, "removed")


def _compaction(table: OpenTable, chosen: Sequence[Sequence[int]]) -> Task:
    files = table.files
    after = len(files) - compaction.saved_files(table, chosen)
    size = sum(files[at].file.file_size_in_bytes for group in chosen for at in group)
    told = f"{len(files):,} files become about {after:,}; {text.size(size)} written again"
    return Task(COMPACT, told, {"files": len(files), "files_after": after, "bytes": size})


def _expire(place: TablePlace, before_commit: Callable[[], None]) -> Task:
    for _ in range(_TRIES):
        table = open_existing(place)
        old = expiration.expired(table.metadata)
        before_commit()
        if not old or expiration.expire(table, old):
            return Task(EXPIRE, f"{text.counted(len(old), 'snapshot')} removed", {"snapshots": len(old)})
    raise TransientError(f"{place.shown} is written by others too fast to expire its snapshots")
