"""Jars of a peer, in a folder below ``bench/.venvs``."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.peers import HERE
from tests.services import ivy


def folder(peer: str) -> Path:
    return HERE.parent / ".venvs" / peer


def is_ready(peer: str, *more: str) -> bool:
    """Whether the jars are those of ``peers/<peer>/ivy.xml``, and what was made of the ``more`` files is of these."""
    names = ("ivy.xml", *more)
    copies = [(HERE / peer / name, folder(peer) / name) for name in names]
    return all(copy.is_file() and copy.read_bytes() == source.read_bytes() for source, copy in copies)


def fetch(peer: str) -> Path:
    """Fetches the jars into ``jars`` of the peer's folder, which is emptied first, and returns that folder."""
    print(f"{peer}: fetching …", flush=True)
    place = folder(peer)
    shutil.rmtree(place, ignore_errors=True)
    ivy.retrieve(HERE / peer / "ivy.xml", place / "jars")
    return place


def copy(peer: str, *names: str) -> None:
    """Says that the peer is ready: with the files that it was made of."""
    for name in names:
        shutil.copy(HERE / peer / name, folder(peer) / name)
