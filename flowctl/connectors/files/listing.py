"""Which files there are, and what tells one content of a file from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowctl.connectors.base import OpenContext, Relation
from flowctl.errors import TableError, TransientError
from flowctl.model.position import FileStamp
from flowctl.spec import storage as storages

if TYPE_CHECKING:
    import fsspec


@dataclass(frozen=True)
class FileRoot:
    """The connection's path as a URL (a plain path for local files), with the options of its fsspec file system."""

    url: str
    options: Mapping[str, Any] = field(repr=False)

    def file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """A file system that caches no listings, and the root as it names it."""
        import fsspec

        options = {} if self.is_local else dict(self.options)
        system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False, **options)
        return system, str(root).rstrip("/")

    @property
    def is_local(self) -> bool:
        return storages.scheme(self.url) == "file"

    def spark_path(self, path: str) -> str:
        """As Spark reads it: never percent-encoded, glob characters escaped."""
        escaped = "".join(f"\\{char}" if char in "\\{}[]*?" else char for char in path)
        if self.is_local:
            return f"file://{self.url}/{escaped}"
        return f"{storages.spark_url(self.url).rstrip('/')}/{escaped}"


def file_root(path: str, context: OpenContext) -> FileRoot:
    """Local paths start from the spec file's folder."""
    if storages.scheme(path) != "file":
        return FileRoot(path.rstrip("/"), storages.fsspec_options(path, context.storage))
    local = Path(context.base_dir, storages.local_path(path)).resolve()
    return FileRoot(str(local), {})


def pattern_of(relation: Relation) -> str:
    """The path pattern below the root that a relation names."""
    if relation.object is None:
        raise TableError("files are named by a path, not by a query", hint="Write `from: connection:path`")
    return relation.object.parts[-1]


def matching(root: FileRoot, pattern: str) -> tuple[FileStamp, ...]:
    """Files whose path below the root matches, sorted by path. ``*`` stays in one folder, ``**`` crosses folders.
    Names that begin with ``_`` or ``.`` are left out, as Spark would: they are somebody's unfinished work."""
    system, base = root.file_system()
    try:
        found = system.glob(f"{base}/{pattern}", detail=True)
    except PermissionError as error:
        raise TableError(f"{root.url}/{pattern} may not be listed", hint="Check `storage` and its rights") from error
    except OSError as error:
        raise TransientError(f"{root.url}/{pattern} cannot be listed: {error}", hint="Check the store") from error
    stamps = [
        FileStamp(path=name.removeprefix(f"{base}/"), size=int(info["size"]), tag=_tag(root, name, info))
        for name, info in found.items()
        if info["type"] == "file"
    ]
    return tuple(sorted((stamp for stamp in stamps if not _is_hidden(stamp.path)), key=lambda stamp: stamp.path))


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _tag(root: FileRoot, name: str, info: Mapping[str, Any]) -> str:
    """The store's own mark of a content: an ETag, or on a disk the time of the last write in nanoseconds."""
    if root.is_local:
        return str(Path(name).stat().st_mtime_ns)
    tag = info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("created") or info.get("mtime")
    return str(tag).strip('"')
