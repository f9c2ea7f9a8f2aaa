"""Reads from a table's log what ``deltalake`` does not provide.

``deltalake`` 1.6.6 lists the live files, but gives neither the descriptor of a deletion vector nor statistics as they
are written. A commit that removes such a file, or hides more of its rows, must repeat both verbatim. Its ``history``
always begins with the newest commit, even for an older opened version, gives it that version's number, and holds the
GIL while it waits for the store.

Source: Delta protocol, *Action Reconciliation* and *Checkpoints* (classic ones; tables with v2 checkpoints are refused
earlier).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from flowctl import delays
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.types import Action
from flowctl.errors import TableError

FOLDER = "_delta_log"
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet$")
#: Commits that are read at the same time.
_AT_ONCE = 16
#: Parsed copies of other fields of an ``add``.
_COPIES = ("stats_parsed", "partitionValues_parsed")


def entry_name(version: int) -> str:
    return f"{FOLDER}/{version:020}.json"


def read_entry(location: TableLocation, version: int) -> list[Action]:
    """The actions of one commit; OSError if its file cannot be read."""
    lines = location.read_file(entry_name(version)).splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def stamp_of(location: TableLocation, version: int) -> str:
    """Tells this version from another one of its number: a digest of its commit; empty if its file was cleaned up."""
    try:
        return hashlib.sha256(location.read_file(entry_name(version))).hexdigest()[:16]
    except FileNotFoundError:
        return ""


def commit_info(actions: Iterable[Action]) -> Mapping[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def read_back_from(location: TableLocation, version: int) -> Iterator[tuple[int, list[Action]]]:
    """Version and actions of each commit up to and including ``version``, newest first, as far back as the log goes."""
    there = sorted((int(name[:20]) for name in _names(location) if re.fullmatch(r"\d{20}\.json", name)), reverse=True)
    versions = [number for number in there if number <= version]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(versions), _AT_ONCE):
            some = versions[start : start + _AT_ONCE]
            try:
                yield from zip(some, pool.map(partial(read_entry, location), some), strict=True)
            except FileNotFoundError:  # the log was cleaned up meanwhile
                return


def read_live_files(location: TableLocation, version: int) -> tuple[Action, ...]:
    """The ``add`` actions of the files that are live in ``version``; :class:`TableError` if a log entry is missing."""
    live: dict[tuple[str, str], Action] = {}
    for action in _actions(location, version, "add"):
        if "add" in action:
            live[identity(action["add"])] = action["add"]
        elif "remove" in action:
            live.pop(identity(action["remove"]), None)
    return tuple(live.values())


def read_removed_files(location: TableLocation, version: int) -> Iterator[Action]:
    """The ``remove`` actions that the log still has at ``version``; its checkpoints omit those older than the table's
    retention."""
    return (action["remove"] for action in _actions(location, version, "remove") if "remove" in action)


def read_removed_files_since(location: TableLocation, version: int, moment: float) -> Iterator[Action]:
    """The ``remove`` actions of the commits from ``moment``, in seconds since 1970, up to ``version``, as far back as
    the log goes."""
    for _, actions in read_back_from(location, version):
        written = commit_info(actions).get("timestamp")
        if written is not None and written / 1000 < moment:
            return
        yield from (action["remove"] for action in actions if "remove" in action)


def checkpoint_before(location: TableLocation, version: int) -> int:
    """The version of the newest checkpoint up to ``version``; -1: none."""
    return _newest_checkpoint(_names(location), version)[0]


def checkpoint_hint(location: TableLocation) -> int:
    """The version of the last checkpoint, as its writer noted it in the log's folder; -1: none, or not noted."""
    try:
        return int(json.loads(location.read_file(f"{FOLDER}/_last_checkpoint"))["version"])
    except (OSError, ValueError, KeyError):
        return -1


def _actions(location: TableLocation, version: int, kind: str) -> Iterator[Action]:
    """The actions of one kind in the newest checkpoint, then all actions of the commits after it."""
    delays.pause()
    names = _names(location)
    start, parts = _newest_checkpoint(names, version)
    for part in parts:
        yield from _in_checkpoint(location, part, kind)
    for number in range(start + 1, version + 1):
        if f"{number:020}.json" not in names:
            raise TableError(f"{location.url}: version {number} is missing in its log", hint="Repair or move it")
        yield from read_entry(location, number)


def _names(location: TableLocation) -> set[str]:
    found = location.file_system().ls(f"{location.url}/{FOLDER}", detail=False)
    return {str(path).rpartition("/")[2] for path in found}


def identity(file: Mapping[str, Any]) -> tuple[str, str]:
    """A file is identified by its path and its deletion vector."""
    vector = file.get("deletionVector")
    return file["path"], f"{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else ""


def _newest_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]]:
    """Its version (-1: none) and its files. A checkpoint of several parts counts only if all of them exist."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if (match := _CHECKPOINT.match(name)) and int(match[1]) <= version:
            found.setdefault((int(match[1]), int(match[2] or 1)), []).append(name)
    complete = [key for key, parts in found.items() if len(parts) == key[1]]
    newest = max(complete, default=(-1, 0))
    return newest[0], found.get(newest, [])


def _in_checkpoint(location: TableLocation, name: str, kind: str) -> Iterator[Action]:
    """In the form that a commit has: absent fields left out, maps as objects."""
    import pyarrow.parquet as pq

    with location.file_system().open(f"{location.url}/{FOLDER}/{name}", "rb") as file:
        for batch in pq.ParquetFile(file).iter_batches(columns=[kind]):
            for found in batch.column(0).to_pylist(maps_as_pydicts="strict"):
                if found is not None:
                    if vector := found.get("deletionVector"):
                        found["deletionVector"] = {name: part for name, part in vector.items() if part is not None}
                    yield {kind: {key: part for key, part in found.items() if part is not None and key not in _COPIES}}
