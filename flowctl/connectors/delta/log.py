"""What a table's transaction log says, read without Spark: schema, identity, and which number was committed last.

The number is Delta's own: the version of our application id, which every checkpoint carries along. Its record (intent,
target, position) is the ``userMetadata`` of that commit. It is found by walking the commits back from the newest; a
foreign writer's thirty days of commits can push it out of the log, so a copy lies in ``_flowctl/commits/``. The copy
is written after the commit was read back and counts only for the very number that Delta still knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowctl import delays
from flowctl.connectors.delta import maintenance, replay
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.types import columns_of, has_nested_not_null
from flowctl.errors import AccessDenied, TableError, TransientError
from flowctl.model.commit import Commit, RowCounts, commit_from_record
from flowctl.model.table_info import ObjectName, RowEstimate, TableInfo
from flowctl.storage import access

if TYPE_CHECKING:
    from arro3.core import RecordBatch
    from deltalake import DeltaTable

RECORDS = "_flowctl/commits"
#: Key of a record: which try of a number it was.
ATTEMPT = "attempt"
RETENTION = "delta.setTransactionRetentionDuration"
#: No feature of Delta's: what writers have to mind in arrays and structs.
NESTED_NOT_NULL = "NOT NULL within a column"
#: What a column's metadata says of features that writers have to mind.
_MARKS = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.invariants": "columnInvariants",
}


def app_id(lineage: str, table: str) -> str:
    """Delta's application id of one table of one flow; its version is our number."""
    return f"flowctl:{lineage}:{table}"


def open_table(location: TableLocation, *, again: bool = True) -> DeltaTable | None:
    """The table's newest version, or None when nothing is there. :class:`TableError` when something else lies there."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    delays.pause()
    try:
        return DeltaTable(location.url, storage_options=location.options or None)
    except TableNotFoundError:
        there = _foreign_names(location)
        if there and again and "_delta_log" in there:  # made since it was looked for
            return open_table(location, again=False)
        if there:
            raise TableError(
                f"{location.url} holds files that are not a Delta table",
                hint="Choose another path in `to`, or move those files away",
            ) from None
        return None
    except (DeltaError, OSError) as error:
        if refusal := access.refused_access(error):
            raise AccessDenied(f"{location.url} refuses access: {refusal}", hint=access.HINT) from error
        if isinstance(error, DeltaError):
            what = f"{location.url}: its Delta log cannot be read: {access.in_one_line(error)}"
            raise TableError(what, hint="Repair or move it") from error
        what = f"{location.url} cannot be reached: {access.in_one_line(error)}"
        raise TransientError(what, hint="Check the store's address, its credentials and the network") from error


def is_empty(table: DeltaTable | None) -> bool:
    """Whether there are no rows to compare with: no table, or one without files."""
    return table is None or not table.file_uris()


def _foreign_names(location: TableLocation) -> set[str]:
    """What the folder has but flowctl's own files (the table's lease is older than the table)."""
    try:
        found = location.file_system().ls(location.url, detail=False)
    except FileNotFoundError:
        return set()
    folder = location.url.rstrip("/").rpartition("/")[2]
    names = {str(path).rstrip("/").rpartition("/")[2] for path in found}
    return names - {"_flowctl", folder, ""}


def table_info(object: ObjectName, table: DeltaTable) -> TableInfo:
    """``identity`` is Delta's own table id: kept by RESTORE and ALTER, new for a copy. ``extra`` has ``partition_by``,
    ``properties``, ``features``, ``reader_version``, ``writer_version`` and what :mod:`.maintenance` counts."""
    metadata, protocol, actions = table.metadata(), table.protocol(), table.get_add_actions(flatten=True)
    schema = table.schema().to_json()
    return TableInfo(
        object=object,
        columns=columns_of(schema),
        identity=str(metadata.id),
        version=table.version(),
        rows=_rows(actions),
        extra={
            "partition_by": list(metadata.partition_columns),
            "properties": dict(metadata.configuration),
            "features": sorted(_features(table, schema)),
            "reader_version": protocol.min_reader_version,
            "writer_version": protocol.min_writer_version,
            maintenance.SMALL_FILES: maintenance.count_small_files(actions),
        },
    )


def _features(table: DeltaTable, schema: str) -> set[str]:
    """Those that the protocol names, and those that tables of older protocols have without a name (Delta protocol,
    *Valid Feature Names in Table Features*): told by what uses them."""
    protocol, properties = table.protocol(), table.metadata().configuration
    found = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if any(name.startswith("delta.constraints.") for name in properties):
        found.add("checkConstraints")
    if properties.get("delta.columnMapping.mode", "none") != "none":
        found.add("columnMapping")
    if has_nested_not_null(schema):
        found.add(NESTED_NOT_NULL)
    marks = {mark for field in table.schema().fields for mark in field.metadata or ()}
    return found | {feature for mark, feature in _MARKS.items() if mark in marks}


def _rows(actions: RecordBatch) -> RowEstimate:
    """From the files' statistics; rows hidden by deletion vectors still count. Without pyarrow: a run that finds
    nothing to do would import it, and pandas with it, for two sums."""
    size = sum(actions["size_bytes"].to_pylist())
    counted = actions["num_records"].to_pylist()
    return RowEstimate(bytes=size) if None in counted else RowEstimate(sum(counted), "stats", size)


@dataclass(frozen=True)
class LoggedCommit:
    """One commit in the log: its version, our record and Delta's ``operationMetrics``. ``warnings``: what failed after
    it, to which the commit owes nothing."""

    version: int
    record: Mapping[str, Any]
    metrics: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


def newest_commit(location: TableLocation, table: DeltaTable, app: str) -> Commit | None:
    """The commit of the newest number of ``app``; None when there is none. When not even the copy tells its record,
    the answer has an empty ``intent_id``: nothing equals it, so the table stops and asks to be adopted."""
    found = newest_record(location, table, app)
    if found is None:
        return None
    return commit_from_record(found.record, found.version if found.version >= 0 else None)


def newest_record(location: TableLocation, table: DeltaTable, app: str) -> LoggedCommit | None:
    """The commit behind the newest number of ``app``.

    RESTORE takes content back and leaves numbers as they are. The answer then has the newest number (the next must be
    higher) and the rest from the commit whose content is there now, so it equals nothing in state.
    """
    delays.pause()
    newest = _newest(location, table)
    if newest is not None and (record := _record_of(app, newest)) is not None:
        return LoggedCommit(newest["version"], record, newest.get("operationMetrics") or {})
    number = table.transaction_version(app)
    if number is None:
        return None
    restored_to = None
    for commit in _walk_back(location, table.version()):
        version = commit["version"]
        if restored_to is not None and version > restored_to:
            continue
        if commit.get("operation") == "RESTORE":
            restored_to = _restored_version(commit)
            continue
        record = _record_of(app, commit)
        if record is not None and (restored_to is not None or record["seq"] == number):
            return LoggedCommit(version, {**record, "seq": number}, commit.get("operationMetrics") or {})
    kept = _kept_copy(location, app)
    if restored_to is None and kept is not None and kept.record["seq"] == number:
        return kept
    _, lineage, name = app.split(":", 2)
    return LoggedCommit(-1, Commit(lineage, name, number, "", str(table.metadata().id), None).record(), {})


def _restored_version(commit: Mapping[str, Any]) -> int:
    """The version that a RESTORE brought back; -1, before all others, when it was named by its time."""
    version = (commit.get("operationParameters") or {}).get("version")
    return int(version) if version is not None else -1


@dataclass(frozen=True)
class DataCommit:
    """The last number that was committed with data, and which try of it: what a history's sidecar counts. ``attempt``
    is empty where no record tells."""

    number: int = 0
    attempt: str = ""


def data_commit(logged: LoggedCommit | None) -> DataCommit:
    """That of ``logged``, or what it carries along when it is a void."""
    if logged is None:
        return DataCommit()
    number = "data_seq" if logged.record["void"] else "seq"
    return DataCommit(int(logged.record.get(number, 0)), str(logged.record.get(ATTEMPT, "")))


def _app_of(record: Mapping[str, Any]) -> str:
    return str(record.get("app", app_id(record["lineage"], record["table"])))


def _newest(location: TableLocation, table: DeltaTable) -> Mapping[str, Any] | None:
    """The newest commit, nearly always ours: its record is of Delta's number then. Not by ``history``, which holds
    Python's lock while it waits for the store: tables would be read one after the other. None when its file is not
    to be had."""
    version = table.version()
    try:
        actions = replay.commit_actions(location, version)
    except OSError:  # cleaned away behind a checkpoint, or a store that deltalake reaches and fsspec does not
        return None
    return next(({**action["commitInfo"], "version": version} for action in actions if "commitInfo" in action), None)


def _walk_back(location: TableLocation, version: int) -> Iterator[Mapping[str, Any]]:
    """The table's commits up to ``version``, newest first, as far back as the log goes. Not by ``history``: it begins
    with the newest commit of all, whatever version the table was opened at, and numbers it as that one."""
    for at, actions in replay.commits_before(location, version):
        told: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        yield {**told, "version": at}


def _record_of(app: str, commit: Mapping[str, Any]) -> Mapping[str, Any] | None:
    written = commit.get("userMetadata")
    try:
        record = json.loads(written) if isinstance(written, str) else None
    except ValueError:
        return None
    ours = isinstance(record, dict) and record.get("flowctl") == 1 and _app_of(record) == app
    return record if ours else None


def keep_copy(location: TableLocation, app: str, commit: LoggedCommit) -> LoggedCommit:
    """Keeps the record of a commit that was read back, for the day the log has forgotten it. The commit stands without
    it, and the next one makes it anew: a copy that cannot be written is a warning."""
    content = json.dumps({"version": commit.version, "record": commit.record}).encode()
    try:
        location.file_system().pipe_file(_copy_path(location, app), content)
    except OSError as error:
        warning = f"committed, but {_copy_path(location, app)} could not be written: {error.strerror or error}"
        return replace(commit, warnings=(*commit.warnings, warning))
    return commit


def _kept_copy(location: TableLocation, app: str) -> LoggedCommit | None:
    try:
        kept = json.loads(location.file_system().cat_file(_copy_path(location, app)))
    except (FileNotFoundError, ValueError):  # none yet, or torn by a crash while it was written
        return None
    return LoggedCommit(kept["version"], kept["record"], {})


def _copy_path(location: TableLocation, app: str) -> str:
    return f"{location.url}/{RECORDS}/{app.replace(':', '-').replace('/', '-')}.json"


def counts(metrics: Mapping[str, Any]) -> RowCounts:
    """Delta's metrics of a WRITE or MERGE as row counts."""

    def number(*names: str) -> int | None:
        return next((int(metrics[name]) for name in names if name in metrics), None)

    return RowCounts(
        read=number("numSourceRows", "numOutputRows"),
        inserted=number("numTargetRowsInserted", "numOutputRows"),
        updated=number("numTargetRowsUpdated"),
        deleted=number("numTargetRowsDeleted", "numDeletedRows"),
        bytes=number("numTargetBytesAdded", "numOutputBytes"),
    )
