"""What a run of tables with `every` adds to the exit code of `apply --follow` when it is asked to stop."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest

from flowctl.errors import AbortRun, ExitCode, LockedError, TableError
from flowctl.model.step import Plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import events, follow
from flowctl.run.apply import ApplyOptions, Audience, RunResult
from flowctl.run.signals import Interruption


def code_after(monkeypatch: pytest.MonkeyPatch, *, before: list[TableError], after: list[TableError]) -> int:
    """The exit code when tables fail before and after the process was asked to stop, in one run."""
    interruption = Interruption()

    def run(_spec: Any, _options: Any, audience: Audience, asked: Interruption, _engine: Any) -> RunResult:
        for error in before:
            audience.listener(events.TableFailed("lines", error, 0.1))
        asked.stopping.set()
        for error in after:
            audience.listener(events.TableFailed("orders", error, 0.1))
        return RunResult("run-1", cast(Plan, Mock()), ExitCode.TABLE, error=AbortRun("it was stopped"))

    monkeypatch.setattr(follow, "apply_beside", run)
    audience = Audience(approve=Mock(), listener=Mock(), say=Mock())
    options = ApplyOptions(PlanOptions())
    following = follow._Following(cast(Any, Mock()), options, audience, cast(Any, Mock()), interruption)
    following._run(["lines"], cast(Any, Mock()))
    assert following._error is None
    return ExitCode.first(list(following._codes.values()))


def test_a_table_that_runs_more_often_does_not_hide_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_spec: Any, options: ApplyOptions, *_: Any) -> RunResult:
        outcomes = {"hourly": outcome, "often": "committed"}
        tables = [Mock(id=id, outcome=outcomes[id]) for id in options.plan.select]
        code = ExitCode.TABLE if "hourly" in options.plan.select and outcome == "failed" else ExitCode.OK
        return RunResult("run-1", cast(Plan, Mock()), code, cast(Any, Mock(tables=tables)))

    monkeypatch.setattr(follow, "apply_beside", run)
    audience = Audience(approve=Mock(), listener=Mock(), say=Mock())
    following = follow._Following(
        cast(Any, Mock()), ApplyOptions(PlanOptions()), audience, cast(Any, Mock()), Interruption()
    )
    outcome = "failed"
    for ids in (["hourly", "often"], ["often"]):
        following._run(ids, cast(Any, Mock()))
        assert following._codes == {"hourly": ExitCode.TABLE, "often": ExitCode.OK}
    outcome = "committed"
    following._run(["hourly"], cast(Any, Mock()))
    assert following._codes == {"hourly": ExitCode.OK, "often": ExitCode.OK}


def test_a_table_whose_run_could_not_begin_is_due_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would wait for the whole of `every`, and the process would end as if it had run."""
    interruption, runs = Interruption(), 0
    following = follow._Following(
        cast(Any, Mock()), ApplyOptions(PlanOptions()), cast(Any, Mock()), cast(Any, Mock()), interruption
    )

    def run(_ids: list[str], _engine: Any) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise LockedError("another run holds the lease")
        interruption.stopping.set()

    daily = Mock(id="orders", every=24 * 3600.0)
    resolved = Mock(tables=[daily], selected={"orders"})
    monkeypatch.setattr(follow, "_LOCK_TIMEOUT", 0.01)
    monkeypatch.setattr(follow, "Connections", MagicMock())
    monkeypatch.setattr(follow, "resolve_listed", lambda *_: (resolved, None))
    monkeypatch.setattr(follow, "stream_of", lambda _: None)
    monkeypatch.setattr(following, "_run", run)
    following._schedule(cast(Any, Mock()))
    assert (runs, following._error) == (2, None)


def test_what_an_interrupted_run_leaves_to_the_next_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_after(monkeypatch, before=[], after=[TableError("stopped before its commit")]) == ExitCode.OK


def test_what_failed_before_the_signal_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_after(monkeypatch, before=[TableError("no such column")], after=[]) == ExitCode.TABLE
