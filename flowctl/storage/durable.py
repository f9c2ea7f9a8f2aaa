"""Files on a local disk that survive a power failure: those of the state, and the log entries that it relies on."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

#: The mode of data that others read; the umask applies.
USUAL_MODE = 0o644
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}")


def write_durably(path: Path, data: bytes, mode: int = USUAL_MODE) -> None:
    """Writes a new file; ``FileExistsError`` if it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        if mode != USUAL_MODE:
            os.fchmod(descriptor, mode)  # whatever the umask is
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def create_durably(path: Path, data: bytes, mode: int = USUAL_MODE) -> bool:
    """Creates a file atomically in an existing folder; returns False if the file already exists."""
    # Names that start with a dot are ignored by readers: a crash leaves at most one such file behind.
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write_durably(unfinished, data, mode)
        os.link(unfinished, path)
    except FileExistsError:
        return False
    finally:  # also on a full disk, where it exists without its content
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def is_unfinished(name: str) -> bool:
    """Whether it is the name of a file that :func:`create_durably` has not finished."""
    return _UNFINISHED.fullmatch(name) is not None


def make_folder(folder: Path, *, private: bool = False) -> None:
    """Creates a folder and its parents. ``private``: each new one gets its private mode (:func:`private_modes`)."""
    if folder.is_dir():
        return
    make_folder(folder.parent, private=private)
    with suppress(FileExistsError):
        if private:
            mode = private_modes(folder.parent).folder
            folder.mkdir(mode=mode)
            folder.chmod(mode | folder.stat().st_mode & 0o7000)  # whatever the umask is; keeps the setgid bit
        else:
            folder.mkdir()
    sync_folder(folder.parent)


@dataclass(frozen=True)
class Modes:
    """Permission bits of new folders and files."""

    folder: int
    file: int


def private_modes(folder: Path) -> Modes:
    """What flowctl stores is accessible to its own user only. If the nearest existing folder is writable by its group
    but not by everybody, it was set up for sharing, and new folders and files in it are shared with the group."""
    existing = next(place for place in (folder, *folder.parents) if place.is_dir())
    is_shared = existing.stat().st_mode & 0o022 == 0o020
    return Modes(0o770, 0o660) if is_shared else Modes(0o700, 0o600)


def open_private(path: Path) -> BinaryIO:
    """Opens a new file, or truncates an existing one."""
    mode = private_modes(path.parent).file
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "wb")


def sync_folder(folder: Path) -> None:
    """Syncs a folder: a new name survives a power failure only once its folder is on disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
