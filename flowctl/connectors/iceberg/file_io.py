"""Iceberg's files by flowctl's own storage: one place in the spec has the credentials, and what a commit relies on
survives a power failure."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from flowctl.connectors.lake.folder import Folder
from flowctl.storage.options import Storage

#: Properties of a catalog: the class that opens its files, and the key of its storage in :data:`_STORAGES`.
IMPLEMENTATION, KEY = "py-io-impl", "flowctl.storage"
#: PyIceberg makes the class itself, from properties that are texts and may be printed; the storage may be secret.
_STORAGES: dict[str, Storage] = {}


@contextmanager
def properties_of(storage: Storage) -> Iterator[Mapping[str, str]]:
    """The properties of a catalog whose files are reached with ``storage``, while the context is open."""
    key = uuid.uuid4().hex
    _STORAGES[key] = storage
    try:
        yield {IMPLEMENTATION: f"{StorageFileIO.__module__}.{StorageFileIO.__name__}", KEY: key}
    finally:
        del _STORAGES[key]


class StorageFileIO(FileIO):
    def new_input(self, location: str) -> InputFile:
        return _Input(location, self._storage)

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, self._storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        folder, name = split(path, self._storage)
        folder.file_system().rm_file(f"{folder.url}/{name}")

    @property
    def _storage(self) -> Storage:
        return _STORAGES[self.properties[KEY]]


def split(location: str, storage: Storage) -> tuple[Folder, str]:
    """The folder of a file, and its name there. Java writes ``file:/…`` for a local path."""
    folder, _, name = plain(location).rpartition("/")
    return Folder(folder, storage), name


def plain(location: str) -> str:
    """``location`` as flowctl's storage writes it."""
    for prefix in ("file://", "file:"):
        if location.startswith(prefix):
            return location.removeprefix(prefix)
    return location


class _Input(InputFile):
    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location)
        self._folder, self._name = split(location, storage)

    def __len__(self) -> int:
        return int(self._folder.file_system().size(f"{self._folder.url}/{self._name}"))

    def exists(self) -> bool:
        return bool(self._folder.file_system().exists(f"{self._folder.url}/{self._name}"))

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self._folder.read_file(self._name))


class _Output(OutputFile):
    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location)
        self._location, self._storage = location, storage

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Input(self._location, self._storage)

    def create(self, overwrite: bool = False) -> Any:
        """The file appears, complete, when the stream is closed. All names are new, so nothing is overwritten."""
        return _Stream(*split(self._location, self._storage))


class _Stream(io.BytesIO):
    def __init__(self, folder: Folder, name: str) -> None:
        super().__init__()
        self._folder, self._name = folder, name

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._folder.write_file(self._name, content)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """What failed half way is not written."""
        if kind is not None:
            super().close()
        self.close()
