"""Commits that flowctl writes itself: one entry in the table's log, whoever has written the files.

Sail must have it so: it ignores the settings that tell Spark's Delta a sequence number, and keeps our record on some
statements only. On Spark it is the quicker way for what :mod:`flowctl.connectors.delta.choice` lists. Not by
``deltalake``: its entries are not synced to a local disk, cannot carry a deletion vector, and not be written to tables
with type widening.

- The new rows are files that no reader sees yet.
- One entry then says everything at once: our record, Delta's ``txn`` with our sequence number, a changed schema, the
  files that go and those that come.
- It is created only as the version right after the opened one, from which everything was worked out (Delta protocol,
  *Delta Log Entries*). Whoever else committed in between, a stale writer of our own run or a foreign one, makes that
  fail, and the batch is worked out anew.

So exactly the same holds as with Spark: a sequence number is committed once or never, whoever is killed or late. append
only adds, so it may take the next free version instead of starting again, once that very version, opened, says that the
number is still free. Nothing else may: "there was nothing to replace" holds for one version only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from flowctl import delays
from flowctl.connectors.delta import actions, log
from flowctl.connectors.delta.features import demanding_features
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.record import Record, counts, created_for, data_commit
from flowctl.connectors.delta.table import OpenTable, find_standing, open_existing, open_table
from flowctl.connectors.delta.types import Action
from flowctl.connectors.target import WriteJob
from flowctl.errors import StateConflict, TableError, TransientError

HINT = "Run this flow with spark.url local[*]"
_TRIES = 10
#: Delta's own default: readers need not look at more commits than this.
_CHECKPOINT_EVERY = 10
#: Features that ask nothing of a commit without data. Others (a catalog that owns the commits) do, or are unknown.
_HARMLESS = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "changeDataFeed",
        "columnMapping", "deletionVectors", "rowTracking", "timestampNtz", "typeWidening", "typeWidening-preview",
        "domainMetadata", "v2Checkpoint", "clustering", "vacuumProtocolCheck", "variantType", "variantType-preview",
        "allowColumnDefaults", "icebergCompatV1", "icebergCompatV2", "checkpointProtection",
    }
)  # fmt: skip


def prepare(location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
    """The table that ``job`` means, created empty where there is none. Two who create it at once get the one that came
    first. Columns are changed by the commit itself. :class:`TableError` for a table whose writers must do more than
    write files."""
    if table is None:
        create(location, job)
        table = open_table(location)
    if table is None:
        raise TransientError(f"{location.url} was removed as it was created")
    if more := demanding_features(table.features, table.properties):
        raise TableError(
            f"{location.url} has the Delta features {', '.join(more)}, which flowctl cannot write on Sail", hint=HINT
        )
    return table


def create(location: TableLocation, job: WriteJob) -> None:
    """The empty table that the job's CREATE TABLE says, unless somebody is faster."""
    info = actions.commit_info(created_for(job.record.intent_id), "CREATE TABLE", {}, {})
    protocol, metadata = actions.protocol(job), actions.metadata(job, str(uuid.uuid4()))
    if publish(location, 0, [info, protocol, metadata]):
        _write_checksum_of_empty(location, protocol, metadata)


def _write_checksum_of_empty(location: TableLocation, protocol: Action, metadata: Action) -> None:
    """What a reader may take for the state of version 0 instead of working it out, which costs Spark a quarter of the
    time of a first small batch (Delta protocol, *Version Checksum File*; optional)."""
    counted = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    lists: Action = {"setTransactions": [], "domainMetadata": [], "allFiles": []}
    state = json.dumps({**counted, **lists, "metadata": metadata["metaData"], **protocol})
    with suppress(TransientError, OSError):  # it makes reading faster and nothing else
        location.create_file(f"{log.FOLDER}/{0:020}.crc", state.encode())


def publish(location: TableLocation, version: int, content: Sequence[Action]) -> bool:
    """Creates the entry of ``version`` in one act; False when somebody else has it."""
    text = "".join(json.dumps(action) + "\n" for action in content)
    delays.pause()
    created = location.create_file(log.entry_name(version), text.encode())
    delays.pause()
    return created


def commit(
    table: OpenTable, record: Record, content: Sequence[Action], base: str | None = None, *, is_blind: bool = False
) -> Record:
    """Commits ``content``, which has ``record``, as the version after ``table``'s; with ``is_blind`` as that after a
    later one, opened anew, where the number is free, its base the same and neither schema nor protocol is another.
    Errors as :func:`flowctl.connectors.delta.spark_writer.commit_statement`."""
    newest = table
    for _ in range(_TRIES if is_blind else 1):
        if committed := _publish_record(newest.location, newest.version + 1, record, content):
            return _with_checkpoint(newest.location, newest.version + 1, committed)
        newest = open_existing(newest.location)
        if done := newest.standing(record, base):
            return done
        if (newest.metadata, newest.protocol) != (table.metadata, table.protocol):
            break
    raise TransientError(f"another writer committed to {table.location.url} at the same moment")


def void(location: TableLocation, job: WriteJob) -> Record:
    """Gives up a number: commits ``job.record`` without data, or returns the commit of that number that was faster:
    whichever, it is decided on the very version that the void is written over. No Spark needed.

    The commit has ``commitInfo`` and ``txn`` only, the two actions that touch neither data nor schema. A table that is
    not there yet is created, empty: a stale writer's ``CREATE TABLE IF NOT EXISTS`` then finds it, and its insert finds
    the number taken. :class:`TransientError` when other writers keep winning."""
    wanted = Record(job.record)
    for _ in range(_TRIES):
        table = open_table(location)
        if table is not None and (done := table.standing(wanted)):
            return done
        if table is None:
            target_id, version, before = str(uuid.uuid4()), 0, None
            setup = [actions.protocol(job), actions.metadata(job, target_id), *actions.clustering(job)]
        else:
            target_id, version, before, setup = table.identity, table.version + 1, table.newest(wanted.app_id), []
            _require_harmless(table)
        last = data_commit(before)
        record = Record(replace(job.record, target_id=target_id), attempt=last.attempt, data_seq=last.number)
        parameters = {"mode": "Append", "partitionBy": "[]"}
        info = actions.commit_info(record.user_metadata, "WRITE", parameters, actions.EMPTY)
        job.before_commit()
        content = [info, *setup, actions.transaction(record.app_id, record.seq)]
        if committed := _publish_record(location, version, record, content):
            return committed
    raise TransientError(f"{location.url} is written by others too fast to commit number {job.record.seq} as void")


def _require_harmless(table: OpenTable) -> None:
    unknown = sorted({*table.protocol.get("writerFeatures", ())} - _HARMLESS)
    if unknown:
        raise TableError(
            f"{table.location.url} has the Delta features {', '.join(unknown)}, under which flowctl cannot give up a "
            "number",
            hint="Let the pending number finish instead: run `flowctl apply` without changes to this table",
        )


def _publish_record(location: TableLocation, version: int, record: Record, content: Sequence[Action]) -> Record | None:
    """The commit, read back; None when somebody else has the version, and when the log says, after an error, that the
    number was committed all the same: whoever asks next finds it."""
    try:
        is_created = publish(location, version, content)
    except (OSError, TransientError):
        with suppress(OSError, TransientError, TableError):  # the first error says more
            if find_standing(location, record) is not None:
                return None
        raise
    return _read_back(location, version, record) if is_created else None


def _read_back(location: TableLocation, version: int, record: Record) -> Record:
    """A commit counts only once the log says that it is ours: a store may have lost it, or let two create one file."""
    try:
        info = log.commit_info(log.read_entry(location, version))
    except OSError as error:
        raise TransientError(f"{location.url}: version {version} was committed and cannot be read: {error}") from error
    if info.get("userMetadata") != record.user_metadata:
        raise StateConflict(
            f"{location.url}: version {version}, just committed, is another writer's",
            hint="Use a store that does not let two writers create one file, or one writer",
        )
    return record.logged(version=version, counts=counts(info["operationMetrics"]))


def _with_checkpoint(location: TableLocation, version: int, record: Record) -> Record:
    """What fails here is a warning, and the next tenth commit tries again."""
    if version % _CHECKPOINT_EVERY == 0 and (failure := write_checkpoint(location, version)):
        return record.warned(f"committed, but {failure}")
    return record


def write_checkpoint(location: TableLocation, version: int) -> str:
    """Of ``version``, the newest: it makes reading faster and nothing else. What failed, empty for nothing."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(location.url, storage_options=location.options or None)
        table.create_checkpoint()
        if table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") == "true":
            table.cleanup_metadata()  # as Spark does here: entries that are older than the table keeps them
    except (DeltaError, OSError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        return f"{location.url} got no checkpoint at version {version}: {line}"
    return ""
