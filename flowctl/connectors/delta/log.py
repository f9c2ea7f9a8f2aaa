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
from flowctl.connectors.delta import replay
from flowctl.connectors.delta.location import TableLocation
from flowctl.model.commit import Commit, RowCounts

if TYPE_CHECKING:
    from deltalake import DeltaTable

RECORDS = "_flowctl/commits"
#: Key of a record: which try of a number it was.
ATTEMPT = "attempt"


def app_id(lineage: str, table: str) -> str:
    """Delta's application id of one table of one flow; its version is our number."""
    return f"flowctl:{lineage}:{table}"


@dataclass(frozen=True)
class LoggedCommit:
    """One commit in the log: its version, our record and Delta's ``operationMetrics``. ``warnings``: what failed after
    it, to which the commit owes nothing."""

    version: int
    record: Mapping[str, Any]
    metrics: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


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
        info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        yield {**info, "version": at}


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
