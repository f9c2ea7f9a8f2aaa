"""Runs one command to its end and measures it. Runs as a separate process, started by ``measure.py``: it adopts
processes that the command leaves behind (a JVM that ends after its client), so that their CPU time is counted too.

Reads a JSON request from standard input and writes a JSON response. Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_POLL_SECONDS = 0.2
#: Short commands are sampled more often.
_FIRST_POLL_SECONDS = 0.05
_LINGER_SECONDS = 30
_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    request = json.load(sys.stdin)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = _servers(request["services"])
    environment = {**os.environ, **request["env"]}
    # pip compiles what it installs. Here flowctl runs from a clone, and must not be recompiled at each start.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with Path(request["output"]).open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            request["argv"],
            cwd=request["cwd"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        watcher = _Watcher(process.pid, began, request["scratch"], request["longest"])
        watcher.start()
        code, seconds, cpu = _wait(process.pid, began)
        watcher.ended.set()
        watcher.join()
    spent = {name: after - before[name] for name, after in _servers(request["services"]).items()}
    json.dump({"code": code, "seconds": seconds, "cpu_seconds": cpu, "server_cpu": spent, **watcher.peaks}, sys.stdout)


def _wait(root: int, began: float) -> tuple[int, float, float]:
    """Waits until the command and all its orphans have ended. Exit code and wall seconds of the command, CPU seconds of
    all."""
    code, seconds, cpu = 0, 0.0, 0.0
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return code, seconds, cpu
        cpu += usage.ru_utime + usage.ru_stime
        if pid == root:
            code, seconds = os.waitstatus_to_exitcode(status), time.monotonic() - began
            late = threading.Timer(_LINGER_SECONDS, _end_all)  # an orphan that never ends would block forever
            late.daemon = True
            late.start()


class _Watcher(threading.Thread):
    """Samples sizes and keeps the maxima."""

    def __init__(self, root: int, began: float, scratch: str | None, longest: float) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.peaks: dict[str, int] = dict.fromkeys(
            ("peak_bytes", "main_peak_bytes", "jvm_peak_bytes", "jvm_heap_bytes", "scratch_peak_bytes"), 0
        )
        self._root, self._began, self._scratch, self._longest = root, began, scratch, longest

    def run(self) -> None:
        while not self.ended.is_set():
            self._look()
            age = time.monotonic() - self._began
            if age > self._longest:
                _end_all()
            self.ended.wait(_FIRST_POLL_SECONDS if age < 2 else _POLL_SECONDS)

    def _look(self) -> None:
        family = _descendants(os.getpid())
        sizes = {pid: _sizes(pid) for pid in family}
        # A process of exactly its parent's size was just forked and has not called exec yet: they share all pages.
        resident = {pid: own for pid, (whole, own) in sizes.items() if sizes.get(family[pid], (0, 0))[0] != whole}
        self._keep("peak_bytes", sum(resident.values()))
        self._keep("main_peak_bytes", _high_water(self._root))
        for pid, size in resident.items():
            if size > self.peaks["jvm_peak_bytes"] and _read(f"/proc/{pid}/comm").strip() == "java":
                self.peaks |= {"jvm_peak_bytes": size, "jvm_heap_bytes": _heap(pid)}
        if self._scratch:
            self._keep("scratch_peak_bytes", _folder_bytes(self._scratch))

    def _keep(self, name: str, value: int) -> None:
        self.peaks[name] = max(self.peaks[name], value)


def _descendants(root: int) -> dict[int, int]:
    """Parent by process id."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - read five times a second
        if name.isdigit() and (stat := _read(f"/proc/{name}/stat")):
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found: dict[int, int] = {}
    parents = [root]
    for parent in parents:
        found |= dict.fromkeys(children.get(parent, []), parent)
        parents += children.get(parent, [])
    return found


def _servers(services: dict[str, int]) -> dict[str, float]:
    """CPU seconds so far by name: of the process, its running descendants, and its ended children."""
    return {name: sum(map(_cpu, [pid, *_descendants(pid)])) for name, pid in services.items()}


def _cpu(pid: int) -> float:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _sizes(pid: int) -> tuple[int, int]:
    """Virtual and resident memory in bytes."""
    fields = _read(f"/proc/{pid}/statm").split()
    return (int(fields[0]) * _PAGE, int(fields[1]) * _PAGE) if fields else (0, 0)


def _high_water(pid: int) -> int:
    """Peak resident memory in bytes, as the kernel reports it; reset by each exec."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", _read(f"/proc/{pid}/status"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _heap(pid: int) -> int:
    """Maximum heap in bytes: the last -Xmx on the command line, which the JVM uses."""
    found = re.findall(r"-xmx(\d+)([kmg]?)", _read(f"/proc/{pid}/cmdline").lower())
    return int(found[-1][0]) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[found[-1][1]] if found else 0


def _folder_bytes(folder: str) -> int:
    return sum(_size(Path(place, name)) for place, _, names in os.walk(folder) for name in names)


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _read(path: str) -> str:
    """The file's text; empty if the process has ended."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _end_all() -> None:
    for pid in _descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
