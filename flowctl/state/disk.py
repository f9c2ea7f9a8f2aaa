"""A local disk (or a mounted share with hard links) as a blob store: ``link()`` is the conditional create."""

from __future__ import annotations

import datetime as dt
import os
import uuid

from flowctl.durable import make_folder, sync_folder, write_durably
from flowctl.errors import AbortRun
from flowctl.spec import storage as storages
from flowctl.state.blobs import BlobInfo


class DiskStore:
    def __init__(self, url: str) -> None:
        self._root = storages.local_path(url).absolute()
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

    def create(self, name: str, data: bytes) -> bool:
        path = self._root / name
        # Unfinished files start with a dot and are never listed: a crash leaves at most one of them behind.
        unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            make_folder(path.parent)
            write_durably(unfinished, data)
            try:
                os.link(unfinished, path)
            except FileExistsError:
                return False
            finally:
                unfinished.unlink()
            sync_folder(path.parent)
        except OSError as cause:
            raise self._broken("write", name, cause) from cause
        return True

    def delete(self, name: str) -> None:
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as cause:
            raise self._broken("delete", name, cause) from cause

    def _broken(self, verb: str, name: str, cause: OSError) -> AbortRun:
        return AbortRun(
            f"cannot {verb} {self._root / name}: {cause.strerror or cause}",
            hint="State needs a disk with hard links that this user may write; check its permissions and free space",
        )


def _info(prefix: str, entry: os.DirEntry[str]) -> BlobInfo | None:
    try:
        found = entry.stat()
    except FileNotFoundError:  # deleted since the folder was read
        return None
    if not entry.is_file():
        return None
    modified = dt.datetime.fromtimestamp(found.st_mtime, dt.UTC)
    return BlobInfo(prefix + entry.name, found.st_size, modified)
