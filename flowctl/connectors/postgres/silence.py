"""What ends an executor's call into a server that neither sends nor takes anything, as one that is paused: libpq itself
waits for ever once it is connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: From a connection to two functions: one to say that something was heard (or, with False, that nothing is awaited),
#: one that ends the guard and says whether it has cut the connection.
Guard = Callable[[Any], tuple[Callable[[bool], None], Callable[[], bool]]]


def guard_of(seconds: float) -> Guard:
    """Pickled by value, like the functions that use it: executors may have no flowctl."""

    def guard(connection: Any) -> tuple[Callable[[bool], None], Callable[[], bool]]:
        import os
        import socket
        import threading
        import time

        done, heard, was_cut = threading.Event(), [time.monotonic()], [False]

        def watch() -> None:
            while not done.wait(min(1.0, seconds / 4)):
                if time.monotonic() - heard[0] > seconds:
                    was_cut[0] = True
                    with socket.socket(fileno=os.dup(connection.fileno())) as other:
                        other.shutdown(socket.SHUT_RDWR)
                    return

        def hear(awaited: bool) -> None:
            heard[0] = time.monotonic() if awaited else float("inf")

        def end() -> bool:
            done.set()
            return was_cut[0]

        threading.Thread(target=watch, name="flowctl-silence", daemon=True).start()
        return hear, end

    return guard


def unguarded() -> Guard:
    """For a connection that somebody else looks after."""

    def guard(connection: Any) -> tuple[Callable[[bool], None], Callable[[], bool]]:  # noqa: ARG001
        return (lambda awaited: None), (lambda: False)

    return guard
