"""The folder of one table: its manifests, its data files, and how new ones appear.

New files are written where no reader looks: on a disk below ``_flowctl/unfinished``, in an object store as uploads that
are not completed. They appear right before the manifest that names them, each in one step.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from flowctl import delays
from flowctl.connectors.files.listing import FileRoot, shown_path
from flowctl.connectors.files.sink.manifest import Manifest, file_name, manifest_of, version_of
from flowctl.connectors.lake.stored_files import LEAST_RETENTION, StoredFile
from flowctl.errors import AbortRun, AccessDenied, TableError, TransientError
from flowctl.storage import access
from flowctl.storage.blobs import BlobStore
from flowctl.storage.durable import make_folder, sync_folder
from flowctl.storage.objects import is_missing
from flowctl.storage.options import store_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

OWN = "_flowctl"
_UNFINISHED = f"{OWN}/unfinished"
#: Manifests kept. A writer that stands on a version which is gone finds out when it reads its commit back.
_KEPT = 100
#: Sequence number, table of a lineage, attempt, number.
_NAME = re.compile(r"(\d{10})-([0-9a-f]{8})-[0-9a-f]{16}-\d{5}\.[a-z0-9.]+")


@dataclass(frozen=True)
class FileNames:
    """Names of new files, which nobody else uses. They are in the order in which the commits are."""

    seq: int
    owner: str
    extension: str
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:16])

    def name(self, number: int) -> str:
        return f"{self.seq:010d}-{self.owner}-{self.attempt}-{number:05d}.{self.extension}"


def owner_of(lineage: str, table: str) -> str:
    return hashlib.sha256(f"{lineage}/{table}".encode()).hexdigest()[:8]


class NewFile:
    """A file that nobody sees until it is published. ``opened`` takes its content."""

    def __init__(self, folder: TableFolder, path: str) -> None:
        self.path = path
        self.rows = self.bytes = 0
        self._folder = folder
        self._final, self._hidden = folder.local(path), folder.local(f"{_UNFINISHED}/{path}")
        self._is_published = False
        self.opened = self._open()

    def finish(self) -> None:
        """Ends its content."""
        self.bytes = int(self.opened.tell())
        if self._folder.root.is_local:
            self.opened.flush()
            os.fsync(self.opened.fileno())
        self.opened.close()

    def publish(self) -> None:
        """Repeatable."""
        if self._is_published:
            return
        if self._folder.root.is_local:
            self._hidden.rename(self._final)
            sync_folder(self._final.parent)
        else:
            cast(Any, self.opened).commit()
        self._is_published = True

    def discard(self) -> None:
        """Removes it unless it is published: then a commit may name it."""
        if self._is_published:
            return
        if self._folder.root.is_local:
            self.opened.close()
            self._hidden.unlink(missing_ok=True)
            return
        with suppress(Exception):  # the store removes uploads that are never completed, as its own rules say
            cast(Any, self.opened).discard()
        cast(Any, self.opened).closed = True

    def _open(self) -> BinaryIO:
        if self._folder.root.is_local:
            make_folder(self._hidden.parent)
            return self._hidden.open("xb")
        return cast(BinaryIO, self._folder.file_system.open(self._folder.full(self.path), "wb", autocommit=False))


@dataclass(frozen=True)
class TableFolder:
    """``root`` is the table's own folder, ``path`` its place in ``blobs``, which many folders share: each client of a
    store takes a while to start."""

    root: FileRoot
    path: str
    blobs: BlobStore = field(repr=False)

    def newest(self) -> Manifest:
        """The newest manifest; version 0 if there is none."""
        delays.pause()
        with self.own_errors():
            while True:
                version = max(self._versions(), default=0)
                if not version:
                    return Manifest()
                name = self._commits + file_name(version)
                if (content := self.blobs.get(name)) is not None:  # else it was removed, so there is a newer one
                    return manifest_of(version, content, f"{self.blobs.url}/{name}")

    def create(self, manifest: Manifest) -> bool:
        """False if the version exists."""
        delays.pause()
        with self.own_errors():
            return self.blobs.create(self._commits + file_name(manifest.version), manifest.to_json())

    def clean(self, manifest: Manifest) -> None:
        """After the commit of ``manifest``: removes files that no commit names, or will name, and manifests that are no
        longer needed."""
        with self.own_errors():
            for path in _dead_files(self._stored(), manifest):
                with suppress(FileNotFoundError):
                    self.file_system.rm_file(self.full(path))
            for version in self._versions():
                if version <= manifest.version - _KEPT:
                    self.blobs.delete(self._commits + file_name(version))

    def foreign_name(self) -> str | None:
        """The name of something that flowctl has not written here; None if there is nothing."""
        with self.own_errors():
            names = [name for name in self._entries("") if name != OWN and not _NAME.fullmatch(name)]
        return min(map(shown_path, names), default=None)

    def full(self, path: str) -> str:
        return f"{self.file_system_root[1]}/{path}"

    def local(self, path: str) -> Path:
        return Path(self.root.url, path)

    @property
    def file_system(self) -> AbstractFileSystem:
        return self.file_system_root[0]

    @cached_property
    def file_system_root(self) -> tuple[AbstractFileSystem, str]:
        return self.root.file_system()

    @property
    def _commits(self) -> str:
        return f"{self.path}/{OWN}/commits/"

    def _versions(self) -> list[int]:
        found = (version_of(blob.name.removeprefix(self._commits)) for blob in self.blobs.list(self._commits))
        return [version for version in found if version is not None]

    def _stored(self) -> Iterator[StoredFile]:
        """All files that flowctl has written here, and on a disk those that were never finished."""
        for below in ("", f"{_UNFINISHED}/") if self.root.is_local else ("",):
            listed = self._entries(below)
            yield from (StoredFile.listed(listed[name], f"{below}{name}") for name in listed if _NAME.fullmatch(name))

    def _entries(self, below: str) -> Mapping[str, Mapping[str, Any]]:
        """By name."""
        place = self.full(below).rstrip("/")
        try:
            found = self.file_system.ls(place, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        entries = {str(entry["name"]).rstrip("/"): entry for entry in found}
        return {path.rpartition("/")[2]: entry for path, entry in entries.items() if path != place}  # the folder itself

    def _missing_bucket(self) -> str:
        """That the store has no such bucket; empty if it may have it."""
        if self.root.is_local:
            return ""
        name = self.file_system_root[1].partition("/")[0]
        try:
            return "" if self.file_system.exists(name) else f"there is no {store_of(self.root.url).bucket} {name}"
        except Exception:  # noqa: BLE001 - the first error is reported
            return ""

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """A store that does not answer is the table's problem, not the run's."""
        try:
            yield
        except AbortRun as error:
            raise TransientError(error.message, hint=error.hint) from error
        except OSError as error:
            if refusal := access.refused_access(error):
                raise AccessDenied(f"{self.root.url} refuses access: {refusal}", hint=access.HINT) from error
            if is_missing(error) and (missing := self._missing_bucket()):
                raise TableError(f"{self.root.url}: {missing}", hint="Create it, or correct the URL") from error
            if self.root.is_local:
                what = f"{error.filename or self.root.url} cannot be used: {error.strerror or error}"
                raise TableError(what, hint="Check permissions and free space") from error
            raise TransientError(f"{self.root.url} does not answer: {error}", hint="Check the store") from error


def _dead_files(files: Iterable[StoredFile], manifest: Manifest) -> list[str]:
    """Files that the manifest lacks and no commit will name any more: their sequence number is committed, or they are
    old. If the state was lost, its next number is never committed; a stale writer may still do it for a while."""
    live = {file.path for file in manifest.files}
    done = {owner_of(commit.lineage, commit.table): commit.seq for commit in manifest.commits.values()}
    before = time() - LEAST_RETENTION
    return [file.name for file in files if file.name not in live and _is_over(file, done, before)]


def _is_over(file: StoredFile, done: Mapping[str, int], before: float) -> bool:
    """``done``: the newest number of each that has written to the table."""
    found = _NAME.fullmatch(file.name.rpartition("/")[2])
    if found is None or found[2] not in done:
        return False
    return int(found[1]) <= done[found[2]] or file.modified < before
