"""One command as a whole: wall time, and the peak of the memory of its process and all that it started."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Measured:
    """``peak_bytes`` is resident memory, the JVM's included; Linux only."""

    seconds: float
    peak_bytes: int


def measure(command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Measured:
    """Runs ``command`` to its end; ``CalledProcessError`` when it fails."""
    began = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=cwd, stdout=subprocess.DEVNULL)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, sum(map(_resident, _tree(process.pid))))
            time.sleep(_POLL_SECONDS)

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    seconds = time.monotonic() - began
    watcher.join()
    if code != 0:
        raise subprocess.CalledProcessError(code, command[:4])
    return Measured(seconds, peak)


def _tree(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if status := _read(folder / "stat"):
            parents.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def _resident(pid: int) -> int:
    fields = _read(Path("/proc", str(pid), "statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def _read(path: Path) -> str:
    """Empty when the process has ended meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""
