"""Commits that flowctl writes itself: the engine computes and writes files, one entry in the table's log is ours.

Sail must have it so: it ignores the settings that tell Spark's Delta a number, and keeps our record on some statements
only. On Spark it is the quicker way for what :mod:`flowctl.connectors.delta.plain` lists.

- The engine writes the new rows as files that no reader sees yet (:mod:`flowctl.connectors.delta.parquet_files` on
  Spark, :mod:`flowctl.connectors.delta.shadow` on Sail).
- One commit file then says everything at once: our record, Delta's ``txn`` with our number, a changed schema, the files
  that go and those that come.
- It is created only as the version right after the one that everything was worked out from. Whoever else committed in
  between, a zombie of our own run or a foreign writer, makes that fail, and the batch is worked out anew.

So exactly the same holds as with Spark: a number lands once or never, whoever is killed or late. append only adds, so
it may take the next free version instead of starting again, once it has seen that its number is still free there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from flowctl import crashpoints
from flowctl.connectors.base import WriteJob
from flowctl.connectors.delta import actions, log, replay, small_files, tables, transaction
from flowctl.connectors.delta.creation import marker
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.replay import Action, LogSnapshot
from flowctl.connectors.delta.schemas import with_columns
from flowctl.connectors.engine import demanding_features
from flowctl.errors import TableError, TransientError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_TRIES = 10
HINT = "Run this flow with spark.url local[*]"
#: Delta's own default: readers need not look at more commits than this.
_CHECKPOINT_EVERY = 10


class WriteFiles(Protocol):
    def __call__(self, location: TableLocation, metadata: Mapping[str, Any], frame: DataFrame) -> list[Action]:
        """Writes the rows of ``frame``, whose columns are those of ``metadata``, as files below ``location`` that no
        reader sees; returns the ``add`` actions that would show them."""


@dataclass(frozen=True)
class Change:
    """What one commit does to the files: ``frame`` (None: no rows) comes, ``removed`` go; ``shrunk`` are ``add``
    actions of removed files that come back with fewer rows. ``metrics`` are Delta's. ``few``: this process may hold all
    of ``frame``."""

    operation: str
    frame: DataFrame | None
    removed: tuple[Action, ...] = ()
    metrics: Mapping[str, int] | None = None
    shrunk: tuple[Action, ...] = ()
    few: bool = False

    @property
    def only_adds(self) -> bool:
        return not self.removed and self.operation == "WRITE"


def prepare(location: TableLocation, job: WriteJob) -> str:
    """Makes the table where there is none; returns its id. Columns are changed by the commit itself."""
    table = made(location, job)
    tables.check(location, job, table)
    return str(table.metadata().id)


def made(location: TableLocation, job: WriteJob) -> DeltaTable:
    """The table, made empty where there is none. Two who make it at once find the one that came first."""
    if log.open_table(location) is None:
        create(location, job)
    table = log.open_table(location)
    if table is None:
        raise TransientError(f"{location.url} was removed as it was made")
    info = log.table_info(job.object, table)
    _refuse(location, info.extra["features"], info.extra["properties"])
    return table


def create(location: TableLocation, job: WriteJob) -> None:
    """The empty table that the job's CREATE TABLE says, unless somebody is faster."""
    told = actions.commit_info(marker(job.record.intent_id), "CREATE TABLE", {}, {})
    protocol, metadata = actions.protocol(job), actions.metadata(job, str(uuid.uuid4()))
    if actions.publish(location, 0, [told, protocol, metadata]):
        actions.write_checksum_of_empty(location, protocol, metadata)


def _refuse(location: TableLocation, features: Sequence[str], properties: Mapping[str, str]) -> None:
    """:class:`TableError` for a table whose writers must do more than write files."""
    if more := demanding_features(features, properties):
        raise TableError(
            f"{location.url} has the Delta features {', '.join(more)}, which flowctl cannot write on Sail", hint=HINT
        )


def commit(
    location: TableLocation,
    app: str,
    job: WriteJob,
    record: Mapping[str, Any],
    work_out: Callable[[LogSnapshot], Change],
    write_files: WriteFiles,
) -> LoggedCommit:
    """Commits what ``work_out`` makes of the table's newest version as number ``record["seq"]`` of ``app``.

    ``job`` says the table's columns afterwards, and ``work_out`` is given them in the snapshot's metadata. Errors as
    :func:`flowctl.connectors.delta.transaction.commit`.
    """
    table = log.open_table(location)
    if table is None:
        raise TableError(f"there is no table {location.url}", hint="It was dropped since the plan was made; plan again")
    # Asked of this very version or a later one: a number that lands afterwards takes the version that we need.
    snapshot = replay.replayed(location, table.version())
    if done := transaction.read_back(location, app, record):
        return done
    metadata = with_columns(snapshot.metadata, job.columns, replaces=job.replaces_content)
    change = work_out(replace(snapshot, metadata=metadata))
    added = _written(location, metadata, change, write_files)
    job.before_commit()
    crashpoints.reached("in_commit", job.record.table)
    told = actions.commit_info(record, change.operation, _parameters(change), _metrics(change, added))
    changed = [{"metaData": metadata}] if metadata != snapshot.metadata else []
    content = [told, actions.transaction(app, record["seq"]), *changed]
    content += [actions.removed(file) for file in change.removed]
    content += [{"add": file} for file in (*change.shrunk, *added)]
    return _published(location, app, record, snapshot, change, content)


def _written(
    location: TableLocation, metadata: Mapping[str, Any], change: Change, write_files: WriteFiles
) -> list[Action]:
    if change.frame is None:
        return []
    if change.few and small_files.can_write(metadata):
        return small_files.written(location, metadata, change.frame)
    return write_files(location, metadata, change.frame)


def _published(
    location: TableLocation,
    app: str,
    record: Mapping[str, Any],
    snapshot: LogSnapshot,
    change: Change,
    content: Sequence[Action],
) -> LoggedCommit:
    version = snapshot.version + 1
    for _ in range(_TRIES if change.only_adds else 1):
        if actions.publish(location, version, content):
            _checkpoint(location, version)
            break
        if done := transaction.read_back(location, app, record):
            return done
        table = log.open_table(location)
        if table is None or not _same_table(replay.replayed(location, table.version()), snapshot):
            break
        version = table.version() + 1
    done = transaction.read_back(location, app, record)
    if done is None:
        raise TransientError(f"another writer committed to {location.url} at the same moment")
    return done


def _same_table(now: LogSnapshot, before: LogSnapshot) -> bool:
    return (now.metadata, now.protocol) == (before.metadata, before.protocol)


def _parameters(change: Change) -> dict[str, str]:
    if change.operation != "WRITE":
        return {}
    return {"mode": "Overwrite" if change.removed else "Append", "partitionBy": "[]"}


def _metrics(change: Change, added: Sequence[Action]) -> dict[str, str]:
    """Named and written as Delta does."""
    counted = {
        "numFiles": len(added),
        "numOutputRows": sum(actions.counted_rows(file) for file in added),
        "numOutputBytes": sum(int(file["size"]) for file in added),
        "numRemovedFiles": len(change.removed),
        **(change.metrics or {}),
    }
    return {name: str(value) for name, value in counted.items()}


def _checkpoint(location: TableLocation, version: int) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version % _CHECKPOINT_EVERY == 0:
        with suppress(DeltaError):  # it makes reading faster and nothing else; the next tenth commit tries again
            table = DeltaTable(location.url, storage_options=location.options or None)
            table.create_checkpoint()
            if table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true") == "true":
                table.cleanup_metadata()  # as Spark does here: entries that are older than the table keeps them
