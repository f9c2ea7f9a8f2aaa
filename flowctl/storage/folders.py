"""One look at a folder: of any store, whether it answers, and whether anything is there; on a disk, whether it can be
written."""

from __future__ import annotations

import os
from pathlib import Path

from flowctl.errors import TableError
from flowctl.storage import access
from flowctl.storage.options import Storage, fsspec_options
from flowctl.storage.urls import scheme


def look_at(url: str, storage: Storage) -> str:
    """The folder's name, with a word if nothing is in it yet. Raises :class:`TableError` if the store does not
    answer."""
    import fsspec

    options = {} if scheme(url) == "file" else fsspec_options(url, storage)
    try:
        fs, path = fsspec.core.url_to_fs(url, **options)
        is_there = bool(fs.ls(path, detail=False))
    except FileNotFoundError:
        is_there = False
    except Exception as cause:
        why = access.refused_access(cause)
        if why is not None:
            raise TableError(f"{url} refuses access: {why}", hint=access.HINT) from cause
        hint = "Check the path and `storage` in the spec, and that the store is up"
        raise TableError(f"{url} does not answer: {access.in_one_line(cause)}", hint=hint) from cause
    return url if is_there else f"{url}, where nothing is yet"


def why_unwritable(folder: Path) -> TableError | None:
    """Why this user cannot write files into a folder of this machine, which need not exist yet; None if nothing is
    known."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return None
    return TableError(
        f"{folder} cannot be written: {there} is not a folder for this user", hint="Let this user write there"
    )
