"""Jars of a peer, fetched with the Ivy of the pyspark wheel into a folder below ``bench/.venvs``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.peers import HERE


def folder(peer: str) -> Path:
    return HERE.parent / ".venvs" / peer


def is_ready(peer: str, *more: str) -> bool:
    """Whether the jars are those of ``peers/<peer>/ivy.xml``, and what was made of the ``more`` files is of these."""
    names = ("ivy.xml", *more)
    copies = [(HERE / peer / name, folder(peer) / name) for name in names]
    return all(copy.is_file() and copy.read_bytes() == source.read_bytes() for source, copy in copies)


def fetch(peer: str) -> Path:
    """Fetches the jars into ``jars`` of the peer's folder, which is emptied first, and returns that folder."""
    from flowctl.engine.jars import spark_jars

    print(f"{peer}: fetching …", flush=True)
    place = folder(peer)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    [ivy] = spark_jars().glob("ivy-*.jar")
    wanted = ["-ivy", str(HERE / peer / "ivy.xml"), "-cache", "cache", "-retrieve", "jars/[artifact]-[revision].[ext]"]
    subprocess.run(["java", "-jar", str(ivy), *wanted, "-warn"], cwd=place, check=True)
    return place


def copy(peer: str, *names: str) -> None:
    """Says that the peer is ready: with the files that it was made of."""
    for name in names:
        shutil.copy(HERE / peer / name, folder(peer) / name)
