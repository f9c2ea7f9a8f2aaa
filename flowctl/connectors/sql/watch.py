"""Watches the connections of this process: abandons a call that does not return because the server has stopped
responding, and one that is interrupted.

Nothing on a connection distinguishes a suspended server (SIGSTOP, a frozen machine whose kernel still acknowledges
packets) from one that executes a long statement. So when a call has lasted for a while, the server is probed over
another connection; any answer, even a refusal, shows that it is alive.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from flowctl.connectors.sql import timeouts
from flowctl.connectors.sql.waiting import interruptible
from flowctl.redaction import REDACTOR

T = TypeVar("T")

_LOG = logging.getLogger("flowctl.watch")


@dataclass(frozen=True)
class Line:
    """One open connection, as its driver knows it. ``server`` is equal for connections to the same one; ``answers``
    probes it over another connection. ``cancel`` requests cancellation of the running statement. ``fileno`` is the
    socket's, None if the connection is closed already."""

    server: str
    is_busy: Callable[[], bool]
    cancel: Callable[[], None]
    fileno: Callable[[], int | None]
    answers: Callable[[], bool]


@dataclass
class Watched:
    """``given_up`` is why the connection was closed under its owner, as error text. ``is_unwatched``: whether its
    watching has failed, which is logged once."""

    line: Line
    given_up: str = ""
    busy_since: float | None = None
    unanswered: int = 0
    seen_busy: int = 0
    is_unwatched: bool = False
    _ended: threading.Event = field(default_factory=threading.Event)

    def interrupt(self) -> None:
        """Cancels the running statement, and cuts the connection if that does not help. A statement seen only once may
        be a short one, sent after the interruption."""
        self.seen_busy = self.seen_busy + 1 if self.line.is_busy() else 0
        if self.seen_busy < 2:
            return
        self.given_up = "the run was asked to stop while it waited for an answer"
        with contextlib.suppress(Exception):  # the server may not respond to this either
            self.line.cancel()
        if not self._ended.wait(timeouts.CANCEL):
            self.cut()

    def cut(self) -> None:
        """Ends the call in progress like a lost connection. The descriptor is left for the driver to close."""
        number = self.line.fileno()
        if number is None:
            return
        with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(number)) as other:
            other.shutdown(socket.SHUT_RDWR)

    def look(self, now: float) -> bool:
        """Whether the server should be probed now."""
        if not self.line.is_busy():
            self.busy_since, self.unanswered = None, 0
            return False
        self.busy_since = now if self.busy_since is None else self.busy_since
        return now - self.busy_since >= timeouts.SILENCE * (1 + self.unanswered / 4)

    def answered(self, is_alive: bool) -> None:
        if is_alive:
            self.busy_since, self.unanswered = time.monotonic(), 0
            return
        self.unanswered += 1
        if self.unanswered >= timeouts.UNANSWERED:
            self.given_up = "the server does not answer any more"
            self.cut()


@contextmanager
def watched(line: Line) -> Iterator[Watched]:
    one = Watched(line)
    _WATCH.add(one)
    try:
        with interruptible(one.interrupt):
            yield one
    finally:
        one._ended.set()
        _WATCH.remove(one)


class _Watch:
    """One thread for all connections; it runs while any is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[Watched] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, one: Watched) -> None:
        with self._lock:
            self._watched.append(one)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="flowctl-watch", daemon=True)
                self._thread.start()

    def remove(self, one: Watched) -> None:
        with self._lock:
            self._watched.remove(one)

    def _run(self) -> None:
        while True:
            time.sleep(min(1.0, timeouts.SILENCE / 4))
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                open_now = list(self._watched)
            now = time.monotonic()
            doubtful: dict[str, list[Watched]] = {}
            for one in open_now:
                if _guarded(one, partial(one.look, now)):
                    doubtful.setdefault(one.line.server, []).append(one)
            for waiting in doubtful.values():
                is_alive = _guarded(waiting[0], waiting[0].line.answers)
                if is_alive is None:
                    continue
                for one in waiting:
                    _guarded(one, partial(one.answered, is_alive))


def _guarded(one: Watched, step: Callable[[], T]) -> T | None:
    """The result of a step of watching ``one``. An error, which is then None, must not end the watching of others."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - whatever a driver raises
        if not one.is_unwatched:
            one.is_unwatched = True
            cause = REDACTOR.redact(f"{type(error).__name__}: {error}")
            _LOG.warning("a connection cannot be watched, and may wait for a server that has stopped: %s", cause)
        return None


_WATCH = _Watch()
