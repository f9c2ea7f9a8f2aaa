"""Back-off and the circuit breaker."""

from __future__ import annotations

import pytest

from flowctl.errors import TableError, TransientError
from flowctl.run.retry import CircuitBreaker, RetryPolicy, retrying

POLICY = RetryPolicy(tries=4, first_wait=0.01, longest_wait=0.02)


class Flaky:
    """Fails ``failures`` times with ``error``, then answers."""

    def __init__(self, failures: int, error: type[Exception] = TransientError) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"failure {self.calls}")
        return "done"


def attempt(work: Flaky, breaker: CircuitBreaker, waits: list[float]) -> str:
    return retrying(
        work, ("pg",), breaker, POLICY, lambda number, wait, error: None, waits.append, lambda error: ("pg",)
    )


def test_transient_errors_are_tried_again_with_a_wait_between() -> None:
    waits: list[float] = []
    assert attempt(Flaky(3), CircuitBreaker(), waits) == "done"
    assert len(waits) == 3


def test_when_the_tries_are_used_up_the_last_error_stands() -> None:
    with pytest.raises(TransientError, match="failure 4"):
        attempt(Flaky(9), CircuitBreaker(), [])


def test_other_errors_are_not_tried_again() -> None:
    work = Flaky(1, TableError)
    with pytest.raises(TableError):
        attempt(work, CircuitBreaker(), [])
    assert work.calls == 1


def test_a_connection_that_keeps_failing_is_left_alone() -> None:
    breaker = CircuitBreaker(threshold=4)
    with pytest.raises(TransientError):
        attempt(Flaky(9), breaker, [])
    untouched = Flaky(0)
    with pytest.raises(TableError, match="4 times in a row, last: failure 4"):
        attempt(untouched, breaker, [])
    assert untouched.calls == 0


def test_a_success_closes_the_account() -> None:
    breaker = CircuitBreaker(threshold=4)
    for _ in range(3):
        assert attempt(Flaky(3), breaker, []) == "done"


def test_a_wait_may_end_the_run() -> None:
    def stopped(_: float) -> None:
        raise TableError("stopped")

    with pytest.raises(TableError, match="stopped"):
        retrying(
            Flaky(1), ("pg",), CircuitBreaker(), POLICY, lambda number, wait, error: None, stopped, lambda error: ()
        )


def test_a_failure_of_one_connection_or_of_the_engine_is_not_counted_against_the_other() -> None:
    breaker = CircuitBreaker(threshold=4)
    for fault in ((), ("lake",)):
        with pytest.raises(TransientError):
            retrying(Flaky(9), ("pg", "lake"), breaker, POLICY, lambda *_: None, lambda _: None, lambda _, of=fault: of)
    assert attempt(Flaky(0), breaker, []) == "done"
    with pytest.raises(TableError, match='connection "lake" failed 4 times in a row, last: failure 4'):
        breaker.check(("pg", "lake"))


def test_a_tables_last_error_is_its_own() -> None:
    breaker = CircuitBreaker(threshold=2)
    with pytest.raises(TableError, match=r"^failure 2$") as caught:
        attempt(Flaky(9), breaker, [])
    assert 'connection "pg" failed 2 times in a row and is left alone' in caught.value.hint
