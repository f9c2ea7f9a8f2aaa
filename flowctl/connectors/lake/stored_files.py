"""Files as a store lists them, and the deletion of those that no table needs any more."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

from flowctl import text
from flowctl.connectors.maintenance import Task

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: Seconds for which files are kept at least: a stale writer may still commit them.
LEAST_RETENTION = 7 * 86400.0
VACUUM = "vacuum"
#: What is in the folder of each table in Delta, and of each that flowctl writes as files.
_LOGS = ("/_delta_log/", "/_flowctl/commits/")
#: What is in each Iceberg table's folder.
_METADATA = re.compile(r".*/metadata/([^/]*\.metadata\.json(\.gz)?|version-hint\.text)", re.DOTALL)
#: Files deleted at the same time, and between two checks of the lease.
_AT_ONCE, _BATCH = 16, 1000


@dataclass(frozen=True)
class StoredFile:
    """``path`` is the store's own, ``name`` relative to the table's folder; ``size`` in bytes, ``modified`` in seconds
    since 1970."""

    path: str
    name: str
    size: int
    modified: float

    @classmethod
    def listed(cls, entry: Mapping[str, Any], name: str) -> StoredFile:
        return cls(str(entry["name"]), name, int(entry["size"]), _modified(entry))


def folders_of_tables(paths: Iterable[str], own: Collection[str]) -> tuple[str, ...]:
    """The folders in ``paths`` whose files belong to a table of their own, each with a slash at its end. ``own``: those
    right in which the table that asks has files, too. If one of them is also the folder of an Iceberg table, that has
    only the folders ``data`` and ``metadata`` in it."""
    found: set[str] = set()
    for path in paths:
        if _METADATA.fullmatch(path):
            folder = path.rpartition("/")[0]
            place = folder.rpartition("/")[0]
            found |= {f"{place}/data/", f"{folder}/"} if place in own else {f"{place}/"}
        found |= {f"{path.partition(mark)[0]}/" for mark in _LOGS if mark in path}
    return tuple(found)


def remove(system: AbstractFileSystem, files: Sequence[StoredFile], before_each: Callable[[], None]) -> None:
    """Deletes ``files``; ``before_each`` is called before each thousand and may raise."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(files), _BATCH):
            before_each()
            list(pool.map(partial(_remove_one, system), files[start : start + _BATCH]))


def removal(files: Sequence[StoredFile], told: str) -> Task:
    size = sum(file.size for file in files)
    counted = f"{text.counted(len(files), 'file')} ({text.size(size)}) {told}"
    return Task(VACUUM, counted, {"files": len(files), "bytes": size})


def _remove_one(system: AbstractFileSystem, file: StoredFile) -> None:
    with suppress(FileNotFoundError):
        system.rm_file(file.path)


def _modified(entry: Mapping[str, Any]) -> float:
    """Seconds since 1970, whatever the file system calls it; now if it has none."""
    names = ("LastModified", "last_modified", "mtime", "updated")
    match next((entry[name] for name in names if entry.get(name) is not None), None):
        case dt.datetime() as moment:
            return moment.timestamp()
        case str() as written:
            return dt.datetime.fromisoformat(written).timestamp()
        case int() | float() as seconds:
            return float(seconds)
        case _:
            return time()
