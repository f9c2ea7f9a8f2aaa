"""SIGTERM and SIGINT: start nothing, give commits under way a moment, interrupt the rest, give up what does not end
then, and end in any case; the second ends at once. How long each takes is in :mod:`flowctl.engine.timeouts`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from flowctl.connectors.sql import waiting
from flowctl.engine import processes, timeouts
from flowctl.errors import ExitCode


class Interruption:
    """What a signal asks of a run: ``stopping`` at once; after the grace the end of every call into a database and of
    what the engine does; and if that does not help, the engine's own."""

    def __init__(self) -> None:
        waiting.begin()
        self.stopping = threading.Event()
        self._interrupt: Callable[[], None] = lambda: None
        self._abandon: Callable[[], None] = lambda: None

    def of(self, interrupt: Callable[[], None], abandon: Callable[[], None]) -> None:
        self._interrupt, self._abandon = interrupt, abandon

    def interrupt(self) -> None:
        waiting.interrupt_all()
        self._interrupt()

    def abandon(self) -> None:
        self._abandon()


@contextmanager
def graceful(interruption: Interruption, say: Callable[[str], None]) -> Iterator[None]:
    """Within the context a first signal asks for the end, and interrupts what runs after the grace; a second one ends
    the process at once, which is as safe as any kill: the commit protocol holds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end() -> None:
        """The state's intents say what was begun, as after any kill; the lease is free once this process is gone."""
        processes.kill_all()
        warning = f"not all has ended after {timeouts.LAST:.0f} s; the next run finishes what was begun"
        threading.Thread(target=say, args=(warning,), daemon=True).start()
        time.sleep(0.5)  # a terminal that takes nothing must not keep it either
        os._exit(ExitCode.TABLE)

    timers = [
        threading.Timer(timeouts.GRACE, interruption.interrupt),
        threading.Timer(timeouts.ABANDON, interruption.abandon),
        threading.Timer(timeouts.LAST, end),
    ]

    def handle(number: int, _frame: FrameType | None) -> None:
        if interruption.stopping.is_set():
            processes.kill_all()
            os._exit(ExitCode.TABLE)
        interruption.stopping.set()
        for timer in timers:
            timer.daemon = True
            timer.start()
        say(f"{signal.Signals(number).name}: no table is started any more; commits under way are finished")

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
