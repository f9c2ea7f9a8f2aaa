"""The engine processes that this process has started. Each ends with its context; :func:`kill_all` ends all of them
immediately."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowctl.engine import timeouts

_lock = threading.Lock()
_running: set[subprocess.Popen[bytes]] = set()
_silent: set[subprocess.Popen[bytes]] = set()


@contextmanager
def child(process: subprocess.Popen[bytes], seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Ends ``process`` with the context: by closing the pipe to its standard input, and by force after ``seconds``."""
    with _lock:
        _running.add(process)
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with _lock:
            _running.discard(process)


def kill_all() -> None:
    """Kills all engine processes: a suspended process does not notice that its pipe has closed."""
    with _lock:
        running = list(_running)
    for process in running:
        process.kill()


@contextmanager
def watch(process: subprocess.Popen[bytes], ping: Callable[[], object]) -> Iterator[None]:
    """Within the context, calls ``ping`` periodically, which returns once the process has responded. If it does not
    return in time, the process is killed, so that everything waiting for it fails immediately."""
    done = threading.Event()

    def ping_until_done() -> None:
        while not done.wait(timeouts.ENGINE_PING):
            end = threading.Timer(timeouts.ENGINE_SILENCE, _end_silent, (process,))
            end.daemon = True
            end.start()
            with suppress(Exception):  # it has ended, or refuses: its users get the error themselves
                ping()
            end.cancel()

    threading.Thread(target=ping_until_done, name="engine watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def was_silent(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process was killed because it did not respond."""
    return process in _silent


def _end_silent(process: subprocess.Popen[bytes]) -> None:
    _silent.add(process)
    process.kill()


def resident_bytes(pid: int) -> int:
    """The memory that a process uses; 0 if this system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
