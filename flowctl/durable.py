"""Files on a local disk that survive a power cut: state's own, and the log entries that state relies on."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes, mode: int = 0o644) -> None:
    """A new file; FileExistsError when it is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """A new name is only safe from a power cut once its folder is on disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
