"""File logs next to the state: ``files/<digest>.json.gz``, content-addressed and created only if absent.

An entry is deleted once nothing can refer to it any more. A run that recorded a commit marks the entries that the new
position no longer reaches (``files/retired/<digest>.<serial>``, empty); pruning deletes those whose serial is older
than every kept document. Positions changed by hand retire nothing, because the target still refers to the old one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from flowctl.errors import StoppedByPolicy
from flowctl.model.file_log import FileEntry, FileLog, entry_from_json
from flowctl.model.position import FileLogPosition, Position
from flowctl.storage.blobs import BlobStore

FOLDER = "files/"
_RETIRED = f"{FOLDER}retired/"
_AT_ONCE = 8


def read_log(blobs: BlobStore, position: FileLogPosition) -> FileLog:
    """All entries reachable from ``position``. Raises :class:`StoppedByPolicy` if one is missing or damaged."""
    newest = read_entry(blobs, position.entry)
    if not newest.before:
        return FileLog((newest,))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        older = list(pool.map(lambda digest: read_entry(blobs, digest), newest.before))
    return FileLog((*older, newest))


def read_entry(blobs: BlobStore, digest: str) -> FileEntry:
    """One entry; errors as :func:`read_log`."""
    place = f"{blobs.url}/{_name(digest)}"
    stored = blobs.get(_name(digest))
    if stored is None:
        raise _unreadable(f"the log of the files that were read is incomplete: {place} is missing")
    try:
        data = gzip.decompress(stored)
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("its content does not match its name")
        return entry_from_json(json.loads(data))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as cause:
        raise _unreadable(f"{place}, a part of the log of the files that were read, is damaged ({cause})") from cause


def put_entries(blobs: BlobStore, entries: Iterable[FileEntry]) -> None:
    """Stores entries that do not exist yet. Must be called before anything refers to them."""
    for entry in entries:
        # If the name exists, another writer has stored the same content: the name is its digest.
        if not blobs.create(_name(entry.digest), gzip.compress(entry.data, compresslevel=6, mtime=0)):
            revive(blobs, {entry.digest})


def retire(blobs: BlobStore, digests: Iterable[str], serial: int) -> None:
    """Marks these entries as unreachable for every document from ``serial`` on."""
    for digest in digests:
        blobs.create(f"{_RETIRED}{digest}.{serial}", b"")


def revive(blobs: BlobStore, digests: Collection[str]) -> None:
    """Undoes :func:`retire`. Must be called before a document refers to these entries again."""
    for digest, _, name in _list_retired(blobs):
        if digest in digests:
            blobs.delete(name)


def revive_positions(blobs: BlobStore, positions: Iterable[Position | None]) -> None:
    """:func:`revive` for all entries reachable from ``positions``. Unreadable logs are skipped; the next plan refuses
    them."""
    revive(blobs, set().union(*(_list_reachable(blobs, position) or () for position in positions)))


def sweep(blobs: BlobStore, oldest_kept: int, positions: Iterable[Position | None]) -> None:
    """Deletes entries that were retired no later than the document ``oldest_kept``, unless they are reachable from
    ``positions``, those of the newest document. Deletes nothing if one of these logs cannot be read."""
    since: dict[str, int] = {}
    markers: dict[str, list[str]] = {}
    for digest, serial, name in _list_retired(blobs):
        since[digest] = max(since.get(digest, 0), serial)
        markers.setdefault(digest, []).append(name)
    old = {digest for digest, serial in since.items() if serial <= oldest_kept}
    if not old:
        return
    reached = [_list_reachable(blobs, position) for position in positions]
    if any(found is None for found in reached):
        return
    for digest in old.difference(*(found or () for found in reached)):
        blobs.delete(_name(digest))
        for name in markers[digest]:
            blobs.delete(name)


def _list_reachable(blobs: BlobStore, position: Position | None) -> set[str] | None:
    """The entries reachable from ``position``; None if the log cannot be read."""
    if not isinstance(position, FileLogPosition):
        return set()
    try:
        return {position.entry, *read_entry(blobs, position.entry).before}
    except StoppedByPolicy:
        return None


def _list_retired(blobs: BlobStore) -> Iterator[tuple[str, int, str]]:
    for info in blobs.list(_RETIRED):
        digest, _, serial = info.name.removeprefix(_RETIRED).partition(".")
        if serial.isdecimal():
            yield digest, int(serial), info.name


def _name(digest: str) -> str:
    return f"{FOLDER}{digest}.json.gz"


def _unreadable(message: str) -> StoppedByPolicy:
    return StoppedByPolicy(
        message,
        hint="Restore it from a copy of the store; or read all files again with --full-refresh; or list "
        'those that were read with `flowctl state set`: {"kind": "files", "files": [["path", bytes, "tag"]]}',
    )
