"""Files on a local disk that survive a power cut: state's own, and the log entries that state relies on."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

#: Of data that others read, as the umask leaves it.
USUAL_MODE = 0o644


def write_durably(path: Path, data: bytes, mode: int = USUAL_MODE) -> None:
    """A new file; FileExistsError when it is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        if mode != USUAL_MODE:
            os.fchmod(descriptor, mode)  # whatever the umask is
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def create_durably(path: Path, data: bytes, mode: int = USUAL_MODE) -> bool:
    """A new file in a folder that is there, in one act; False when it is there already."""
    # Names that start with a dot are nobody's: a crash leaves at most one such file behind.
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write_durably(unfinished, data, mode)
        os.link(unfinished, path)
    except FileExistsError:
        return False
    finally:  # also on a full disk, where it is there without its content
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def make_folder(folder: Path, *, private: bool = False) -> None:
    """With its parents. ``private``: each new one has its private mode (:func:`private_modes`)."""
    if folder.is_dir():
        return
    make_folder(folder.parent, private=private)
    with suppress(FileExistsError):
        if private:
            mode = private_modes(folder.parent).folder
            folder.mkdir(mode=mode)
            folder.chmod(mode | folder.stat().st_mode & 0o7000)  # whatever the umask is; a group's folder stays one
        else:
            folder.mkdir()
    sync_folder(folder.parent)


@dataclass(frozen=True)
class Modes:
    """Of new folders and files."""

    folder: int
    file: int


def private_modes(folder: Path) -> Modes:
    """What flowctl keeps is for its own user. Where the nearest folder that is there may be written by its group,
    and not by everybody, somebody has set it up for sharing, and what is in it is shared the same way."""
    existing = next(place for place in (folder, *folder.parents) if place.is_dir())
    is_shared = existing.stat().st_mode & 0o022 == 0o020
    return Modes(0o770, 0o660) if is_shared else Modes(0o700, 0o600)


def open_private(path: Path) -> BinaryIO:
    """A new file, or an old one's content replaced."""
    mode = private_modes(path.parent).file
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "wb")


def sync_folder(folder: Path) -> None:
    """A new name is only safe from a power cut once its folder is on disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
