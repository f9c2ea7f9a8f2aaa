"""One table through the commit protocol: look up, stage, check, commit. The protocol records the commit.

Whatever goes wrong here, retrying under the same intent is safe: each attempt first checks whether the target already
has the sequence number.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from flowctl import crashpoints
from flowctl.connectors.buffered import batch_like, frame_of
from flowctl.connectors.source import ReadRequest, Snapshot
from flowctl.connectors.target import CommitLookup, Staged, Target, WriteJob
from flowctl.connectors.undecoded import UndecodedRows
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import columns_of, require_types
from flowctl.errors import StateConflict, StoppedByPolicy
from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.projection import Columns
from flowctl.model.step import Load, RecordOnly, Recover
from flowctl.plan.undecoded import is_within
from flowctl.plan.upstream import shape_read
from flowctl.run import batch, checks, events, letters
from flowctl.run.appending import IntervalRead, read_interval
from flowctl.run.attempt import Attempt, AttemptResult, RunContext
from flowctl.run.late_schema import completed
from flowctl.run.opening import open_rows, open_target, take_table_lease
from flowctl.run.quarantine import begins_anew, quarantine, remove_rejected
from flowctl.run.reading import LandedSnapshot, SqlSnapshot
from flowctl.run.stage import Staging, stage
from flowctl.run.undecoded import prepare_undecoded
from flowctl.run.work import PreparedBatch, TableWork, Work, check_stop, write_job
from flowctl.spec.spec import TableSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def run_table(attempt: Attempt, run: RunContext) -> AttemptResult:
    """Commits the attempt's sequence number, or finds it committed. Raises flowctl's errors, or those of Spark and
    drivers unchanged."""
    with run.buffer.part() as buffer, ExitStack() as stack:
        ready = _get_ready(stack, attempt, replace(run, buffer=buffer))
        if isinstance(ready, AttemptResult):
            return ready
        (result,) = _committed(stack, [ready])
    crashpoints.reached("after_commit", attempt.step.id)
    return result


def run_tables(attempts: Sequence[Attempt], run: RunContext, parallel: int) -> list[AttemptResult]:
    """As :func:`run_table`, for tables of one target that commits several together, or none."""
    with ExitStack() as stack, ThreadPoolExecutor(parallel, thread_name_prefix="staging") as pool:
        stacks = [stack.enter_context(ExitStack()) for _ in attempts]
        made = list(pool.map(lambda one: _get_ready(one[0], one[1], run), zip(stacks, attempts, strict=True)))
        waiting = [(at, ready) for at, ready in enumerate(made) if isinstance(ready, _Ready)]
        results = {at: found for at, found in enumerate(made) if isinstance(found, AttemptResult)}
        if waiting:
            done = _committed(stack, [ready for _, ready in waiting], pool)
            results |= {at: result for (at, _), result in zip(waiting, done, strict=True)}
    for attempt in attempts:
        crashpoints.reached("after_commit", attempt.step.id)
    return [results[at] for at in range(len(attempts))]


AnyBatch = PreparedBatch[Batch] | PreparedBatch[UndecodedRows]


@dataclass(frozen=True)
class _Ready:
    """A table whose batch can be committed. ``newest`` is the target's newest commit."""

    work: Work
    prepared: AnyBatch
    newest: Commit | None


def _get_ready(stack: ExitStack, attempt: Attempt, run: RunContext) -> _Ready | AttemptResult:
    """Reads and checks the batch, unless the target already has it."""
    step, intent, table = attempt.step, attempt.intent, run.tables[attempt.step.id]
    target = open_target(stack, run, table)
    newest = _newest(target, table, run)
    if found := _of_intent(newest, table.id, intent):
        return AttemptResult(found, recovered=True, warnings=target.clean_up(table.target.object))
    if isinstance(step, RecordOnly):
        raise StateConflict(
            f"{step.id}: the plan found sequence number {intent.seq} committed, but the target no longer has it"
        )
    take_table_lease(stack, run.spec, run.run_id, table, target)
    if step.table.via == "undecoded":
        return _Ready(*prepare_undecoded(stack, attempt, run, step, target), newest)
    work = begin_work(stack, attempt, run, step, target)
    return _Ready(work, prepare(work), newest)


def _committed(
    stack: ExitStack, ready: Sequence[_Ready], pool: ThreadPoolExecutor | None = None
) -> list[AttemptResult]:
    """Stages the batches, in threads of ``pool``, and commits them: together if the target can. Several tables have
    one target."""
    for one in ready:
        _begin_writing(one.work, one.prepared, one.newest)
        if one.prepared.counts is not None:
            one.work.run.listener(events.PhaseEntered(one.work.table.id, "committing", one.prepared.counts.rows))
    staging = [_staging(one.work, one.prepared) for one in ready]
    enter = stack.enter_context
    staged = list(map(enter, staging) if pool is None else pool.map(enter, staging))
    commits = ready[0].work.target.commit(staged)
    return [_result(one, commit) for one, commit in zip(ready, commits, strict=True)]


def _staging(work: Work, prepared: AnyBatch) -> AbstractContextManager[Staged]:
    match prepared.rows:
        case UndecodedRows() as rows:
            return work.target.stage_undecoded(rows, prepared.job, is_inside=is_within(work.table))
        case InMemory() | OnEngine() as rows:
            return work.target.stage(work.session(), rows, prepared.job)
        case _:
            assert_never(prepared.rows)


def _result(ready: _Ready, commit: Commit) -> AttemptResult:
    """With the counts and the warnings of the checks."""
    counts = ready.prepared.counts
    if counts is not None:
        done = replace(commit.counts, read=counts.rows + counts.quarantined, quarantined=counts.quarantined)
        commit = replace(commit, counts=done)
    elif dead := ready.prepared.letters:
        known = commit.counts.inserted
        read = None if known is None else known + dead
        commit = replace(commit, counts=replace(commit.counts, read=read, quarantined=dead))
    return AttemptResult(commit, warnings=(*ready.work.notes, *ready.prepared.warnings, *commit.warnings))


def void(run: RunContext, step: Load, pending: Intent) -> Commit | None:
    """Abandons a pending sequence number: commits it empty in the target, unless it is already committed. The void has
    the position of the previous commit, because the target's position does not change. What the number has rejected is
    removed first: its rows will be read again. None: see :meth:`flowctl.connectors.target.Target.void`."""
    table = run.tables[step.id]
    with ExitStack() as stack:
        target = open_target(stack, run, table)
        before = _newest(target, table, run)
        if found := _of_intent(before, step.id, pending):
            return found
        take_table_lease(stack, run.spec, run.run_id, table, target)
        columns = step.columns if isinstance(step.columns, Columns) else Columns(target=step.columns.target)
        job = write_job(run, step, columns, pending, before.position if before else None)
        for place in letters.places_of(stack, run, table, target):
            with letters.held(run, table, place):
                remove_rejected(lambda: run.session(step.id), place, job, pending.seq)
        return target.void(replace(job, record=replace(job.record, void=True)))


def find_commit(attempt: Attempt, run: RunContext) -> Commit | None:
    """Looks up the attempt's commit in the target, over a new connection."""
    table = run.tables[attempt.step.id]
    with ExitStack() as stack:
        newest = _newest(open_target(stack, run, table), table, run)
        return _of_intent(newest, table.id, attempt.intent)


def _newest(target: Target, table: TableSpec, run: RunContext) -> Commit | None:
    """The target's newest commit of the table."""
    return target.committed([CommitLookup(run.lineage, table.id, table.target.object)])[table.id]


def _of_intent(found: Commit | None, table_id: str, intent: Intent) -> Commit | None:
    """``found``, the target's newest commit, if it belongs to this intent; None if its sequence number is still free;
    :class:`StateConflict` otherwise."""
    if found is None or found.seq < intent.seq:
        return None
    if (found.seq, found.intent_id) != (intent.seq, intent.id):
        raise StateConflict(
            f"{table_id}: the target is at sequence number {found.seq} of another run, ours is {intent.seq}",
            hint=f"Look at the table, which another state wrote, then `flowctl state adopt … {table_id}`",
        )
    return found


def begin_work(stack: ExitStack, attempt: Attempt, run: RunContext, step: Load | Recover, target: Target) -> TableWork:
    """Waits for the engine and opens the source. Writes nothing."""
    table = run.tables[step.id]
    run.listener(events.PhaseEntered(table.id, "waiting for the engine"))
    spark = run.session(table.id)
    check_stop(run)
    snapshot = batch.in_order(stack.enter_context(open_rows(run, spark, table, attempt.intent)), table)
    crashpoints.reached("during_stage", table.id)
    step, columns, notes = _with_columns(attempt, step, run, spark, snapshot, target)
    return TableWork(run, attempt, step, columns, notes, table, target, spark, snapshot)


def prepare(work: TableWork) -> PreparedBatch[Batch]:
    """Reads, projects and checks the batch; :class:`TableError` if the table must stop before its commit. Does not
    write to the target."""
    run, intent, table = work.run, work.attempt.intent, work.table
    is_direct = work.step.table.via == "direct"
    run.listener(events.PhaseEntered(table.id, "reading" if is_direct else "staging"))
    if not is_direct:
        threading.Thread(target=_import_for_commits, name="imports").start()
    own = work.snapshot.own_columns if isinstance(work.snapshot, LandedSnapshot) else ()
    columns, again = (*work.columns.source, *own, *letters.carried(table)), _letters_again(work)
    read = read_interval(
        work.spark, work.snapshot, columns, table, intent.interval, run.buffer, run.spec.argument, again
    )
    job = replace(write_job(run, work.step, work.columns, intent, read.position), base=work.attempt.base)
    return _prepare_direct(work, read, job) if is_direct else _prepare_staged(work, read, job)


def _letters_again(work: TableWork) -> Iterator[pa.RecordBatch]:
    through, run, table = work.attempt.intent.interval.letters, work.run, work.table
    if through is not None:
        if table.mode != "append" and not table.has_source_order:
            raise StoppedByPolicy(
                f"a run that did not finish has begun to read dead letters of {table.id} again, by their order",
                hint="Set `format.source_order` again until it is finished",
                mark=table.mark_of("format"),
            )
        with ExitStack() as stack:
            place, passed = letters.place_of(stack, run, table, work.target), run.states(table.id).passed
            assert place is not None, "the plan reads letters again only where some are kept"
            found = letters.stored_letters(lambda: work.spark, place, table, run.lineage, passed, through)
            yield from letters.to_read_again(found, lambda: run.buffer.folder(f"{table.id}-again"))


def _with_columns(
    attempt: Attempt,
    step: Load | Recover,
    run: RunContext,
    spark: SparkSession,
    snapshot: Snapshot,
    target: Target,
) -> tuple[Load | Recover, Columns, tuple[str, ...]]:
    """The step with the columns that only the engine can determine, these columns, and notes about them."""
    if isinstance(step.columns, Columns):
        return step, step.columns, ()
    read = columns_of(snapshot.whole().schema) if isinstance(snapshot, SqlSnapshot) else step.columns.source
    columns, notes = completed(spark, step, read, target, run)
    step = attempt.step = replace(step, columns=columns)
    if isinstance(snapshot, SqlSnapshot):
        attempt.upstream_shape = shape_read(snapshot.source, snapshot.columns)
    return step, columns, notes


def _prepare_direct(work: TableWork, read: IntervalRead, job: WriteJob) -> PreparedBatch[Batch]:
    """Straight from the source: row checks fail the job before its commit; whether it is empty is checked first."""
    columns, table, snapshot, interval = work.columns, work.table, work.snapshot, work.attempt.intent.interval
    rows = read.rows
    frame = frame_of(rows, work.spark, lambda: work.run.buffer.folder(f"{table.id}-read"))
    frame = batch.projected(frame, columns.projection, columns.source)
    require_types(columns_of(frame.schema), [part.column for part in columns.projection])
    if work.step.write_full and table.guard.allow_empty is False and _is_empty(work, rows):
        raise checks.empty_source(table)
    frame = checks.enforced(frame, table.expect)
    made = batch_like(rows, frame)
    snapshot.release()
    rejected, dead = None, 0
    if read.landed is not None and table.dead_letters is not None:
        buffer = work.run.buffer
        rejected, dead = letters.all_rejected(
            table, None, 0, read.landed, work.spark, lambda: buffer.folder(f"{table.id}-letters")
        )
    return PreparedBatch(made, _confirming(job, snapshot, interval), rejected=rejected, letters=dead)


def _is_empty(work: TableWork, rows: Batch) -> bool:
    match rows:
        case InMemory(held):
            return not len(held)
        case OnEngine():
            return work.snapshot.is_empty(ReadRequest(work.columns.source, work.attempt.intent.interval))
        case _:
            assert_never(rows)


def _prepare_staged(work: TableWork, read: IntervalRead, job: WriteJob) -> PreparedBatch[Batch]:
    """From the buffer, after the batch has been counted and checked there."""
    run, intent, table, snapshot = work.run, work.attempt.intent, work.table, work.snapshot
    staging = Staging(work.spark, snapshot, read, work.step, work.columns, table, intent, work.target, run.buffer, job)
    staged = stage(staging)
    crashpoints.reached("after_stage", table.id)
    snapshot.confirm(intent.interval)
    snapshot.release()  # nothing is held while the target is written
    check_stop(run)
    counts = staged.counts
    job = replace(job, rows=counts.rows + counts.deletes, key_bounds=counts.key_bounds)
    return PreparedBatch(staged.batch, job, counts, staged.rejected, staged.warnings)


def _begin_writing(work: Work, prepared: AnyBatch, newest: Commit | None) -> None:
    """Marks the attempt as writing: from here on, the target may be modified. Writes rejected rows to quarantine."""
    repeats = work.attempt.writing or isinstance(work.step, Recover)
    work.attempt.writing = True
    gave_up = newest is not None and newest.void
    if prepared.rejected is not None or repeats or gave_up or begins_anew(prepared.job):
        _keep_rejected(work, prepared, newest, repeats=repeats)
    crashpoints.reached("after_quarantine", work.table.id)


def _keep_rejected(work: Work, prepared: AnyBatch, newest: Commit | None, *, repeats: bool) -> None:
    run, table, job, rejected, intent = work.run, work.table, prepared.job, prepared.rejected, work.attempt.intent
    with ExitStack() as stack:
        # Those after the first: the spec may have kept rows apart in another way when this number was first tried.
        for number, place in enumerate(letters.places_of(stack, run, table, work.target)):
            with letters.held(run, table, place):
                if number == 0:
                    if table.dead_letters is not None:
                        rejected = letters.with_kept(
                            rejected, table, intent, run, place, work.session(), continues=work.step.continues
                        )
                    quarantine(work.session, place, job, rejected, newest, repeats=repeats)
                elif repeats:
                    remove_rejected(work.session, place, job, job.record.seq)


def _import_for_commits() -> None:
    """Imports what a commit that compares rows needs, which takes 0.2 s, while this process waits for staging."""
    for name in ("sqlglot", "pyarrow.acero", "pyarrow.parquet"):
        importlib.import_module(name)


def _confirming(job: WriteJob, snapshot: Snapshot, interval: Interval) -> WriteJob:
    """The job, with confirmation of the direct read before its commit."""

    def before_commit() -> None:
        snapshot.confirm(interval)
        job.before_commit()

    return replace(job, before_commit=before_commit)
