"""Jars from Maven Central, fetched with the Ivy of the pyspark wheel."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from flowctl.engine import java
from flowctl.engine.jars import spark_jars

_CACHE = Path(__file__).parents[2] / ".cache"


def cached(name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder of this name in the clone's cache, which ``fetch`` fills once."""
    folder = _CACHE / name
    done = folder / ".complete"
    _CACHE.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            fetch(folder)
            done.touch()
    return folder


def retrieve(wanted: Path, folder: Path) -> None:
    """Fetches the jars that the Ivy file ``wanted`` lists, with all that they need, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    [ivy] = spark_jars().glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(prefix="flowctl-ivy-") as cache:
        fetch = ["-ivy", str(wanted), "-cache", cache, "-warn"]
        fetch += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
        subprocess.run([str(java.find().command), "-jar", str(ivy), *fetch], check=True, cwd=folder)
