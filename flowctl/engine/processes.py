"""The processes of engines that this one has started. Each ends with its context; all of them when there is no time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from flowctl.engine import timeouts

_lock = threading.Lock()
_running: set[subprocess.Popen[bytes]] = set()
_silent: set[subprocess.Popen[bytes]] = set()


@contextmanager
def child(process: subprocess.Popen[bytes], seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """It ends with the context: by itself when the pipe to its standard input closes, by force after ``seconds``."""
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
    """Whatever they do: a process that is stopped does not see that its pipe has closed."""
    with _lock:
        running = list(_running)
    for process in running:
        process.kill()


@contextmanager
def watch(process: subprocess.Popen[bytes], ping: Callable[[], object]) -> Iterator[None]:
    """While the context lasts ``ping``, which returns once the process has answered, is called again and again. One
    that does not return in time ends the process: whoever waits for it hears of that at once."""
    done = threading.Event()

    def ping_until_done() -> None:
        while not done.wait(timeouts.ENGINE_PING):
            end = threading.Timer(timeouts.ENGINE_SILENCE, _end_silent, (process,))
            end.daemon = True
            end.start()
            with suppress(Exception):  # it has ended, or refuses: its users hear of that themselves
                ping()
            end.cancel()

    threading.Thread(target=ping_until_done, name="engine watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def was_silent(process: subprocess.Popen[bytes]) -> bool:
    """Whether it was ended because it did not answer."""
    return process in _silent


def _end_silent(process: subprocess.Popen[bytes]) -> None:
    _silent.add(process)
    process.kill()
