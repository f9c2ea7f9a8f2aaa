"""Object stores through fsspec. They differ only in the conditional create and the error that its loser gets."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flowctl import extras
from flowctl.diagnostics import Mark
from flowctl.errors import AbortRun, chain
from flowctl.storage import access
from flowctl.storage.blobs import BlobInfo

#: Created once per store and refused from then on; a store that accepts it twice does not honour conditions. Readers of
#: files skip such a name.
PROBE = "_conditional-create"
#: Attempts of a create that is refused for a conflict with another request although the blob does not exist.
CONFLICT_TRIES = 5
#: How s3fs, adlfs and gcsfs name the time in a listing.
_MODIFIED = ("LastModified", "last_modified", "mtime")
#: How the errors of aiohttp, Azure and gcsfs name the status of a response.
_STATUS = ("status", "status_code", "code")


class ObjectStore:
    """``options`` are the file system's constructor arguments, ``bucket`` is the store's word for what a URL begins
    with, ``mark`` the place in the spec that errors name. Each store keeps its own client for its lifetime,
    without fsspec's listings cache, which would hide blobs that others create."""

    def __init__(
        self, url: str, options: Mapping[str, Any], *, bucket: str, unsafe: bool = False, mark: Mark | None = None
    ) -> None:
        import fsspec

        self.url = url.rstrip("/")
        self._unsafe = unsafe
        self._bucket = bucket
        self._mark = mark
        self._probed = False
        try:
            self._fs, self._root = fsspec.core.url_to_fs(
                self.url, skip_instance_cache=True, use_listings_cache=False, **options
            )
        except (ImportError, ValueError) as cause:
            if missing := extras.missing_package(str(cause)):
                what = f"{self.url} needs {missing}, which is not installed"
                raise AbortRun(what, hint=extras.install_hint(missing), mark=mark) from cause
            hint = "Check `state` and `storage` in the spec"
            raise AbortRun(f"cannot open {self.url}: {cause}", hint=hint, mark=mark) from cause

    def get(self, name: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None
        except Exception as cause:
            raise self._broken("read", name, cause) from cause

    def list(self, prefix: str) -> list[BlobInfo]:
        folder = self._path(prefix).rstrip("/") + "/"
        try:
            found = self._fs.find(folder, detail=True)
        except FileNotFoundError:
            return []
        except Exception as cause:
            raise self._broken("list", prefix, cause) from cause
        below = {path[len(folder) :]: entry for path, entry in found.items() if path.startswith(folder)}
        return sorted(
            BlobInfo(prefix + name, entry["size"], _modified(entry))
            for name, entry in below.items()
            if name and "/" not in name
        )

    def folders(self, prefix: str) -> Sequence[str]:
        try:
            found = self._fs.ls(self._path(prefix).rstrip("/"), detail=True)
        except FileNotFoundError:
            return []
        except Exception as cause:
            raise self._broken("list", prefix, cause) from cause
        names = (entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "directory")
        return sorted(names)

    def create(self, name: str, data: bytes) -> bool:
        if self._unsafe:
            return self._create_unsafely(name, data)
        self._probe()
        return self._create(name, data)

    def delete(self, name: str) -> None:
        try:
            self._fs.rm_file(self._path(name))
        except FileNotFoundError:
            return
        except Exception as cause:
            raise self._broken("delete", name, cause) from cause

    def _create(self, name: str, data: bytes) -> bool:
        for attempt in range(CONFLICT_TRIES):
            try:
                self._fs.pipe_file(self._path(name), data, mode="create")
            except Exception as cause:
                if not is_refused_create(cause):
                    raise self._broken("write", name, cause) from cause
                # A conflict (S3's 409) also occurs in a race with a delete: only whether the blob exists counts.
                if self.get(name) is not None:
                    return False
                time.sleep(0.05 * 2**attempt)
            else:
                return True
        what = f"{self.url}/{name}: the store refused to create it, though it is not there"
        raise AbortRun(what, hint="Run again", mark=self._mark)

    def _create_unsafely(self, name: str, data: bytes) -> bool:
        """Two racing creators may both get True, which ``state: {unsafe: true}`` accepts."""
        if self.get(name) is not None:
            return False
        try:
            self._fs.pipe_file(self._path(name), data)
        except Exception as cause:
            raise self._broken("write", name, cause) from cause
        return True

    def _probe(self) -> None:
        if self._probed:
            return
        if self._create(PROBE, b"") and self._create(PROBE, b""):
            raise AbortRun(
                f"{self.url}: this store does not honour conditional writes, two runs could both think they wrote",
                hint="Use a store that does, or accept the risk with `state: {url: …, unsafe: true}`",
                mark=self._mark,
            )
        self._probed = True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _broken(self, verb: str, name: str, cause: Exception) -> AbortRun:
        if refusal := access.refused_access(cause):
            return AbortRun(f"{self.url} refuses access: {refusal}", hint=access.HINT, mark=self._mark)
        if verb == "write" and is_missing(cause):
            called = self._root.partition("/")[0]
            what, hint = f"{self.url}: there is no {self._bucket} {called}", "Create it, or correct the URL"
            return AbortRun(what, hint=hint, mark=self._mark)
        return AbortRun(
            f"cannot {verb} {self.url}/{name}: {type(cause).__name__}: {access.in_one_line(cause)}",
            hint="Check the store's address, its credentials (`storage` in the spec) and permissions",
            mark=self._mark,
        )


def _modified(entry: Mapping[str, Any]) -> dt.datetime:
    """The time of a listing. A question about the blob itself would fail if it is deleted meanwhile."""
    known: dt.datetime = next(entry[key] for key in _MODIFIED if key in entry)
    return known if known.tzinfo else known.replace(tzinfo=dt.UTC)


def is_refused_create(error: BaseException) -> bool:
    """Whether the store answered that the blob exists, in any form: FileExistsError (s3fs on AWS, gcsfs, adlfs), or a
    412 or 409 that s3fs wraps as EINVAL or EIO (minio sends no <Condition>)."""
    return any(isinstance(link, FileExistsError) or _status(link) in (409, 412) for link in chain(error))


def is_missing(error: BaseException) -> bool:
    """Whether the store answered that it has no such thing. A write lacks nothing but the bucket."""
    return any(isinstance(link, FileNotFoundError) or _status(link) == 404 for link in chain(error))


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = next((found for name in _STATUS if (found := getattr(error, name, None))), None)
    return status if isinstance(status, int) else None
