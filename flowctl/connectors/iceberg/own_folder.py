"""Whether a table's folder is its own. Metadata name files by their full paths: those of a copy are the original's."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from flowctl.connectors.iceberg.file_io import plain
from flowctl.errors import StoppedByPolicy
from flowctl.storage.urls import path_place, scheme


def require_own_folder(shown: str, location: str, folder: str) -> None:
    """:class:`StoppedByPolicy` if a table that is found by its ``folder`` says that it is at another ``location``: its
    commits would go there, and maintenance would delete there what another table needs."""
    if not is_same_place(location, folder):
        raise StoppedByPolicy(
            f"{shown} was copied or moved: it is in {folder}, and its metadata names files in {location}",
            hint=f"Move it back to {location}, or move this folder away and fill the table again with --full-refresh",
        )


def is_same_place(one: str, other: str) -> bool:
    """However each is written: ``file:/x`` and ``/x``, ``s3a:`` and ``s3:``, by a link or a mount."""
    one, other = plain(one), plain(other)
    if _place(one) == _place(other):
        return True
    if scheme(one) != "file" or scheme(other) != "file":
        return False
    with suppress(OSError):
        return Path(one).samefile(other)
    return False


def _place(url: str) -> str:
    """Azure's URLs may have the account behind the container."""
    bucket, slash, path = path_place(url, "").partition("/")
    return bucket.partition("@")[0] + slash + path
