"""Commits that flowctl writes itself: one entry in the table's log, whichever engine wrote the files.

Sail requires it: it ignores the settings that pass a sequence number to Spark's Delta, and keeps our record for some
statements only. On Spark it is faster in the cases that :mod:`flowctl.connectors.delta.choice` lists. ``deltalake`` is
not used: it does not sync its entries to a local disk, and cannot write deletion vectors, or tables with type widening.

- The new rows are in files that no reader sees yet.
- One entry then makes everything visible at the same time: our record, Delta's ``txn`` with our sequence number, a
  changed schema, the removed files and the added ones.
- It is created only as the version right after the opened one, from which everything was computed (Delta protocol,
  *Delta Log Entries*). If another writer, a stale one of our own run or a foreign one, has committed in between,
  creating the entry fails and the batch is computed again.

So the guarantee is the same as with Spark: a sequence number is committed once or never, whichever process is killed or
late. An append only adds rows, so it may take the next free version instead of starting over, if the version before it,
once opened, shows that the number is still free. Nothing else may: "there was nothing to replace" holds for one version
only.
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
from flowctl.connectors.delta.record import created_for
from flowctl.connectors.delta.table import OpenTable, find_standing, open_existing, open_table
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.record import Record, counts, data_commit
from flowctl.connectors.target import WriteJob
from flowctl.errors import StateConflict, TableError, TransientError, WriteConflict

HINT = "Run this flow with spark.url local[*]"
_TRIES = 10
#: Delta's own default: readers need not read more commits than this.
_CHECKPOINT_EVERY = 10
#: Features that require nothing of a commit without data. Others (a catalog that owns the commits) do, or are unknown.
_HARMLESS = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "changeDataFeed",
        "columnMapping", "deletionVectors", "rowTracking", "timestampNtz", "typeWidening", "typeWidening-preview",
        "domainMetadata", "v2Checkpoint", "clustering", "vacuumProtocolCheck", "variantType", "variantType-preview",
        "allowColumnDefaults", "icebergCompatV1", "icebergCompatV2", "checkpointProtection",
    }
)  # fmt: skip


def prepare(location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
    """Returns the table that ``job`` targets, created empty if it does not exist. If two writers create it at the same
    time, both get the first one's. The commit itself changes columns. :class:`TableError` for a table that
    requires more of its writers than writing files."""
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
    """Creates the empty table that the job's CREATE TABLE describes, unless another writer is faster."""
    info = actions.commit_info(created_for(job.record.intent_id), "CREATE TABLE", {}, {})
    protocol, metadata = actions.protocol(job), actions.metadata(job, str(uuid.uuid4()))
    if publish(location, 0, [info, protocol, metadata]):
        _write_checksum_of_empty(location, protocol, metadata)


def _write_checksum_of_empty(location: TableLocation, protocol: Action, metadata: Action) -> None:
    """Writes the state of version 0, so that readers need not compute it, which costs Spark a quarter of the time of a
    first small batch (Delta protocol, *Version Checksum File*; optional)."""
    counted = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    lists: Action = {"setTransactions": [], "domainMetadata": [], "allFiles": []}
    state = json.dumps({**counted, **lists, "metadata": metadata["metaData"], **protocol})
    with suppress(TransientError, OSError):  # it only makes reading faster
        location.create_file(f"{log.FOLDER}/{0:020}.crc", state.encode())


def publish(location: TableLocation, version: int, content: Sequence[Action]) -> bool:
    """Creates the entry of ``version`` atomically; False if another writer has created it."""
    text = "".join(json.dumps(action) + "\n" for action in content)
    delays.pause()
    created = location.create_file(log.entry_name(version), text.encode())
    delays.pause()
    return created


def commit(
    table: OpenTable, record: Record, content: Sequence[Action], base: str | None = None, *, is_blind: bool = False
) -> Record:
    """Commits ``content``, which includes ``record``, as the version after ``table``'s. With ``is_blind`` it may follow
    a later version, opened again, if the number is free, the base is the same and schema and protocol are unchanged.
    Errors as :func:`flowctl.connectors.delta.spark_commit.commit_statement`."""
    newest = table
    for _ in range(_TRIES if is_blind else 1):
        if committed := _publish_record(newest.location, newest.version + 1, record, content):
            return _with_checkpoint(newest.location, newest.version + 1, committed)
        newest = open_existing(newest.location)
        if done := newest.standing(record, base):
            return done
        if (newest.metadata, newest.protocol) != (table.metadata, table.protocol):
            break
    raise WriteConflict(f"another writer committed to {table.location.url} at the same moment")


def void(location: TableLocation, job: WriteJob) -> Record | None:
    """Gives up a number: commits ``job.record`` without data, or returns an earlier commit of that number.
    This is decided on the exact version that the void follows. Needs no Spark.

    The commit has ``commitInfo`` and ``txn`` only, the two actions that affect neither data nor schema. A table that
    does not exist yet is created, empty: a stale writer's ``CREATE TABLE IF NOT EXISTS`` then finds it, and its insert
    finds the number taken. Without columns there can be no table (readers refuse one): None.
    :class:`TransientError` if other writers keep winning."""
    wanted = Record(job.record)
    for _ in range(_TRIES):
        table = open_table(location)
        if table is not None and (done := table.standing(wanted)):
            return done
        if table is None and not job.columns:
            return None
        if table is None:
            target_id, version, before = str(uuid.uuid4()), 0, None
            setup = [actions.protocol(job), actions.metadata(job, target_id), *actions.clustering(job)]
        else:
            target_id, version, before, setup = table.identity, table.version + 1, table.newest(wanted.app_id), []
            _require_harmless(table)
        last = data_commit(before)
        record = Record(replace(job.record, target_id=target_id), attempt=last.attempt, data_seq=last.number)
        parameters = {"mode": "Append", "partitionBy": "[]"}
        info = actions.commit_info(record.text, "WRITE", parameters, actions.EMPTY)
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
    """The commit, read back. None if another writer has the version, or if, after an error, the log shows that the
    number was committed nevertheless: the caller then finds it in the log."""
    try:
        is_created = publish(location, version, content)
    except (OSError, TransientError):
        with suppress(OSError, TransientError, TableError):  # the first error is more informative
            if find_standing(location, record) is not None:
                return None
        raise
    return _read_back(location, version, record) if is_created else None


def _read_back(location: TableLocation, version: int, record: Record) -> Record:
    """Checks that the log has our commit: a store may have lost it, or let two writers create the same file."""
    try:
        info = log.commit_info(log.read_entry(location, version))
    except OSError as error:
        raise TransientError(f"{location.url}: version {version} was committed and cannot be read: {error}") from error
    if info.get("userMetadata") != record.text:
        raise StateConflict(
            f"{location.url}: version {version}, just committed, is another writer's",
            hint="Use a store that does not let two writers create one file, or one writer",
        )
    return record.logged(version=version, counts=counts(info["operationMetrics"]))


def _with_checkpoint(location: TableLocation, version: int, record: Record) -> Record:
    """A failure is only a warning: the next checkpoint is due ten commits later."""
    if version % _CHECKPOINT_EVERY == 0 and (failure := write_checkpoint(location, version)):
        return record.warned(f"committed, but {failure}")
    return record


def write_checkpoint(location: TableLocation, version: int) -> str:
    """Writes a checkpoint of ``version``, the newest, which only makes reading faster. Returns why it failed; empty if
    it did not."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(location.url, storage_options=location.options or None)
        table.create_checkpoint()
        if table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") == "true":
            table.cleanup_metadata()  # as Spark does here: deletes entries past the log's retention
    except (DeltaError, OSError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        return f"{location.url} got no checkpoint at version {version}: {line}"
    return ""
