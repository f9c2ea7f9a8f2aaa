"""URLs of stores and local paths."""

from __future__ import annotations

import os
from pathlib import Path

from flowctl.storage.stores import by_scheme


def scheme(url: str) -> str:
    """``s3``, ``memory``, …; ``file`` for plain paths. Aliases of a store's scheme are mapped to its usual one."""
    name, found, _ = url.partition("://")
    if not found:
        return "file"
    store = by_scheme().get(name)
    return store.schemes[0] if store else name


def local_path(url: str) -> Path:
    """The path behind a plain path or a ``file://`` URL."""
    return Path(url.removeprefix("file://"))


def without_scheme(url: str) -> str:
    """The path part, as error messages name it."""
    _, has_scheme, rest = url.partition("://")
    return (rest if has_scheme else url).rstrip("/").removeprefix("./")


def path_place(url: str, base_dir: str) -> str:
    """The canonical location of a path or URL: symbolic links resolved, slashes and scheme aliases normalized."""
    if scheme(url) == "file":
        path = url.removeprefix("file://")
        return f"file {os.path.realpath(path if path.startswith('/') else f'{base_dir}/{path}')}"
    _, _, path = url.partition("://")
    return f"{scheme(url)} {'/'.join(part for part in path.split('/') if part)}"
