"""The folder of one table: its manifests, its data files, and how new ones appear.

New files are written where no reader looks: on a disk below ``_flowctl/unfinished``, in an object store as uploads that
are not completed. They appear right before the manifest that names them, each in one step.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from flowctl import delays
from flowctl.connectors.files.sink.manifest import DataFile, Manifest, file_name, manifest_of, version_of
from flowctl.errors import AbortRun, AccessDenied, TableError, TransientError
from flowctl.model.table_info import ObjectName
from flowctl.storage import access
from flowctl.storage.blobs import BlobStore
from flowctl.storage.durable import make_folder, sync_folder
from flowctl.storage.options import Storage, fsspec_options, open_store
from flowctl.storage.urls import local_path, scheme

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

OWN = "_flowctl"
_COMMITS = "commits/"
_UNFINISHED = f"{OWN}/unfinished"
#: Sequence number, table of a lineage, try, number.
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


@dataclass(frozen=True)
class StoredFile:
    """``path`` is relative to the table's folder. ``seq`` and ``owner`` are those of the commit it was written for."""

    path: str
    bytes: int
    seq: int
    owner: str


class NewFile:
    """A file that nobody sees until it is published. ``opened`` takes its content."""

    def __init__(self, folder: TableFolder, path: str) -> None:
        self.path = path
        self._folder = folder
        self.opened: BinaryIO = self._open()
        self.is_published = False

    def finish(self) -> int:
        """Ends its content; returns its size."""
        size = int(self.opened.tell())
        if self._folder.is_local:
            self.opened.flush()
            os.fsync(self.opened.fileno())
        self.opened.close()
        return size

    def publish(self) -> None:
        if self.is_published:
            return
        self.is_published = True  # whatever happens now, it may be there
        if self._folder.is_local:
            final = local_path(f"{self._folder.url}/{self.path}")
            self._unfinished.rename(final)
            sync_folder(final.parent)
        else:
            cast(Any, self.opened).commit()

    def discard(self) -> None:
        """Removes it, published or not."""
        if self.is_published:
            self._folder.remove(self.path)
        elif self._folder.is_local:
            self.opened.close()
            self._unfinished.unlink(missing_ok=True)
        else:
            with suppress(Exception):  # the store removes uploads that are never completed, as its own rules say
                cast(Any, self.opened).discard()
            cast(Any, self.opened).closed = True

    def _open(self) -> BinaryIO:
        if self._folder.is_local:
            make_folder(self._unfinished.parent)
            make_folder(local_path(f"{self._folder.url}/{self.path}").parent)
            return self._unfinished.open("xb")
        system = self._folder.file_system
        return cast(BinaryIO, system.open(f"{self._folder.url}/{self.path}", "wb", autocommit=False))

    @property
    def _unfinished(self) -> Path:
        return local_path(f"{self._folder.url}/{_UNFINISHED}/{self.path.rpartition('/')[2]}")


@dataclass(frozen=True)
class TableFolder:
    """``url`` is an absolute local path or an object store's URL, without a trailing slash."""

    url: str
    storage: Storage

    @property
    def is_local(self) -> bool:
        return scheme(self.url) == "file"

    def newest(self) -> Manifest:
        """The newest manifest; version 0 if there is none."""
        delays.pause()
        with self._own_errors():
            while True:
                found = [version_of(blob.name.removeprefix(_COMMITS)) for blob in self._blobs.list(_COMMITS)]
                version = max((number for number in found if number is not None), default=0)
                if not version:
                    return Manifest()
                name = _COMMITS + file_name(version)
                if (content := self._blobs.get(name)) is not None:  # else it was removed, so there is a newer one
                    return manifest_of(version, content, f"{self.url}/{OWN}/{name}")

    def create(self, manifest: Manifest) -> bool:
        """False if the version exists."""
        with self._own_errors():
            return self._blobs.create(_COMMITS + file_name(manifest.version), manifest.to_json())

    def stored(self) -> list[StoredFile]:
        """All data files that flowctl has written here, and those that were never finished."""
        return [file for path, size in self._all() if (file := _stored(path, size)) is not None]

    def foreign_name(self) -> str | None:
        """The name of something that flowctl has not written here; None if there is nothing."""
        with self._own_errors():
            try:
                entries = self.file_system.ls(self.url, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return None
        own = self.url.rpartition("/")[2]
        names = {str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in entries if entry.get("size") != 0}
        names |= {
            str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in entries if entry["type"] == "directory"
        }
        return min((name for name in names - {OWN, own, ""} if not _NAME.fullmatch(name)), default=None)

    def remove(self, path: str) -> None:
        """Does nothing if it does not exist."""
        with self._own_errors(), suppress(FileNotFoundError):
            self.file_system.rm_file(f"{self.url}/{path}")

    @cached_property
    def file_system(self) -> AbstractFileSystem:
        """Caches no listings."""
        import fsspec

        kind = scheme(self.url)
        options = {} if kind == "file" else fsspec_options(self.url, self.storage)
        return fsspec.filesystem(kind, use_listings_cache=False, **options)

    @cached_property
    def _blobs(self) -> BlobStore:
        return open_store(f"{self.url}/{OWN}", self.storage, private=False)

    def _all(self) -> Iterator[tuple[str, int]]:
        with self._own_errors():
            try:
                root = str(self.file_system.info(self.url)["name"]).rstrip("/")
                places = [self.url, f"{self.url}/{_UNFINISHED}"]
                entries = [entry for place in places for entry in self._files_in(place)]
            except FileNotFoundError:
                return
        for entry in entries:
            yield str(entry["name"]).removeprefix(f"{root}/"), int(entry["size"] or 0)

    def _files_in(self, place: str) -> list[dict[str, Any]]:
        try:
            return [entry for entry in self.file_system.ls(place, detail=True) if entry["type"] == "file"]
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """A store that does not answer is the table's problem, not the run's."""
        try:
            yield
        except FileNotFoundError:
            raise
        except AbortRun as error:
            raise TransientError(error.message, hint=error.hint) from error
        except OSError as error:
            if refusal := access.refused_access(error):
                raise AccessDenied(f"{self.url} refuses access: {refusal}", hint=access.HINT) from error
            if self.is_local:
                what = f"{error.filename or self.url} cannot be used: {error.strerror or error}"
                raise TableError(what, hint="Check permissions and free space") from error
            raise TransientError(f"{self.url} does not answer: {error}", hint="Check the store") from error


def folder_of(root: str, object: ObjectName, storage: Storage) -> TableFolder:
    return TableFolder("/".join([root.rstrip("/"), *object.parts]), storage)


def dead_files(stored: list[StoredFile], manifest: Manifest) -> list[StoredFile]:
    """Files that no commit will name any more: their sequence number is committed, and the manifest lacks them."""
    live = {file.path for file in manifest.files}
    done = {owner_of(commit.lineage, commit.table): commit.seq for commit in manifest.commits.values()}
    return [file for file in stored if file.path not in live and file.seq <= done.get(file.owner, 0)]


def _stored(path: str, size: int) -> StoredFile | None:
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return StoredFile(path, size, int(found[1]), found[2]) if found else None


def data_file(new: NewFile, rows: int, size: int) -> DataFile:
    return DataFile(new.path, rows, size)
