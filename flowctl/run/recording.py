"""What the run history keeps of a run: its plan, how each table ended, and the exit code that follows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

from flowctl import __version__
from flowctl.errors import AbortRun, ExitCode, FlowctlError
from flowctl.model.step import Plan, Runnable
from flowctl.plan.document import to_json as plan_json
from flowctl.plan.reading import rfc3339
from flowctl.run.attempt import TableResult
from flowctl.run.schedule import ASKED_TO_STOP
from flowctl.state.runs import Outcome, RunError, RunRecord, TableRun, put_run
from flowctl.storage.blobs import BlobStore


def new_record(
    run_id: str,
    plan: Plan,
    lineage: str,
    serial: int,
    started: dt.datetime,
    outcomes: Sequence[TableResult],
    code: int,
    error: FlowctlError | None,
) -> RunRecord:
    """``serial`` is that of the state after the run."""
    return RunRecord(
        id=run_id,
        flow=plan.flow,
        lineage=lineage,
        spec_digest=plan.spec_digest,
        started_at=rfc3339(started),
        finished_at=rfc3339(dt.datetime.now(dt.UTC)),
        exit_code=code,
        serial_before=plan.serial,
        serial_after=serial,
        plan=plan_json(plan.recorded),
        tables=tuple(_table_run(outcome) for outcome in outcomes),
        versions=_versions(outcomes),
        error=_run_error(error) if error else None,
    )


def keep_record(blobs: BlobStore, record: RunRecord, say: Callable[[str], None]) -> None:
    try:
        put_run(blobs, record)
    except AbortRun as failure:
        say(f"warning: the run's record could not be kept: {failure.message}")


def exit_code(outcomes: Sequence[TableResult]) -> int:
    """The run's exit code. A table skipped because of another one adds ``TABLE`` only if there is no error to explain
    it; one that was not started because of a signal adds nothing: everything that was begun may be committed."""
    codes = [outcome.error.exit_code for outcome in outcomes if outcome.error]
    skipped = [ExitCode.TABLE for outcome in outcomes if outcome.skipped_for not in (None, ASKED_TO_STOP)]
    return ExitCode.first(codes or skipped)


def _table_run(outcome: TableResult) -> TableRun:
    step = outcome.step
    return TableRun(
        id=step.id,
        outcome=_outcome(outcome),
        mode=step.table.mode,
        seq=outcome.seq or 0,
        interval=step.interval.recorded if isinstance(step, Runnable) else None,
        rows=outcome.counts,
        seconds=round(outcome.seconds, 3),
        error=_run_error(outcome.error) if outcome.error else None,
        warnings=outcome.warnings,
    )


def _outcome(outcome: TableResult) -> Outcome:
    if outcome.skipped_for:
        return "skipped"
    if outcome.error is not None:
        return "stopped" if outcome.error.exit_code == ExitCode.STOPPED else "failed"
    return "committed" if isinstance(outcome.step, Runnable) else "unchanged"


def _run_error(error: FlowctlError) -> RunError:
    return RunError(error.message, error.hint, str(error.mark) if error.mark else "")


def _versions(outcomes: Sequence[TableResult]) -> Mapping[str, str]:
    """Package versions, looked up only in runs that write: it takes 5 % of the time of a run with nothing to do."""
    found = {"flowctl": __version__}
    if not any(isinstance(outcome.step, Runnable) for outcome in outcomes):
        return found
    from importlib.metadata import PackageNotFoundError, version

    for package in ("pyspark", "delta-spark"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
