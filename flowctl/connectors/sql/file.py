"""What databases in one file share: the path of the connection, and the file as a place and as a system."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowctl.connectors.base import OpenContext
from flowctl.spec.secrets import Revealed


def database_path(options: Mapping[str, Any], context: OpenContext) -> Path:
    """The connection's ``path``; a relative one starts from the spec file's folder."""
    return Path(context.base_dir, str(options["path"])).resolve()


def system_name(type: str, options: Mapping[str, Any], context: OpenContext) -> str:
    """What state records to detect another file: the path as given, with links unresolved, as they may point to a new
    copy every night. A path that is a secret is hashed."""
    path = os.path.normpath(Path(context.base_dir, str(options["path"])).absolute())
    if isinstance(options["path"], Revealed):
        return f"{type}:{hashlib.sha256(path.encode()).hexdigest()[:16]}"
    return f"{type}:{path}"


def file_place(type: str, options: Mapping[str, Any], name: str, base_dir: str) -> str:
    """The place of the table ``name``, by device and inode of the file, the same for every path to it."""
    path = Path(base_dir, str(options["path"])).resolve()
    file = f"{path.stat().st_dev}:{path.stat().st_ino}" if path.exists() else str(path)
    return f"{type} {file}/{name}"


def begins_with(path: Path, mark: bytes, at: int = 0) -> bool:
    """Whether the file has ``mark`` at this byte; false for what is no file that can be read."""
    try:
        with path.open("rb") as file:
            return file.read(at + len(mark))[at:] == mark
    except OSError:
        return False
