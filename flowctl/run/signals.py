"""SIGTERM and SIGINT: start nothing more, give commits in progress time to finish, interrupt the rest, abandon what
still does not end, and exit in any case; a second signal exits immediately. The times are in
:mod:`flowctl.engine.timeouts`."""

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
    """The effects of a signal on a run: ``stopping`` is set immediately; after the grace period, ``interrupt`` cancels
    every database call and the engine's work; if that does not help, ``abandon`` ends the engine."""

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
    """Within the context, a first signal stops the run, and after the grace period interrupts what is still running; a
    second one ends the process immediately, which the commit protocol makes as safe as any kill."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end() -> None:
        """Exits. As after any kill, the state's intents record what was begun, and the lease is free once this process
        has ended."""
        processes.kill_all()
        warning = f"some work has not ended after {timeouts.LAST:.0f} s; the next run finishes what was begun"
        threading.Thread(target=say, args=(warning,), daemon=True).start()
        time.sleep(0.5)  # a blocked terminal must not delay the exit
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
        say(f"{signal.Signals(number).name}: no new table starts; in-flight commits finish")

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
