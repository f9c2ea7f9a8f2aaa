"""Commits that flowctl writes itself: one entry in the table's log, whoever has written the files.

Sail must have it so: it ignores the settings that tell Spark's Delta a sequence number, and keeps our record on some
statements only. On Spark it is the quicker way for what :mod:`flowctl.connectors.delta.choice` lists. Not by
``deltalake``: its entries are not synced to a local disk, and cannot carry a deletion vector.

- The new rows are files that no reader sees yet.
- One entry then says everything at once: our record, Delta's ``txn`` with our sequence number, a changed schema, the
  files that go and those that come.
- It is created only as the version right after the opened one, from which everything was worked out. Whoever else
  committed in between, a stale writer of our own run or a foreign one, makes that fail, and the batch is worked out
  anew.

So exactly the same holds as with Spark: a sequence number lands once or never, whoever is killed or late. append only
adds, so it may take the next free version instead of starting again, once that very version, opened, says that the
number is still free. Nothing else may: "there was nothing to replace" holds for one version only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from flowctl import crashpoints
from flowctl.connectors.delta import actions, features, partitions, replay
from flowctl.connectors.delta.changes import Change
from flowctl.connectors.delta.creation import marker
from flowctl.connectors.delta.features import demanding_features
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.schemas import with_columns
from flowctl.connectors.delta.table import OpenTable, find_standing, open_existing, open_table
from flowctl.connectors.delta.types import columns_of
from flowctl.connectors.target import WriteJob
from flowctl.engine.batch import Batch
from flowctl.errors import StateConflict, TableError, TransientError

_TRIES = 10
HINT = "Run this flow with spark.url local[*]"
#: Delta's own default: readers need not look at more commits than this.
_CHECKPOINT_EVERY = 10


class WriteRows(Protocol):
    def __call__(self, location: TableLocation, metadata: Mapping[str, Any], rows: Batch) -> list[Action]:
        """Writes ``rows``, whose columns are those of ``metadata``, as files below ``location`` that no reader sees;
        returns the ``add`` actions that would show them."""


def prepare(location: TableLocation, table: OpenTable | None, job: WriteJob) -> OpenTable:
    """The table that ``job`` means, made empty where there is none. Two who make it at once find the one that came
    first. Columns are changed by the commit itself."""
    if table is None:
        create(location, job)
        table = open_table(location)
    if table is None:
        raise TransientError(f"{location.url} was removed as it was made")
    _refuse_features(table)
    return table


def create(location: TableLocation, job: WriteJob) -> None:
    """The empty table that the job's CREATE TABLE says, unless somebody is faster."""
    info = actions.commit_info(marker(job.record.intent_id), "CREATE TABLE", {}, {})
    protocol, metadata = actions.protocol(job), actions.metadata(job, str(uuid.uuid4()))
    if actions.publish(location, 0, [info, protocol, metadata]):
        actions.write_checksum_of_empty(location, protocol, metadata)


def _refuse_features(table: OpenTable) -> None:
    """:class:`TableError` for a table whose writers must do more than write files."""
    if more := demanding_features(table.features, table.properties):
        raise TableError(
            f"{table.location.url} has the Delta features {', '.join(more)}, which flowctl cannot write on Sail",
            hint=HINT,
        )


def commit(
    table: OpenTable,
    app: str,
    job: WriteJob,
    record: Mapping[str, Any],
    build: Callable[[LogSnapshot], Change],
    write_rows: WriteRows,
) -> LoggedCommit:
    """Commits what ``build`` makes of ``table`` as number ``record["seq"]`` of ``app``.

    ``job`` says the table's columns afterwards, and ``build`` is given them in the snapshot's metadata. Errors as
    :func:`flowctl.connectors.delta.transaction.commit`.
    """
    if done := table.standing(app, record, job.base):
        return done
    table.check_memory()
    location, snapshot = table.location, table.snapshot
    metadata = with_columns(snapshot.metadata, job.columns, replaces=job.replaces_content)
    protocol = features.raised(snapshot.protocol, columns_of(metadata["schemaString"]))
    change = build(replace(snapshot, metadata=metadata, protocol=protocol))
    added = write_rows(location, metadata, change.new) if change.new is not None else []
    partitions.check_values(metadata, added, location.url)
    job.before_commit()
    crashpoints.reached("in_commit", job.record.table)
    info = actions.commit_info(record, change.operation, _parameters(change), _metrics(change, added))
    content = [info, actions.transaction(app, record["seq"])]
    content += [{"protocol": protocol}] if protocol != snapshot.protocol else []
    content += [{"metaData": metadata}] if metadata != snapshot.metadata else []
    content += [actions.remove_action(file) for file in change.removal.removed]
    content += [{"add": file} for file in (*change.removal.kept, *added)]
    return land(table, app, record, content, job.base, is_blind=change.is_blind)


def land(
    table: OpenTable,
    app: str,
    record: Mapping[str, Any],
    content: Sequence[Action],
    base: str | None = None,
    *,
    is_blind: bool = False,
) -> LoggedCommit:
    """Commits ``content`` as the version after ``table``'s; with ``is_blind`` as that after a later one, opened anew,
    where the number is free, its base the same and neither schema nor protocol is another."""
    newest = table
    for _ in range(_TRIES if is_blind else 1):
        if publish_entry(newest.location, newest.version + 1, app, record, content):
            logged = read_back(newest.location, newest.version + 1, record)
            return replace(logged, warnings=_checkpoint(newest.location, logged.version))
        newest = open_existing(newest.location)
        if done := newest.standing(app, record, base):
            return done
        if not _is_same_table(newest.snapshot, table.snapshot):
            break
    raise TransientError(f"another writer committed to {table.location.url} at the same moment")


def publish_entry(
    location: TableLocation, version: int, app: str, record: Mapping[str, Any], content: Sequence[Action]
) -> bool:
    """:func:`actions.publish`, and the log asked after an error: what failed may have happened all the same."""
    try:
        return actions.publish(location, version, content)
    except (OSError, TransientError):
        with suppress(OSError, TransientError, TableError):  # the first error says more
            if find_standing(location, app, record) is not None:
                return False  # whoever asks next finds it
        raise


def read_back(location: TableLocation, version: int, record: Mapping[str, Any]) -> LoggedCommit:
    """A commit counts only once the log says that it is ours: a store may have lost it, or let two create one file."""
    try:
        commits = replay.commit_actions(location, version)
        info = next(action["commitInfo"] for action in commits if "commitInfo" in action)
    except OSError as error:
        raise TransientError(f"{location.url}: version {version} was committed and cannot be read: {error}") from error
    if info.get("userMetadata") != json.dumps(record):
        raise StateConflict(
            f"{location.url}: version {version}, just committed, is another writer's",
            hint="Use a store that does not let two writers create one file, or one writer",
        )
    return LoggedCommit(version, record, info["operationMetrics"])


def _is_same_table(now: LogSnapshot, before: LogSnapshot) -> bool:
    return (now.metadata, now.protocol) == (before.metadata, before.protocol)


def _parameters(change: Change) -> dict[str, str]:
    if change.operation != "WRITE":
        return {}
    return {"mode": "Overwrite" if change.removal.removed else "Append", "partitionBy": "[]"}


def _metrics(change: Change, added: Sequence[Action]) -> dict[str, str]:
    """Named and written as Delta does."""
    counted = {
        "numFiles": len(added),
        "numOutputRows": sum(actions.row_count(file) for file in added),
        "numOutputBytes": sum(int(file["size"]) for file in added),
        "numRemovedFiles": len(change.removal.removed),
        **(change.metrics or {}),
    }
    return {name: str(value) for name, value in counted.items()}


def _checkpoint(location: TableLocation, version: int) -> tuple[str, ...]:
    """It makes reading faster and nothing else: what fails here is a warning, and the next tenth commit tries again."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version % _CHECKPOINT_EVERY != 0:
        return ()
    try:
        table = DeltaTable(location.url, storage_options=location.options or None)
        table.create_checkpoint()
        if table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") == "true":
            table.cleanup_metadata()  # as Spark does here: entries that are older than the table keeps them
    except (DeltaError, OSError) as error:
        return (f"committed, but {location.url} got no checkpoint at version {version}: {_first_line(error)}",)
    return ()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
