"""The record of a commit, stored with the data in the log, and how the newest one is found without Spark.

A record is the ``userMetadata`` of its commit. Delta also has the sequence number: it is the version of our application
id, which every checkpoint repeats. The record of the newest number is found by walking the commits back. Thirty days of
a foreign writer's commits can push it out of the log, so a copy is kept in ``_flowctl/commits/``. The copy is written
after the commit was read back, and counts only if it has the number that Delta has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowctl import delays
from flowctl.connectors.delta import log
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.lake.record import Record, counts, parse
from flowctl.model import codec
from flowctl.model.commit import Commit

if TYPE_CHECKING:
    from deltalake import DeltaTable

RECORDS = "_flowctl/commits"
#: The only key of the ``userMetadata`` of a CREATE: the intent that the table is created for.
_CREATED_FOR = "flowctl_created_for"
#: A table with a later version than this is already in use.
_MOST_VERSIONS = 20


def newest_record(location: TableLocation, table: DeltaTable, app: str) -> Record | None:
    """The record of the newest number of ``app``.

    RESTORE reverts content but not numbers. The result then has the newest number (the next must be higher) and the
    rest from the commit whose content the table has now, so it equals nothing in state.
    """
    delays.pause()
    with suppress(OSError):  # deleted after a checkpoint, or a store that deltalake reaches and fsspec does not
        newest = record_in(log.commit_info(log.read_entry(location, table.version())), table.version(), app)
        if newest is not None:
            return newest
    number = table.transaction_version(app)
    if number is None:
        return None
    restored_to = None
    for version, actions in log.read_back_from(location, table.version()):
        if restored_to is not None and version > restored_to:
            continue
        info = log.commit_info(actions)
        record = record_in(info, version, app)
        if record is not None and restored_to is not None:
            return record.logged(seq=number, restored=record.restores or record.seq)
        if record is not None and record.seq == number:
            return record
        if info.get("operation") == "RESTORE":
            restored = (info.get("operationParameters") or {}).get("version")
            restored_to = int(restored) if restored is not None else -1  # restored by time: older than all commits
    kept = _read_copy(location, app)
    if restored_to is None and kept is not None and kept.seq == number:
        return kept
    _, lineage, name = app.split(":", 2)
    return Record(Commit(lineage, name, number, "", str(table.metadata().id), None))


def record_in(info: Mapping[str, Any], version: int, app: str) -> Record | None:
    """The record of ``app`` in the ``commitInfo`` of ``version``; None if it has none."""
    record = parse(info.get("userMetadata"))
    if record is None or record.app_id != app:
        return None
    return record.logged(
        version=version, counts=counts(info.get("operationMetrics") or {}), restored=record.restores or None
    )


def keep_copy(location: TableLocation, record: Record) -> Record:
    """Keeps a copy of the record of a commit that was read back, for when the log no longer has it. The commit is valid
    without it, and the next one writes a new copy: a failure is only a warning."""
    path = f"{location.url}/{_copy_name(record.app_id)}"
    try:
        content = json.dumps({"version": record.commit.version, "record": codec.to_json(record)})
        location.file_system().pipe_file(path, content.encode())
    except OSError as error:
        return record.warned(f"committed, but {path} could not be written: {error.strerror or error}")
    return record


def _read_copy(location: TableLocation, app: str) -> Record | None:
    try:
        kept = json.loads(location.read_file(_copy_name(app)))
    except (FileNotFoundError, ValueError):  # none yet, or incomplete after a crash
        return None
    record = codec.from_json(Record, kept["record"])
    return record.logged(version=kept["version"], restored=record.restores or None)


def _copy_name(app: str) -> str:
    return f"{RECORDS}/{app.replace(':', '-').replace('/', '-')}.json"


def created_for(intent_id: str) -> str:
    """The ``userMetadata`` of the CREATE of a table that ``intent_id`` needs. CREATE is a commit of its own, before the
    data: a run that dies between the two leaves an empty table, and only this distinguishes it from a foreign one."""
    return json.dumps({_CREATED_FOR: intent_id})


def creator(location: TableLocation, version: int) -> str:
    """The intent that the table was created for, while nothing has been committed to it; empty for any other table. Its
    columns may have changed: a run that is resumed does that before its first commit."""
    if version > _MOST_VERSIONS:
        return ""
    try:
        commits = [log.read_entry(location, number) for number in range(version + 1)]
    except OSError:  # the log no longer begins at version 0
        return ""
    if any("add" in action or "txn" in action for commit in commits for action in commit):
        return ""
    try:
        written = json.loads(log.commit_info(commits[0]).get("userMetadata") or "null")
    except ValueError:
        return ""
    return str(written.get(_CREATED_FOR, "")) if isinstance(written, dict) else ""
