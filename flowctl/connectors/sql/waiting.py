"""Calls into a database that a signal must be able to end. A thread inside a driver's call does not notice a signal, so
each open connection registers here what ends its call, and :func:`interrupt_all` runs all of these.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_numbers = itertools.count()
_open: dict[int, Callable[[], None]] = {}
_interrupted = threading.Event()


def is_interrupted() -> bool:
    """Whether this process was asked to stop waiting: nothing should begin to wait any more."""
    return _interrupted.is_set()


@contextmanager
def interruptible(end: Callable[[], None]) -> Iterator[None]:
    """``end`` may be called by another thread while the block runs, every second after an interruption, as a call may
    begin later. Its errors are ignored."""
    number = next(_numbers)
    with _lock:
        _open[number] = end
    try:
        yield
    finally:
        with _lock:
            _open.pop(number, None)


def interrupt_all() -> None:
    """Ends every call in progress, and those that begin later; returns immediately."""
    if not _interrupted.is_set():
        _interrupted.set()
        threading.Thread(target=_interrupt, name="flowctl-interrupt", daemon=True).start()


def begin() -> None:
    """Clears the interruption, so that a run is not affected by an earlier one in this process."""
    _interrupted.clear()


def _interrupt() -> None:
    """Ends calls in parallel: one may have to wait for a server that does not respond."""
    under_way: dict[int, threading.Thread] = {}
    while _interrupted.is_set():
        with _lock:
            ends = dict(_open)
        for number, end in ends.items():
            if number not in under_way or not under_way[number].is_alive():
                under_way[number] = threading.Thread(target=_quietly, args=(end,), daemon=True)
                under_way[number].start()
        time.sleep(1)


def _quietly(end: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        end()
