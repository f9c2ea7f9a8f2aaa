"""Lists files, each with a tag that changes with its content."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowctl.connectors.base import OpenContext
from flowctl.connectors.files.formats import by_extension
from flowctl.connectors.files.found import Found, each_once, ways
from flowctl.connectors.files.gaps import misplaced_folders
from flowctl.connectors.files.grouping import ending_of
from flowctl.connectors.source import Missing, Relation
from flowctl.errors import AccessDenied, TableError, TransientError
from flowctl.model.position import FileStamp
from flowctl.spec.secrets import Revealed
from flowctl.spec.suggest import nearest
from flowctl.storage import access
from flowctl.storage.options import fsspec_options, spark_url
from flowctl.storage.urls import local_path, scheme

if TYPE_CHECKING:
    import fsspec


@dataclass(frozen=True)
class FileRoot:
    """The connection's path as a URL (a plain path for local files), with the options of its fsspec file system.
    ``spark_url`` is the path as Spark has it. ``has_secret``: the URL must not be shown or stored."""

    url: str
    options: Mapping[str, Any] = field(repr=False)
    has_secret: bool = False
    spark_url: str = field(default="", repr=False)

    @property
    def identity(self) -> str:
        """What state records of the root."""
        if not self.has_secret:
            return f"files:{self.url}"
        return f"files:{scheme(self.url)}:{hashlib.sha256(self.url.encode()).hexdigest()[:16]}"

    def file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """A file system that caches no listings, and the root in its notation."""
        import fsspec

        options = {} if self.is_local else dict(self.options)
        system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False, **options)
        return system, str(root).rstrip("/")

    @property
    def is_local(self) -> bool:
        return scheme(self.url) == "file"

    def spark_path(self, path: str) -> str:
        """In Spark's notation: never percent-encoded."""
        if self.is_local:
            return f"file://{self.url}/{path}"
        return f"{self.spark_url.rstrip('/')}/{path}"


def file_root(path: str, context: OpenContext) -> FileRoot:
    """Relative local paths start from the spec file's folder."""
    has_secret = isinstance(path, Revealed)
    if scheme(path) != "file":
        on_spark = spark_url(path, context.storage)
        return FileRoot(path.rstrip("/"), fsspec_options(path, context.storage), has_secret, on_spark)
    local = Path(context.base_dir, local_path(path)).resolve()
    return FileRoot(str(local), {}, has_secret)


def pattern_of(relation: Relation) -> str:
    """The path pattern below the root that a relation names."""
    if relation.object is None:
        raise TableError("files are named by a path, not by a query", hint="Write `from: connection:path`")
    return relation.object.parts[-1]


def matching(root: FileRoot, pattern: str, read: Mapping[str, FileStamp] | None = None) -> tuple[FileStamp, ...]:
    """Files whose path below the root matches, sorted by path. ``*`` stays in one folder, ``**`` crosses folders. Names
    that begin with ``_`` or ``.`` are skipped, as Spark does: they are unfinished files. A folder with such a name is
    searched only if the pattern names it. A file to which several paths lead is there once, as it was ``read``.
    ``TableError`` for a name that is no text."""
    visible = _visible(root, pattern)
    for one in visible:
        require_text(one.stamp.path)
    return _by_path(each_once(visible, read or {}))


def listed(root: FileRoot, pattern: str) -> tuple[FileStamp, ...]:
    """As :func:`matching`, with those whose names are no text, and by all paths that lead to them."""
    return _by_path(one.stamp for one in _visible(root, pattern))


def _visible(root: FileRoot, pattern: str) -> list[Found]:
    return [one for one in _found(root, pattern) if not _is_hidden(one.stamp.path, pattern)]


def _by_path(stamps: Iterable[FileStamp]) -> tuple[FileStamp, ...]:
    return tuple(sorted(stamps, key=lambda one: one.path))


def all_paths(root: FileRoot) -> tuple[list[str], list[str]]:
    """The paths of all files below the root, sorted, and of those that a pattern finds, each by one path."""
    found = _found(root, "**")
    visible = ways(one for one in found if not _is_hidden(one.stamp.path, "**"))
    return sorted(one.stamp.path for one in found), sorted(paths[0].stamp.path for paths in visible)


def require_text(path: str) -> None:
    """``TableError`` for a path that neither state nor a column can hold: on a disk, a name can be any bytes."""
    if (shown := shown_path(path)) != path:
        raise TableError(
            f"{shown} has a name that is not UTF-8", hint="Rename it, or leave it out of the pattern in `from`"
        )


def shown_path(path: str) -> str:
    """The path for people: bytes that are not UTF-8 as ``\\xff``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def why_nothing(root: FileRoot, pattern: str, kind: str | None) -> Missing:
    """Why nothing matches: the resolved path, and similar names. ``kind`` is the format that the spec names."""
    place = f"{root.url}/{pattern}"
    found = _found(root, pattern)
    if found:
        hidden = shown_path(found[0].stamp.path)
        return Missing(
            f"{place} matches only names that begin with _ or ., such as {hidden}, which are unfinished files",
            "Rename the files, or name a folder of that name in `from`",
        )
    if inside := _pattern_inside(root, pattern, kind):
        return Missing(f"{place} is a folder, not a file", f"Write `{inside}` in `from`, for the files in it")
    folder = Path(root.url)
    if not root.is_local:
        return Missing(f"no file matches {place}", "Correct `from`, or let the credentials list it")
    for part in plain_folders(pattern):
        if not folder.is_dir():
            break
        folder = folder / part
    if folder.is_dir():
        others = sorted(shown_path(entry.name) for entry in folder.iterdir())[:5]
        return Missing(
            f"no file matches {place}", f"{folder} has {', '.join(others)}" if others else f"{folder} is empty"
        )
    parent = next((above for above in folder.parents if above.is_dir()), folder)
    names = [shown_path(entry.name) for entry in parent.iterdir()]
    near = nearest(folder.name, names, "Correct `from`, or `path` of the connection")
    return Missing(f"no file matches {place}: the folder {folder} does not exist", near)


def _pattern_inside(root: FileRoot, pattern: str, kind: str | None) -> str:
    """The pattern of the files in the folder that ``pattern`` names, of one kind if there are several; empty if it
    names none."""
    folder = pattern.rstrip("/")
    if not folder or _has_wildcard(folder):
        return ""
    for below in ("*", "**/*"):
        paths = [stamp.path for stamp in listed(root, f"{folder}/{below}")]
        of_kind = [path for path in paths if by_extension(path) == kind] or paths
        endings = {ending_of(path.rpartition("/")[2]) for path in of_kind}
        if endings:
            return f"{folder}/{below}{endings.pop() if len(endings) == 1 else ''}"
    return f"{folder}/*" if root.is_local and Path(root.url, folder).is_dir() else ""


def _in_store(root: FileRoot, pattern: str) -> list[Found]:
    system, base = root.file_system()
    try:
        found = _objects(system, base, pattern)
    except Exception as error:
        if refusal := access.refused_access(error):
            raise AccessDenied(f"{root.url}/{pattern} refuses access: {refusal}", hint=access.HINT) from error
        what = f"{root.url}/{pattern} cannot be listed: {access.in_one_line(error)}"
        raise TransientError(what, hint="Check the store and its address") from error
    return [_object(path, info) for path, info in found.items()]


def _objects(system: fsspec.AbstractFileSystem, base: str, pattern: str) -> Mapping[str, Mapping[str, Any]]:
    """The objects that match, by their paths below ``base``. fsspec's own ``glob`` takes an object whose name is also
    that of a folder for the folder, and finds none in a folder without a name (``a//b.csv``)."""
    *folders, _ = pattern.split("/")
    if not _has_wildcard(pattern):
        with suppress(FileNotFoundError):
            info = system.info(f"{base}/{pattern}")
            return {pattern: info} if info["type"] == "file" else {}
        return {}
    if "**" in pattern:
        with suppress(FileNotFoundError):
            below = "/".join([base, *plain_folders(pattern)])
            return _matching(system.find(below, detail=True).values(), base, pattern)
        return {}
    there = [base]
    for folder in folders:
        if not _has_wildcard(folder):
            there = [f"{above}/{folder}" for above in there]
            continue
        matches = _matcher(folder)
        names = [(above, _below(above, info)) for above in there for info in _listed(system, above) if _is_folder(info)]
        there = sorted({f"{above}/{name}" for above, name in names if matches(name)})
    return _matching((info for above in there for info in _listed(system, above)), base, pattern)


def _matcher(pattern: str) -> Callable[[str], object]:
    """As fsspec matches."""
    from fsspec.utils import glob_translate

    if refused := misplaced_folders(pattern):
        what, hint = refused
        raise TableError(what, hint=hint)
    return re.compile(glob_translate(pattern)).match


def _matching(found: Iterable[Mapping[str, Any]], base: str, pattern: str) -> Mapping[str, Mapping[str, Any]]:
    matches = _matcher(pattern)
    files = [info for info in found if info["type"] == "file" and not str(info["name"]).endswith("/")]
    return {path: info for info in files if matches(path := _below(base, info))}


def _listed(system: fsspec.AbstractFileSystem, folder: str) -> Sequence[Mapping[str, Any]]:
    """What is in a folder; nothing if there is no such folder."""
    try:
        return [info for info in system.ls(folder, detail=True) if _below(folder, info)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(info: Mapping[str, Any]) -> bool:
    return bool(info["type"] == "directory")


def _below(folder: str, info: Mapping[str, Any]) -> str:
    """The path below ``folder``; empty for the object that some tools create for the folder itself."""
    name = str(info["name"])
    return name.rstrip("/").removeprefix(f"{folder}/") if name.startswith(f"{folder}/") else ""


def _found(root: FileRoot, pattern: str) -> list[Found]:
    """With hidden ones."""
    return _on_disk(root, pattern) if root.is_local else _in_store(root, pattern)


def _on_disk(root: FileRoot, pattern: str) -> list[Found]:
    """Matches as fsspec does, in one pass over the folders that can match, with one stat per file."""
    matches = _matcher(pattern)
    parts = pattern.split("/")
    deepest = sys.maxsize if "**" in pattern else len(parts)
    start = "/".join(plain_folders(pattern))
    found: list[Found] = []

    def look(folder: str, depth: int, above: frozenset[tuple[int, int]], place: str, links: int) -> None:
        try:
            with os.scandir(f"{root.url}/{folder}") as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if _leads_nowhere(entry):
                        continue
                    if entry.is_dir():
                        inside = _identity(entry.stat())
                        if depth < deepest and inside not in above:  # skips a link to a folder above it
                            is_link = entry.is_symlink()
                            at = os.path.realpath(entry.path) if is_link else f"{place}/{entry.name}"
                            look(path, depth + 1, above | {inside}, at, links + is_link)
                    elif matches(path) and entry.is_file():
                        seen = entry.stat()
                        stamp = FileStamp(path, seen.st_size, str(seen.st_mtime_ns))
                        found.append(Found(stamp, f"{place}/{entry.name}", links))
        except (FileNotFoundError, NotADirectoryError):
            return  # never existed, or removed since its folder was read
        except PermissionError as error:
            where = f"{root.url}/{folder}".rstrip("/")
            raise TableError(
                f"{where} cannot be listed: permission denied", hint="Let this user read the folder"
            ) from error
        except OSError as error:
            hint = "Check the disk and the links in the folder"
            raise TransientError(f"{error.filename} cannot be read: {error.strerror}", hint=hint) from error

    top = Path(root.url)
    if top.is_dir():
        place = os.path.realpath(top / start).rstrip("/")
        look(start, start.count("/") + 2 if start else 1, frozenset({_identity(top.stat())}), place, 0)
    return found


def plain_folders(pattern: str) -> list[str]:
    """The leading folders of a pattern, up to the first wildcard."""
    return list(itertools.takewhile(lambda part: not _has_wildcard(part), pattern.split("/")[:-1]))


def _has_wildcard(text: str) -> bool:
    return not set(text).isdisjoint("*?[")


def _identity(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_dev, seen.st_ino


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    """Whether it is a broken link, or a link to itself."""
    return entry.is_symlink() and not Path(entry.path).exists()


def _is_hidden(path: str, pattern: str) -> bool:
    """Spark always skips files with such names, but folders only where it lists them itself."""
    *folders, name = path.split("/")
    named = [part for part in pattern.split("/")[:-1] if part.startswith(("_", "."))]
    return name.startswith(("_", ".")) or any(
        folder.startswith(("_", ".")) and not any(fnmatchcase(folder, part) for part in named) for folder in folders
    )


def _object(path: str, info: Mapping[str, Any]) -> Found:
    """Google's ETag changes with an object's metadata, too; its generation does not."""
    size, tag = int(info["size"]), _tag(info)
    if generation := info.get("generation"):
        return Found(FileStamp(path, size, str(generation)), former=tag)
    return Found(FileStamp(path, size, tag))


def _tag(info: Mapping[str, Any]) -> str:
    """The store's own identifier for a file's content."""
    tag = info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("created") or info.get("mtime")
    return str(tag).strip('"')
