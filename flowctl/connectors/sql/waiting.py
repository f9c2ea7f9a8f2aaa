"""Calls into a database that a signal must be able to end. A thread inside a driver's call hears of no signal, so each
open connection registers here what ends its call, and :func:`interrupt_all` does all of it.
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
    """Whether this process was asked to end what it waits for: nothing should begin to wait any more."""
    return _interrupted.is_set()


@contextmanager
def interruptible(end: Callable[[], None]) -> Iterator[None]:
    """``end`` may be called by another thread while the block runs, every second from the interruption on: a call may
    begin after it. Its errors are nobody's business."""
    number = next(_numbers)
    with _lock:
        _open[number] = end
    try:
        yield
    finally:
        with _lock:
            _open.pop(number, None)


def interrupt_all() -> None:
    """Ends every call that is under way, and those to come; returns at once."""
    if not _interrupted.is_set():
        _interrupted.set()
        threading.Thread(target=_interrupt, name="flowctl-interrupt", daemon=True).start()


def begin() -> None:
    """A run begins uninterrupted, whatever another one in this process has met."""
    _interrupted.clear()


def _interrupt() -> None:
    """Side by side: one may have to wait for a server that does not answer."""
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
