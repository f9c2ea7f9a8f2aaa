"""Retries with backoff for transient errors, and a circuit breaker for connections that are down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tenacity

from flowctl.errors import TableError, TransientError

Result = TypeVar("Result")


@dataclass(frozen=True)
class RetryPolicy:
    """``tries`` is the total number of attempts; waits double from ``first_wait`` up to ``longest_wait`` seconds, with
    jitter."""

    tries: int = 5
    first_wait: float = 0.5
    longest_wait: float = 30.0


class CircuitBreaker:
    """Per connection: opens after ``threshold`` consecutive failures caused by that connection, in any tables, and then
    refuses its tables immediately for the rest of the run. Thread-safe."""

    def __init__(self, threshold: int = 8) -> None:
        self._threshold = threshold
        self._failures: dict[str, int] = {}
        self._last: dict[str, str] = {}
        self._lock = threading.Lock()

    def check(self, connections: tuple[str, ...], own: TransientError | None = None) -> None:
        """Raises :class:`TableError` if the breaker of one of the connections is open: with the table's ``own`` last
        error if there is one, otherwise with the connection's."""
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
    """Repeats ``work`` after each :class:`TransientError`, as often as ``policy`` allows; then raises the last error.

    ``on_retry(number, seconds, error)`` reports; ``wait(seconds)`` may raise to end the run early (SIGTERM);
    ``at_fault(error)`` names those of the ``connections`` that the error came from.
    """
    own: TransientError | None = None

    def guarded() -> Result:
        nonlocal own
        breaker.check(connections, own)
        try:
            result = work()
        except TransientError as error:
            own = error
            breaker.failed(at_fault(error), error.message)
            raise
        breaker.succeeded(connections)
        return result

    def announce(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is not None and state.next_action is not None:
            on_retry(state.attempt_number, state.next_action.sleep, error)

    retrier = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        stop=tenacity.stop_after_attempt(policy.tries),
        wait=tenacity.wait_random_exponential(multiplier=policy.first_wait, max=policy.longest_wait),
        before_sleep=announce,
        sleep=wait,
        reraise=True,
    )
    return retrier(guarded)
