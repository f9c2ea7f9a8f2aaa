"""What servers are made of: fetched or built once, into the clone's own cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.services.processes import NotInstalled

_CACHE = Path(__file__).parents[2] / ".cache"


def cached(name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder of this name in the clone's cache, which ``fetch`` creates once; other processes wait for it."""
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


def installed_by_go(module: str) -> Path:
    """The program of a Go module, ``path@version``: built in some minutes."""
    path, _, version = module.partition("@")
    program = path.rpartition("/")[2]
    return cached(f"{program}-{version}", lambda folder: run_go(["install", module], {"GOBIN": str(folder)})) / program


def run_go(arguments: Sequence[str], env: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Runs Go in ``folder``; ``env`` is added to ours."""
    if shutil.which("go") is None:
        raise NotInstalled("Go is not installed here; install it, and see that `go` is on the path")
    subprocess.run(["go", *arguments], check=True, cwd=folder, env={**os.environ, "CGO_ENABLED": "0", **(env or {})})
