"""Attempts to commit one sequence number of a table: retried if that may help, but never without first checking whether
the target already has the sequence number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from flowctl.connectors import registry
from flowctl.errors import AbortRun, AccessDenied, FlowctlError, Interrupted, TableError, TransientError
from flowctl.model.step import Runnable
from flowctl.plan.recovery import describe_repetition
from flowctl.run import events
from flowctl.run.attempt import Attempt, AttemptResult, RunContext
from flowctl.run.failure import at_fault, translate, whole_text
from flowctl.run.retry import CircuitBreaker, RetryPolicy, retrying
from flowctl.spec.spec import Connection

Result = TypeVar("Result")


@dataclass(frozen=True)
class Retries:
    """The retry policy, and the circuit breaker for connections that keep failing."""

    policy: RetryPolicy = RetryPolicy()
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)


def commit(attempt: Attempt, run: RunContext, retries: Retries) -> AttemptResult:
    """Commits the attempt, with retries. Raises only flowctl's own errors."""
    from flowctl.run.table import run_table

    step = attempt.step

    def once() -> AttemptResult:
        run.check_lease(0.0)
        try:
            return run_table(attempt, run)
        except Exception as cause:
            result, known = _ask_target(attempt, run)
            if result is not None:
                return result
            if lost := run.engine_lost(whole_text(cause)):
                raise lost from cause
            raise _with_outlook(describe(cause, step, run), known) from cause

    return retry_step(once, step, run, retries)


def commit_together(
    attempts: Sequence[Attempt], run: RunContext, retries: Retries, parallel: int
) -> list[AttemptResult]:
    """As :func:`commit`, for tables of one target that commits several together, or none."""
    from flowctl.run.table import run_tables

    first = attempts[0].step

    def once() -> list[AttemptResult]:
        run.check_lease(0.0)
        try:
            return run_tables(attempts, run, parallel)
        except Exception as cause:
            asked = [_ask_target(attempt, run) for attempt in attempts]
            if all(result is not None for result, _ in asked):
                return [result for result, _ in asked if result is not None]
            if lost := run.engine_lost(whole_text(cause)):
                raise lost from cause
            raise _with_outlook(describe(cause, first, run), asked[0][1]) from cause

    return retry_step(once, first, run, retries)


def retry_step(once: Callable[[], Result], step: Runnable, run: RunContext, retries: Retries) -> Result:
    """Calls ``once``, which runs ``step``, and repeats it after transient errors."""
    connections = _connections(step, run)

    def announce(number: int, seconds: float, error: BaseException) -> None:
        run.listener(events.TableRetried(step.id, number, seconds, translate(error, step.table.mark)))

    def blamed(error: TransientError) -> tuple[str, ...]:
        return at_fault(error, connections)

    def pause(seconds: float) -> None:
        if run.stopping.wait(seconds):
            raise Interrupted("stopped while waiting to try again", hint="Run again to finish it")

    names = tuple(connection.name for connection in connections)
    return retrying(once, names, retries.breaker, retries.policy, announce, pause, blamed)


def retry_after(
    failed: FlowctlError, once: Callable[[], Result], step: Runnable, run: RunContext, retries: Retries
) -> Result:
    """As :func:`retry_step`, where ``once`` has been called already and has ``failed``."""
    tried = [failed]

    def again() -> Result:
        if tried:
            raise tried.pop()
        return once()

    return retry_step(again, step, run, retries)


def explain(cause: Exception, step: Runnable, run: RunContext) -> FlowctlError:
    """As :func:`describe`, but the end of Spark if that is why."""
    return run.engine_lost(whole_text(cause)) or describe(cause, step, run)


def describe(cause: Exception, step: Runnable, run: RunContext) -> FlowctlError:
    """``cause`` as flowctl's own error, with the table's line in the spec."""
    return translate(cause, step.table.mark, _store(step, run))


def add_repetition(error: FlowctlError, attempt: Attempt | None, spec_path: str) -> None:
    """Adds to the hint how many runs have failed to commit the sequence number."""
    tried = describe_repetition(attempt.intent, spec_path, attempt.step.id) if attempt else ""
    if tried and not isinstance(error, AbortRun):
        add_hint(error, tried)


def add_hint(error: FlowctlError, hint: str) -> None:
    error.hint = f"{error.hint}; {hint}" if error.hint else hint[:1].upper() + hint[1:]


def _connections(step: Runnable, run: RunContext) -> tuple[Connection, ...]:
    return tuple(run.spec.connections[name] for name in run.tables[step.id].connections)


def _store(step: Runnable, run: RunContext) -> str:
    """The table's stores, to name when access was refused by an object store whose error names none."""
    roots = map(str, (*map(registry.storage, _connections(step, run)), run.spec.state.url))
    return " or ".join(dict.fromkeys(root for root in roots if "://" in root)) or "the store"


def _ask_target(attempt: Attempt, run: RunContext) -> tuple[AttemptResult | None, str]:
    """The attempt's commit in the target, because a statement may be committed although its client got an error, or a
    text about what is known of it. If the target cannot be queried now, the next attempt or run does it."""
    from flowctl.run.table import find_commit

    if not attempt.writing:
        return None, "nothing was written"
    try:
        found = find_commit(attempt, run)
    except Exception:  # noqa: BLE001 - the first error is the one to report
        return None, f"the next run finds out whether sequence number {attempt.intent.seq} was committed"
    if found is not None:
        return AttemptResult(found), ""
    return None, f"the target had no commit of sequence number {attempt.intent.seq} when last checked"


def _with_outlook(error: FlowctlError, known: str) -> FlowctlError:
    """Appends what is ``known`` of the table's commit to the hint of an error that fails the table."""
    if type(error) in (TableError, AccessDenied, Interrupted) and known not in error.hint:
        add_hint(error, known)
    return error
