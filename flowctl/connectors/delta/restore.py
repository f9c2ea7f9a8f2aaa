"""Brings a Delta table back to the content of an earlier sequence number, in one log entry.

The entry does what Spark's RESTORE does: it removes the files that the earlier version did not have, adds those that it
had, with their deletion vectors, and repeats its schema. The protocol stays, since later versions still need it. Unlike
Spark's, the entry has a sequence number and a record: it is the flow's own commit, without data of its own and with the
position of the earlier one. ``deltalake`` is not used: it refuses tables with deletion vectors, and rebases its entry
onto commits that it has not seen.

A history's sidecar is restored after its table. In between, the later observations do not count, because the record
names the last number whose observations do (:func:`.history.lost_observations_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from flowctl import crashpoints, text
from flowctl.connectors.delta import actions, commit, log, maintenance
from flowctl.connectors.delta.actions import is_elsewhere, known_rows
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.record import keep_copy, record_in
from flowctl.connectors.delta.table import OpenTable, open_table, open_version
from flowctl.connectors.delta.types import Action
from flowctl.connectors.delta.vacuum import file_names
from flowctl.connectors.lake.past import Past, PastCommit, read_past, version_of_observations
from flowctl.connectors.lake.record import OBSERVATIONS, Record, app_id, data_commit, sidecar_record
from flowctl.connectors.restoration import Restoration, VersionChange
from flowctl.errors import StoppedByPolicy, WriteConflict
from flowctl.model.commit import Commit
from flowctl.model.sidecars import OBSERVED
from flowctl.model.table_info import ObjectName

#: Files that are looked for at the same time.
_AT_ONCE = 16


def find(location: TableLocation, record: Commit, object: ObjectName, seq: int) -> Restoration:
    """As :meth:`flowctl.connectors.restoration.Restorable.find_restoration`."""
    table = open_table(location)
    if table is None:
        raise StoppedByPolicy(f"{location.url} does not exist", hint="Run `flowctl apply`: it creates the table")
    commits = _commits(table, app_id(record.lineage, record.table))
    past = read_past(commits, seq, location.url, f"the log of {location.url}")
    wanted = past.wanted
    old = open_version(location, past.version)
    _require_possible(table, old)
    newest = table.newest(wanted.app_id)
    sidecar, origins = tuple(_sidecar_changes(location, past)), tuple(one.commit for one in past.origins)
    if newest is not None and newest.restores == seq and _same(table, old):
        done = replace(newest.commit, restored=seq)
        now = table.info(object)
        return Restoration(done, object, now, now, origins, None, sidecar, at=past.at)
    return Restoration(
        replace(record, position=wanted.commit.position, target_id=table.identity, restored=seq),
        object,
        before=table.info(object),
        after=replace(old.info(object), version=table.version + 1),
        table=_change(table, old),
        origins=origins,
        sidecars=sidecar,
        undone=past.undone,
        others=past.others,
        at=past.at,
    )


def carry_out(location: TableLocation, restoration: Restoration, before_commit: Callable[[], None]) -> None:
    """As :meth:`flowctl.connectors.restoration.Restorable.restore`."""
    for one in restoration.changes:
        place = replace(location, url=one.place)
        name = place.url.rpartition("/")[2]
        new, old = open_version(place, one.newest), open_version(place, one.version)
        if one is restoration.table:
            record = _record(old, restoration)
        else:
            record = sidecar_record(restoration.commit, new.version, new.identity, OBSERVATIONS)
        content = [*_difference(new, old), actions.transaction(record.app_id, record.seq)]
        parameters = {"version": str(old.version), "timestamp": None}
        info = actions.commit_info(record.text, "RESTORE", parameters, _metrics(content))
        before_commit()
        crashpoints.reached("in_commit", name)
        if not commit.publish(place, new.version + 1, [info, *content]):
            raise WriteConflict(f"another writer committed to {place.url} at the same moment")
        crashpoints.reached("after_commit", name)
        if one is restoration.table:
            keep_copy(location, record.logged(version=new.version + 1))


def _commits(table: OpenTable, app: str) -> Iterator[PastCommit]:
    """Newest first."""
    for version, entry in log.read_back_from(table.location, table.version):
        info = log.commit_info(entry)
        is_change = any(action.get(kind, {}).get("dataChange") for action in entry for kind in ("add", "remove"))
        is_restored = info.get("operation") == "RESTORE"
        yield PastCommit(version, record_in(info, version, app), is_change, info.get("timestamp"), is_restored)


def _require_possible(table: OpenTable, old: OpenTable) -> None:
    """:class:`StoppedByPolicy` if the table has features whose entries flowctl does not write, or files are missing."""
    url, version = table.location.url, old.version
    choice = maintenance.choose(sorted({*table.features, *old.features}), (*table.columns, *old.columns))
    by_hand = f"RESTORE {table.location.shown_identifier} TO VERSION AS OF {version}"
    if choice.way is not maintenance.Way.FLOWCTL:
        raise StoppedByPolicy(
            f"{url} has {choice.reason}, which flowctl does not restore",
            hint=f"Restore it with Spark: {by_hand}; then `flowctl state adopt`",
        )
    if table.identity != old.identity:
        raise StoppedByPolicy(
            f"{url} was replaced by another table since version {version}", hint="Choose a later number"
        )
    if any(is_elsewhere(file["path"]) for file in old.files):
        raise StoppedByPolicy(f"{url} has files of another table", hint=f"Restore it with Spark: {by_hand}")
    missing = _missing_files(old)
    if missing:
        raise StoppedByPolicy(
            f"version {version} of {url} cannot be read any more: {text.counted(len(missing), 'file')} of it, such as "
            f"{missing[0]}, were deleted (vacuum)",
            hint="Choose a later number",
        )


def _missing_files(table: OpenTable) -> list[str]:
    wanted = sorted({name for file in table.files for name in file_names(table.location, file)})
    exists = partial(_exists, table.location)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [name for name, is_there in zip(wanted, pool.map(exists, wanted), strict=True) if not is_there]


def _exists(location: TableLocation, name: str) -> bool:
    return bool(location.file_system().exists(f"{location.url}/{name}"))


def _sidecar_changes(location: TableLocation, past: Past) -> Iterator[VersionChange]:
    """That of a history's sidecar, if it has other observations now."""
    sidecar = open_table(location.sidecar(OBSERVED))
    if sidecar is None:
        return
    app = app_id(past.wanted.commit.lineage, past.wanted.commit.table, OBSERVATIONS)
    url = sidecar.location.url
    version = version_of_observations(_commits(sidecar, app), past, f"the log of {url}")
    if version is None:
        return
    old = open_version(sidecar.location, version)
    if not _same(sidecar, old):
        _require_possible(sidecar, old)
        yield _change(sidecar, old)


def _change(table: OpenTable, old: OpenTable) -> VersionChange:
    return VersionChange(table.location.url, table.version, old.version, (_count_rows(table), _count_rows(old)))


def _count_rows(table: OpenTable) -> int | None:
    rows = [known_rows(file) for file in table.files]
    return None if None in rows else sum(filter(None, rows)) - sum(map(actions.hidden_rows, table.files))


def _record(old: OpenTable, restoration: Restoration) -> Record:
    """The record of the commit that restores ``old``."""
    seq, app = restoration.commit.restored, app_id(restoration.commit.lineage, restoration.commit.table)
    assert seq is not None, "as found"
    last = data_commit(old.newest(app))
    hidden = sum(map(actions.hidden_rows, old.files))
    return Record(restoration.commit, attempt=last.attempt, data_seq=last.number, restores=seq, hidden_rows=hidden)


def _same(new: OpenTable, old: OpenTable) -> bool:
    return not any(_difference(new, old))


def _difference(new: OpenTable, old: OpenTable) -> Iterator[Action]:
    """The actions that give ``new`` the files and the schema of ``old``."""
    if new.metadata != old.metadata:
        yield {"metaData": old.metadata}
    before, after = _by_identity(new.files), _by_identity(old.files)
    yield from (actions.remove(file) for key, file in before.items() if key not in after)
    yield from ({"add": {**file, "dataChange": True}} for key, file in after.items() if key not in before)


def _by_identity(files: Sequence[Action]) -> dict[tuple[str, str], Action]:
    return {log.identity(file): file for file in files}


def _metrics(content: Sequence[Action]) -> dict[str, str]:
    def total(kind: str) -> tuple[int, int]:
        files: list[dict[str, Any]] = [action[kind] for action in content if kind in action]
        return len(files), sum(file.get("size") or 0 for file in files)

    (restored, restored_size), (removed, removed_size) = total("add"), total("remove")
    return {
        "numRestoredFiles": str(restored),
        "restoredFilesSize": str(restored_size),
        "numRemovedFiles": str(removed),
        "removedFilesSize": str(removed_size),
    }
