"""SIGTERM and SIGINT: start nothing, give commits under way a moment, interrupt the rest; the second ends at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from flowctl.connectors import waiting
from flowctl.errors import ExitCode

#: Seconds for what is under way to end by itself, well inside the 30 that a container gets.
GRACE_SECONDS = 12.0


class Interruption:
    """What a signal asks of a run: ``stopping`` at once, and after the grace the end of every call into a database and
    of whatever :meth:`of` was given."""

    def __init__(self) -> None:
        waiting.begin()
        self.stopping = threading.Event()
        self._interrupt: Callable[[], None] = lambda: None

    def of(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt

    def interrupt(self) -> None:
        waiting.interrupt_all()
        self._interrupt()


@contextmanager
def graceful(interruption: Interruption, say: Callable[[str], None]) -> Iterator[None]:
    """Within the context a first signal asks for the end, and interrupts what runs after the grace; a second one ends
    the process at once, which is as safe as any kill: the commit protocol holds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timer = threading.Timer(GRACE_SECONDS, interruption.interrupt)
    timer.daemon = True

    def handle(number: int, _frame: FrameType | None) -> None:
        if interruption.stopping.is_set():
            os._exit(ExitCode.TABLE)
        interruption.stopping.set()
        timer.start()
        say(f"{signal.Signals(number).name}: no table is started any more; commits under way are finished")

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
