"""Back-off for what may go away by itself, and a breaker that stops hammering a connection that is down."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from flowctl.errors import TableError, TransientError

Result = TypeVar("Result")


@dataclass(frozen=True)
class RetryPolicy:
    """``tries`` in all; waits grow from ``first_wait`` by doubling up to ``longest_wait`` seconds, with jitter."""

    tries: int = 5
    first_wait: float = 0.5
    longest_wait: float = 30.0


class CircuitBreaker:
    """Per connection: opens after ``threshold`` failures in a row that came from it, whichever tables they met, and
    then refuses that connection's tables at once for the rest of the run. Thread-safe."""

    def __init__(self, threshold: int = 8) -> None:
        self._threshold = threshold
        self._failures: dict[str, int] = {}
        self._last: dict[str, str] = {}
        self._lock = threading.Lock()

    def check(self, connections: tuple[str, ...], own: TransientError | None = None) -> None:
        """Raises :class:`TableError` when one of the connections is given up: with the table's ``own`` last error,
        where it has one, otherwise with the connection's."""
        with self._lock:
            broken = next((name for name in connections if self._failures.get(name, 0) >= self._threshold), None)
            last = self._last.get(broken or "", "")
        if broken is None:
            return
        given_up = f'connection "{broken}" failed {self._threshold} times in a row'
        hint = f"Run again once it answers; {given_up} and is left alone for this run"
        raise TableError(own.message if own else f"{given_up}, last: {last}", hint=hint) from own

    def failed(self, connections: tuple[str, ...], message: str = "") -> None:
        with self._lock:
            for name in connections:
                self._failures[name] = self._failures.get(name, 0) + 1
                self._last[name] = message

    def succeeded(self, connections: tuple[str, ...]) -> None:
        with self._lock:
            for name in connections:
                self._failures[name] = 0


def retrying(
    work: Callable[[], Result],
    connections: tuple[str, ...],
    breaker: CircuitBreaker,
    policy: RetryPolicy,
    on_retry: Callable[[int, float, BaseException], None],
    wait: Callable[[float], None],
    at_fault: Callable[[TransientError], tuple[str, ...]],
) -> Result:
    """Runs ``work`` again after each :class:`TransientError`, until ``policy`` is used up; the last error stands.

    ``on_retry(number, seconds, error)`` reports; ``wait(seconds)`` may raise to end the run early (SIGTERM);
    ``at_fault(error)`` names those of the ``connections`` that the error came from.
    """
    own, number = None, 0
    while True:
        number += 1
        breaker.check(connections, own)
        try:
            result = work()
        except TransientError as error:
            breaker.failed(at_fault(error), error.message)
            if number == policy.tries:
                raise
            own = error
            seconds = random.uniform(0, min(policy.longest_wait, policy.first_wait * 2 ** (number - 1)))
            on_retry(number, seconds, error)
        else:
            breaker.succeeded(connections)
            return result
        wait(seconds)
