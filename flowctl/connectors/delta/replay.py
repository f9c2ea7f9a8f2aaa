"""A table's live files as the log has them, action by action: what must be repeated word for word to remove a file.

``deltalake`` opens the table and knows the version; it does not give deletion vectors away. Source: Delta protocol,
*Action Reconciliation* and *Checkpoints* (classic ones; tables with v2 checkpoints are refused before).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flowctl import delays
from flowctl.connectors.delta.location import TableLocation
from flowctl.errors import TableError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Action = dict[str, Any]
_COMMIT = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet$")


#: Commits that are read beside each other.
_AT_ONCE = 16


@dataclass(frozen=True)
class LogSnapshot:
    """``files`` are the ``add`` actions of one version, ``metadata`` and ``protocol`` its newest ones."""

    version: int
    files: tuple[Action, ...]
    metadata: Action
    protocol: Action


def replay_log(location: TableLocation, version: int) -> LogSnapshot:
    """The state of ``version``; :class:`TableError` when its log has a hole."""
    delays.pause()
    system = location.file_system()
    folder = f"{location.url}/_delta_log"
    names = [str(path).rpartition("/")[2] for path in system.ls(folder, detail=False)]
    start, parts = _newest_checkpoint(names, version)
    state = _State()
    for part in parts:
        state.take(_from_parquet(system, f"{folder}/{part}"))
    for number in range(start + 1, version + 1):
        name = f"{number:020}.json"
        if name not in names:
            raise TableError(f"{location.url}: version {number} is missing in its log", hint="Repair or move it")
        state.take(_from_json(system, f"{folder}/{name}"))
    return state.snapshot(version)


def commits_after(location: TableLocation, version: int) -> Iterator[Action]:
    """The actions of all commits above ``version``, oldest first."""
    system = location.file_system()
    folder = f"{location.url}/_delta_log"
    names = sorted(str(path).rpartition("/")[2] for path in system.ls(folder, detail=False))
    for name in names:
        if (found := _COMMIT.match(name)) and int(found[1]) > version:
            yield from _from_json(system, f"{folder}/{name}")


def commits_before(location: TableLocation, version: int) -> Iterator[tuple[int, list[Action]]]:
    """Version and actions of the commits up to and with ``version`` that the log still has, newest first."""
    system = location.file_system()
    folder = f"{location.url}/_delta_log"
    names = (str(path).rpartition("/")[2] for path in system.ls(folder, detail=False))
    numbers = (int(match[1]) for name in names if (match := _COMMIT.match(name)))
    there = sorted((number for number in numbers if number <= version), reverse=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(there), _AT_ONCE):
            some = there[start : start + _AT_ONCE]
            for number, actions in zip(some, pool.map(partial(_commit_in, system, folder), some), strict=True):
                if actions is None:
                    return
                yield number, actions


def _commit_in(system: AbstractFileSystem, folder: str, version: int) -> list[Action] | None:
    """None where the log was cleaned up meanwhile."""
    try:
        return list(_from_json(system, f"{folder}/{version:020}.json"))
    except FileNotFoundError:
        return None


def commit_actions(location: TableLocation, version: int) -> Iterator[Action]:
    """The actions of one commit; OSError when its file is not to be had."""
    return _from_json(location.file_system(), f"{location.url}/_delta_log/{version:020}.json")


class _State:
    def __init__(self) -> None:
        self._files: dict[tuple[str, str], Action] = {}
        self._metadata: Action = {}
        self._protocol: Action = {}

    def take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if added := action.get("add"):
                self._files[_identity(added)] = dict(added)
            elif removed := action.get("remove"):
                self._files.pop(_identity(removed), None)
            elif metadata := action.get("metaData"):
                self._metadata = dict(metadata)
            elif protocol := action.get("protocol"):
                self._protocol = dict(protocol)

    def snapshot(self, version: int) -> LogSnapshot:
        return LogSnapshot(version, tuple(self._files.values()), self._metadata, self._protocol)


def _identity(file: Mapping[str, Any]) -> tuple[str, str]:
    """A file is its path and its deletion vector."""
    vector = file.get("deletionVector")
    return file["path"], f"{vector['pathOrInlineDv']}@{vector.get('offset')}" if vector else ""


def _newest_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]]:
    """Its version (-1: none) and its files. One of several parts counts only when all are there."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if (match := _CHECKPOINT.match(name)) and int(match[1]) <= version:
            found.setdefault((int(match[1]), int(match[2] or 1)), []).append(name)
    whole = {key: parts for key, parts in found.items() if len(parts) == key[1]}
    if not whole:
        return -1, []
    newest = max(whole)
    return newest[0], whole[newest]


def _from_json(system: AbstractFileSystem, path: str) -> Iterator[Action]:
    return (json.loads(line) for line in system.cat_file(path).splitlines() if line.strip())


def _from_parquet(system: AbstractFileSystem, path: str) -> Iterator[Action]:
    """Rows of a checkpoint as the actions of a commit: absent fields left out, maps as objects."""
    import pyarrow.parquet as pq

    with system.open(path, "rb") as file:
        columns = pq.ParquetFile(file)
        wanted = [name for name in ("add", "metaData", "protocol") if name in columns.schema_arrow.names]
        for batch in columns.iter_batches(columns=wanted):
            for row in batch.to_pylist():
                yield {name: _plain(name, value) for name, value in row.items() if value is not None}


_MAPS = ("partitionValues", "tags", "configuration", "options")
#: Parsed copies of what the action's text says too.
_COPIES = ("stats_parsed", "partitionValues_parsed")


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(key, part) for key, part in value.items() if part is not None and key not in _COPIES}
    return dict(value) if name in _MAPS and isinstance(value, list) else value
