"""A local disk (or a mounted share with hard links) as a blob store: ``link()`` is the conditional create."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Sequence
from pathlib import Path

from flowctl.diagnostics import Mark
from flowctl.errors import AbortRun
from flowctl.storage.blobs import BlobInfo
from flowctl.storage.durable import (
    USUAL_MODE,
    create_durably,
    is_unfinished,
    make_folder,
    private_modes,
)
from flowctl.storage.urls import local_path

#: An unfinished file older than this is no longer being written.
_UNFINISHED_SECONDS = 24 * 3600


class DiskStore:
    """``private``: readable by this user only; otherwise, the umask decides. ``mark``: where the spec names it."""

    def __init__(self, url: str, *, private: bool = True, mark: Mark | None = None) -> None:
        self._root = local_path(url).absolute()
        self._private = private
        self._mark = mark
        self._prepared: set[Path] = set()
        self.url = str(self._root)

    def get(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise self._broken("read", name, cause) from cause

    def list(self, prefix: str) -> list[BlobInfo]:
        found = []
        try:
            with os.scandir(self._root / prefix) as entries:
                for entry in entries:
                    if not entry.name.startswith(".") and (info := _info(prefix, entry)):
                        found.append(info)
        except FileNotFoundError:
            return []
        except OSError as cause:
            raise self._broken("list", prefix, cause) from cause
        return sorted(found)

    def folders(self, prefix: str) -> Sequence[str]:
        try:
            with os.scandir(self._root / prefix) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as cause:
            raise self._broken("list", prefix, cause) from cause

    def create(self, name: str, data: bytes) -> bool:
        path = self._root / name
        try:
            self._prepare(path.parent)
            mode = private_modes(path.parent).file if self._private else USUAL_MODE
            return create_durably(path, data, mode)
        except OSError as cause:
            raise self._broken("write", name, cause) from cause

    def delete(self, name: str) -> None:
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as cause:
            raise self._broken("delete", name, cause) from cause

    def _prepare(self, folder: Path) -> None:
        """Creates the folder. Before this store's first blob in it, removes what crashes have left there."""
        make_folder(folder, private=self._private)
        if folder in self._prepared:
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_unfinished(entry.name) and time.time() - _modified(entry) > _UNFINISHED_SECONDS:
                    Path(entry.path).unlink(missing_ok=True)
        self._prepared.add(folder)

    def _broken(self, verb: str, name: str, cause: OSError) -> AbortRun:
        return AbortRun(
            f"cannot {verb} {self._root / name}: {cause.strerror or cause}",
            hint="Check permissions and free space; it must be a disk with hard links that this user may write",
            mark=self._mark,
        )


def _modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return time.time()


def _info(prefix: str, entry: os.DirEntry[str]) -> BlobInfo | None:
    try:
        found = entry.stat()
    except FileNotFoundError:  # deleted since the folder was read
        return None
    if not entry.is_file():
        return None
    modified = dt.datetime.fromtimestamp(found.st_mtime, dt.UTC)
    return BlobInfo(prefix + entry.name, found.st_size, modified)
