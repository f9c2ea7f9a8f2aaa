"""A begun number that the plan gives up: void, unless it landed in the time between plan and run. One that the run
itself withdraws because nothing was written under it, unless a full refresh is owed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowctl.errors import EngineFailed, FlowctlError, LeaseLost, StalePlan, StoppedByPolicy, TableError, TransientError
from flowctl.model.commit import Commit
from flowctl.model.interval import Interval
from flowctl.model.mode import Mode
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Runnable, SeenTarget
from flowctl.run import protocol
from flowctl.run.attempt import Attempt, AttemptResult, TableResult
from flowctl.run.retry import RetryPolicy
from flowctl.run.tries import Retries
from flowctl.spec.spec import TableSpec
from flowctl.state import document as documents
from flowctl.state.document import StateDocument
from tests.plan.worlds import LINEAGE, committed, flow, high, intent, observed, recorded, step, table, target

WORK = Interval(None, high().position)


def load(spec: TableSpec, seen: SeenTarget | None = None, **keys: Any) -> Load:
    planned = step(spec, observed(high(), target=target(), commit=committed()), recorded(spec, None)).table
    planned = replace(planned, seen=seen or planned.seen)
    return Load(table=planned, reason="new rows", seq=5, interval=WORK, columns=Columns(), **keys)


class Writer:
    """In place of the state's; the real one is behind every end-to-end test."""

    def __init__(self, document: StateDocument) -> None:
        self.document = document
        self.recorded: list[Commit] = []

    def committed(self, commit: Commit, recorded: Any) -> Future[None]:
        self.recorded.append(commit)
        done: Future[None] = Future()
        done.set_result(None)
        return done


@pytest.mark.parametrize(
    ("mode", "is_void", "was_given_up", "has", "is_refused"),
    [
        ("merge", True, False, "", False),
        ("append", True, True, "", False),
        ("merge", False, False, "", True),
        ("merge", False, True, "", False),  # `state set` said so: its rows are to be read again
        ("append", False, True, "", True),  # they would be there twice
        ("append", False, True, "append_again", False),  # which somebody asked for
        ("append", False, True, "seen", False),  # the plan has taken them into account
        ("scd2", False, False, "seen", False),  # so has that of a full refresh that keeps the history
        ("append", False, False, "write_full", False),  # a full refresh puts other rows in the place of them
    ],
)
def test_what_landed_after_the_plan_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch, mode: Mode, is_void: bool, was_given_up: bool, has: str, is_refused: bool
) -> None:
    spec = table(mode=mode)
    state = recorded(
        spec, None, intent=intent(spec, WORK), given_up=was_given_up, highest=4, append_again=has == "append_again"
    )
    writer = Writer(StateDocument(LINEAGE, 1, "w", {"orders": state}))
    found = replace(committed(4, "i4"), void=is_void)
    monkeypatch.setattr("flowctl.run.table.void", lambda *_: found)
    seen = SeenTarget(True, commit=found.name if has == "seen" else committed().name)
    planned = load(spec, seen, write_full=has == "write_full")
    run: Any = SimpleNamespace(run_id="r")
    giving_up: Any = protocol.give_up
    if is_refused:
        with pytest.raises(StalePlan, match="orders: sequence number 4 has landed since the plan"):
            giving_up(planned, writer, run)
        assert writer.recorded == []
    else:
        giving_up(planned, writer, run)
        assert writer.recorded == [found]


class DocumentWriter(Writer):
    """Changes its document."""

    def begin(self, intents: Any) -> None:
        self.document = documents.with_intents(self.document, intents)

    def committed(self, commit: Commit, recorded: Any) -> Future[None]:
        self.document = documents.with_commit(self.document, commit, recorded)
        return super().committed(commit, recorded)


@dataclass
class TwoTables:
    """A run of the tables a and b, both of which first give up a sequence number. The void of a fails with each of
    ``errors`` in turn."""

    errors: list[Exception]
    runner: protocol.Protocol = field(init=False)
    writer: DocumentWriter = field(init=False)

    def __post_init__(self) -> None:
        self.specs = {id: replace(table(), id=id) for id in ("a", "b")}
        states = {id: recorded(it, None, intent=intent(it, WORK), highest=4) for id, it in self.specs.items()}
        self.writer = DocumentWriter(StateDocument(LINEAGE, 1, "w", states))
        shop = flow(*self.specs.values())
        spec = SimpleNamespace(connections=shop.connections, state=shop.state, argument="flow.yaml")
        run: Any = SimpleNamespace(
            run_id="r",
            fence=1,
            tables=self.specs,
            spec=spec,
            stopping=Event(),
            listener=lambda _: None,
            check_lease=lambda _: None,
            engine_lost=lambda _: None,
        )
        quickly = Retries(RetryPolicy(tries=3, first_wait=0.0, longest_wait=0.0))
        self.runner = protocol.Protocol(run, cast(Any, self.writer), quickly)

    def void(self, run: Any, step: Load, pending: Any) -> Commit:
        if step.id == "a" and self.errors:
            raise self.errors.pop(0)
        return committed(4, "i4", table=step.id, void=True)

    def steps(self, **keys: Any) -> tuple[Load, Load]:
        a, b = (load(spec, **keys) for spec in self.specs.values())
        return a, b


def commit_of(attempt: Attempt) -> AttemptResult:
    return AttemptResult(committed(5, attempt.intent.id, table=attempt.step.id))


@pytest.mark.parametrize("is_refresh", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("errors", "is_tried_again"),
    [
        ((TransientError,), True),
        ((TransientError, TransientError, TransientError), False),
        ((TableError,), False),
    ],
)
def test_a_void_that_fails_fails_its_table_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
    errors: tuple[type[FlowctlError], ...],
    is_tried_again: bool,
    together: bool,
    is_refresh: bool,
) -> None:
    """Tables that one target commits together fail together; then each is tried alone."""
    run = TwoTables([error("no") for error in errors])
    monkeypatch.setattr("flowctl.run.table.void", run.void)
    monkeypatch.setattr(protocol, "commit", lambda attempt, *_: commit_of(attempt))
    monkeypatch.setattr(protocol, "commit_together", lambda attempts, *_: list(map(commit_of, attempts)))
    steps = run.steps(refresh=is_refresh)
    run.runner.begin_steps(steps)
    assert [run.runner.has_begun(step) for step in steps] == [False, True]
    if together:
        assert [one.ok for one in run.runner.carry_out_together(steps, 1)] == [is_tried_again] * 2
        run.errors = [error("no") for error in errors[1:]]
    if not together or not is_tried_again:
        ended = [run.runner.carry_out(step) for step in steps]
        assert [one.ok for one in ended] == [is_tried_again, True]
        error = ended[0].error
        assert (error is None) == is_tried_again
        assert error is None or error.hint.count("un again with --full-refresh a") == is_refresh
    seqs = {id: (run.writer.document.table(id).seq, run.writer.document.table(id).intent) for id in ("a", "b")}
    assert seqs["b"] == (5, None)
    if is_tried_again:
        assert seqs["a"] == (5, None)
    else:
        pending = seqs["a"][1]
        assert pending is not None and pending.seq == 4, "it stays to be given up"


def test_a_table_whose_void_succeeds_later_keeps_its_intent_if_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = TwoTables([TransientError("t.db is locked")])
    monkeypatch.setattr("flowctl.run.table.void", run.void)
    used: list[str] = []

    def fail(attempts: list[Attempt], *_: Any) -> None:
        used.append(attempts[0].intent.id)
        raise TableError("b cannot be written")

    def succeed(attempt: Attempt, *_: Any) -> AttemptResult:
        used.append(attempt.intent.id)
        return commit_of(attempt)

    monkeypatch.setattr(protocol, "commit_together", fail)
    monkeypatch.setattr(protocol, "commit", succeed)
    steps: tuple[Runnable, ...] = run.steps()
    run.runner.begin_steps(steps)
    assert not any(one.ok for one in run.runner.carry_out_together(steps, 1))
    assert run.runner.carry_out(steps[0]).ok
    assert used[0] == used[1]


def test_a_lease_lost_before_a_void_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = TwoTables([LeaseLost("another run has taken over")])
    monkeypatch.setattr("flowctl.run.table.void", run.void)
    with pytest.raises(LeaseLost):
        run.runner.begin_steps(run.steps())


@pytest.mark.parametrize(
    ("error", "of_refresh"),
    [
        (StoppedByPolicy("guard"), True),
        (TableError("stopped before its commit"), False),
        (TransientError("connection lost"), False),
        (EngineFailed("Spark has ended"), False),
        (None, False),  # never started
    ],
)
def test_an_intent_without_a_write_is_withdrawn_unless_a_full_refresh_is_owed(
    error: FlowctlError | None, of_refresh: bool
) -> None:
    spec = table()
    planned = load(spec)
    outcome = TableResult(planned, error=error) if error else None
    begun = Attempt(planned, intent(spec, WORK))
    assert protocol.is_withdrawn(begun, outcome)
    refresh = replace(planned, refresh=True)
    assert protocol.is_withdrawn(Attempt(refresh, begun.intent), outcome) == of_refresh
    assert not protocol.is_withdrawn(Attempt(planned, begun.intent, writing=True), outcome)
    assert not protocol.is_withdrawn(begun, TableResult(planned))


def test_what_fails_after_the_record_is_a_warning_of_a_committed_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters that are rows now: nothing reads them any more, and the table is recorded."""
    spec = table()
    writer, told = Writer(StateDocument(LINEAGE, 1, "w", {"orders": recorded(spec, None)})), list[Any]()
    shop = SimpleNamespace(connections=flow(spec).connections, state=flow(spec).state)
    run: Any = SimpleNamespace(
        run_id="r", fence=1, tables={"orders": spec}, spec=shop, stopping=Event(), listener=told.append
    )

    def fail(*_: Any) -> None:
        raise TableError("the target is locked")

    monkeypatch.setattr(protocol, "commit", lambda *_: AttemptResult(committed(5)))
    monkeypatch.setattr(protocol.documents, "letters_read", lambda _: ("some",))
    monkeypatch.setattr("flowctl.run.letters.remove_replayed", fail)
    planned = load(spec)
    runner = protocol.Protocol(run, cast(Any, writer), cast(Any, None))
    runner._attempts[planned.key] = Attempt(planned, intent(spec, WORK))
    ended = runner.carry_out(planned)
    assert (ended.ok, ended.seq, len(writer.recorded)) == (True, 5, 1)
    assert ended.warnings == ("dead letters that are rows now could not be removed: the target is locked",)
    assert [type(event).__name__ for event in told] == ["TableStarted", "PhaseEntered", "TableCommitted"]


def test_a_number_stands_on_the_one_that_state_has_unless_all_is_read_again() -> None:
    spec = table()
    run = SimpleNamespace(run_id="r", fence=1, tables={"orders": spec})
    document = StateDocument(LINEAGE, 1, "w", {"orders": recorded(spec, None)})
    attempt: Any = protocol.new_attempt
    assert attempt(load(spec), document, run).base == committed().name
    assert attempt(load(spec), StateDocument(LINEAGE, 1, "w", {}), run).base == ""
    for anew in (load(spec, refresh=True), load(spec, write_full=True), load(spec, SeenTarget())):
        assert attempt(anew, document, run).base is None
