"""One table through the commit protocol: look, stage, check, commit. Recording is the runner's.

Whatever goes wrong here, trying again under the same intent is safe: the first thing each try does is to ask the
target whether our number is committed already.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from flowctl import crashpoints
from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext
from flowctl.connectors.source import ReadRequest, Snapshot
from flowctl.connectors.target import CommitLookup, Target, WriteJob
from flowctl.engine.spark_types import columns_of, named, same_types
from flowctl.errors import AbortRun, StateConflict, TableError
from flowctl.model.commit import Commit, Intent
from flowctl.model.interval import Interval
from flowctl.model.position import Position
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.step import Load, RecordOnly, Recover, Step, UpToDate
from flowctl.model.table_info import Column, ObjectName
from flowctl.observe.relations import relation
from flowctl.plan.upstream import shape_read
from flowctl.run import batch, checks, events
from flowctl.run.appending import read_interval
from flowctl.run.attempt import Attempt, AttemptResult, RunContext
from flowctl.run.late_schema import Known, completed
from flowctl.run.quarantine import quarantine
from flowctl.run.reading import Rows, SqlSnapshot, open_snapshot
from flowctl.run.sizing import batch_rows
from flowctl.run.stage import Staging, stage
from flowctl.spec.spec import SqlSource, TableSpec
from flowctl.state.lease import Lease
from flowctl.storage import access
from flowctl.storage.options import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds of lease that must be left when a commit begins.
COMMIT_MARGIN = 1.0


def run_table(attempt: Attempt, run: RunContext) -> AttemptResult:
    """Commits the attempt's number, or finds it committed; raises flowctl's errors or Spark's and drivers' own."""
    step, late = attempt.step, tuple[str, ...]()
    intent, table = attempt.intent, run.tables[step.id]
    with ExitStack() as stack:
        target = _target(stack, run, table)
        object = ObjectName(table.target.parts)
        newest = target.committed([CommitLookup(run.lineage, step.id, object)])[step.id]
        if found := _of_intent(newest, step.id, intent):
            return AttemptResult(found, step, recovered=True)
        if isinstance(step, RecordOnly):
            raise StateConflict(f"{step.id}: the plan found sequence number {intent.seq} committed, it is gone now")
        _take_table_lease(stack, run, table, target, object)
        run.listener(events.PhaseEntered(step.id, "waiting for the engine"))
        spark = run.session(step.id)
        _check_stop(run)
        snapshot = batch.in_order(stack.enter_context(_snapshot(run, spark, table)), table)
        crashpoints.reached("during_stage", step.id)
        columns = step.columns
        if isinstance(columns, RuntimeColumns):
            read = columns_of(snapshot.whole().schema) if isinstance(snapshot, SqlSnapshot) else columns.source
            known = Known(run.states(step.id), run.sources.get(step.id), run.spec.spark.url)
            columns, late = completed(spark, step, table, read, target, known)
            attempt.step = step = replace(step, columns=columns)
            if isinstance(snapshot, SqlSnapshot):
                attempt.upstream_shape = shape_read(snapshot.source, snapshot.columns)
        commit, warnings = _write(attempt, step, columns, run, spark, snapshot, target, newest)
    crashpoints.reached("after_commit", step.id)
    return AttemptResult(commit, step, warnings=(*late, *warnings, *commit.warnings))


def void(run: RunContext, step: Load, pending: Intent) -> Commit:
    """Gives up a pending number: commits it empty in the target, unless it turns out to be committed already. The void
    carries the position of the commit before it: how far the target has come does not change."""
    table = run.tables[step.id]
    object = ObjectName(table.target.parts)
    with ExitStack() as stack:
        target = _target(stack, run, table)
        before = target.committed([CommitLookup(run.lineage, step.id, object)])[step.id]
        if found := _of_intent(before, step.id, pending):
            return found
        _take_table_lease(stack, run, table, target, object)
        columns = step.columns if isinstance(step.columns, Columns) else Columns(target=step.columns.target)
        job = _job(run, step, columns, pending, object, position=before.position if before else None)
        return target.void(replace(job, record=replace(job.record, void=True)))


def find_landed(attempt: Attempt, run: RunContext) -> Commit | None:
    """Asks the target anew, over a connection of its own."""
    table = run.tables[attempt.step.id]
    with ExitStack() as stack:
        target = _target(stack, run, table)
        newest = target.committed([CommitLookup(run.lineage, table.id, ObjectName(table.target.parts))])[table.id]
        return _of_intent(newest, table.id, attempt.intent)


def _of_intent(found: Commit | None, table_id: str, intent: Intent) -> Commit | None:
    """``found``, the target's newest commit, if it is of exactly this intent; None when its number is still free;
    conflicts otherwise."""
    if found is None or found.seq < intent.seq:
        return None
    if (found.seq, found.intent_id) != (intent.seq, intent.id):
        raise StateConflict(
            f"{table_id}: the target is at sequence number {found.seq} of another run, ours is {intent.seq}",
            hint=f"Look at the table, which another state wrote, then `flowctl state adopt … {table_id}`",
        )
    return found


def _write(
    attempt: Attempt,
    step: Load | Recover,
    columns: Columns,
    run: RunContext,
    spark: SparkSession,
    snapshot: Snapshot,
    target: Target,
    newest: Commit | None,
) -> tuple[Commit, tuple[str, ...]]:
    """``newest`` is the target's newest commit."""
    intent = attempt.intent
    table = run.tables[step.id]
    object = ObjectName(table.target.parts)
    repeats = attempt.writing or isinstance(step, Recover)
    is_direct = step.table.via == "direct"
    run.listener(events.PhaseEntered(step.id, "reading" if is_direct else "staging"))
    if not is_direct:
        threading.Thread(target=_import_for_commits, name="imports").start()
    read = read_interval(
        spark, snapshot, columns.source, table, intent.interval, run.scratch(step.id), run.spec.argument
    )
    job = replace(_job(run, step, columns, intent, object, read.position), base=attempt.base)
    if is_direct:
        rows = _direct_rows(read.rows, snapshot, step, columns, table, intent.interval)
        snapshot.release()
        attempt.writing = True
        quarantine(spark, target, job, None, newest, repeats=repeats)
        job = _confirming(replace(job, few=rows.are_few), snapshot, intent.interval)
        return target.write(spark, rows.frame, job), ()
    staged = stage(
        Staging(spark, snapshot, read.rows, step, columns, table, intent, target, object, run.scratch(step.id))
    )
    crashpoints.reached("after_stage", step.id)
    snapshot.confirm(intent.interval)
    snapshot.release()  # nothing is held while the target is written
    _check_stop(run)
    attempt.writing = True
    quarantine(spark, target, job, staged.rejected, newest, repeats=repeats)
    run.listener(events.PhaseEntered(step.id, "committing", staged.counts.rows))
    seen = staged.counts
    known = replace(job, rows=seen.rows + seen.deletes, key_bounds=seen.key_bounds)
    commit = target.write(spark, staged.frame, replace(known, staged=staged.folder, few=staged.are_few))
    counts = replace(commit.counts, read=seen.rows, quarantined=seen.quarantined)
    return replace(commit, counts=counts), staged.warnings


def _import_for_commits() -> None:
    """Beside staging, for which this process only waits: what a commit that compares rows imports takes 0.2 s."""
    for name in ("flowctl.sql.upsert", "pyarrow.acero", "pyarrow.parquet"):
        importlib.import_module(name)


def _confirming(job: WriteJob, snapshot: Snapshot, interval: Interval) -> WriteJob:
    """The job, with what a direct read has read confirmed before its commit."""

    def before_commit() -> None:
        snapshot.confirm(interval)
        job.before_commit()

    return replace(job, before_commit=before_commit)


def _direct_rows(
    rows: Rows, snapshot: Snapshot, step: Load | Recover, columns: Columns, table: TableSpec, interval: Interval
) -> Rows:
    """Straight from the source: row checks fail the job before its commit, emptiness is asked first."""
    request = ReadRequest(columns.source, interval)
    frame = batch.projected(rows.frame, columns.projection, columns.source)
    same_types(columns_of(frame.schema), [part.column for part in columns.projection])
    if step.write_full and table.guard.allow_empty is False and _is_empty(rows, snapshot, request):
        raise checks.empty_source(table)
    return replace(rows, frame=checks.enforced(frame, table.expect))


def _is_empty(rows: Rows, snapshot: Snapshot, request: ReadRequest) -> bool:
    return snapshot.is_empty(request) if rows.count is None else not rows.count


def _job(
    run: RunContext,
    step: Load | Recover,
    columns: Columns,
    intent: Intent,
    object: ObjectName,
    position: Position | None,
) -> WriteJob:
    table = run.tables[step.id]
    deletes = table.deletes

    def before_commit() -> None:
        run.lease.check(COMMIT_MARGIN)
        _check_stop(run)
        crashpoints.reached("before_commit", step.id)

    return WriteJob(
        record=Commit(run.lineage, step.id, intent.seq, intent.id, intent.target_id, position),
        object=object,
        mode=table.mode,
        columns=columns.target,
        key=table.key,
        compared=tuple(part.column.name for part in columns.projection if part.compared),
        new_columns=tuple(change.column for change in columns.changes if change.action in ("add", "text")),
        absent=tuple(part.column.name for part in columns.projection if part.is_absent),
        create=() if step.table.seen.exists else columns.statements,
        alter=tuple(change for change in columns.changes if change.alters) if columns.statements else (),
        replace=step.write_full,
        soft_deletes=deletes is not None and deletes.action == "soft" and table.mode == "merge",
        layout=table.layout,
        run_id=run.run_id,
        fence=run.lease.fence,
        at=intent.at,
        estimated_rows=batch_rows(step, run.sources.get(step.id)),
        before_commit=before_commit,
    )


@contextmanager
def _snapshot(run: RunContext, spark: SparkSession, table: TableSpec) -> Iterator[Snapshot]:
    with ExitStack() as stack:
        if isinstance(table.source, SqlSource):
            yield _sql_snapshot(stack, run, spark, table, table.source)
            return
        connector = _open(stack, run, table.source.connection)
        if connector.source is None:
            raise TableError(f"{table.source} cannot be read", mark=table.mark_of("from"))
        wanted = relation(table)
        info = run.sources[table.id]
        scratch = run.scratch(table.id)
        yield stack.enter_context(open_snapshot(connector.source, spark, wanted, info, table.read, scratch))


def _sql_snapshot(
    stack: ExitStack, run: RunContext, spark: SparkSession, table: TableSpec, source: SqlSource
) -> SqlSnapshot:
    """Each referenced table becomes a view of this session over its target's committed content."""
    views, read = {}, {}
    for number, ref in enumerate(source.refs):
        upstream = run.tables[ref]
        target = _target(stack, run, upstream)
        object = ObjectName(upstream.target.parts)
        columns = _planned_columns(run.steps.get(ref))
        if not columns:
            info = target.describe([object])[object]
            columns = info.columns if info else ()
        view = f"_flowctl_ref_{number}"
        frame = target.scan(spark, object, columns)
        frame.select(*[named(column.name) for column in columns]).createOrReplaceTempView(view)
        views[ref], read[ref] = view, columns
    return SqlSnapshot(spark, source, views, read, table.where)


def _planned_columns(step: Step | None) -> tuple[Column, ...]:
    """All columns that the table has when it has run, where its plan could tell them: there are none of others or left
    to the database, and nothing had to be finished first."""
    match step:
        case Load(follows=None, columns=Columns() as columns) | Recover(columns=Columns() as columns):
            pass
        case UpToDate(columns=Columns() as columns):
            pass
        case _:
            return ()
    is_whole = not any(change.change in ("drift", "dropped_column") for change in columns.changes)
    return columns.target if is_whole else ()


def _target(stack: ExitStack, run: RunContext, table: TableSpec) -> Target:
    target = _open(stack, run, table.target.connection).target
    if target is None:
        raise TableError(f"{table.target} cannot be written", mark=table.mark_of("to"))
    return target


def _open(stack: ExitStack, run: RunContext, name: str) -> Connector:
    context = OpenContext(run.spec.storage, run.base_dir, run.scratch(f"connection-{name}"))
    return stack.enter_context(registry.open(run.spec.connections[name], context))


def _take_table_lease(stack: ExitStack, run: RunContext, table: TableSpec, target: Target, object: ObjectName) -> None:
    folder = target.lease_folder(object)
    if folder is not None:
        blobs = open_store(folder, run.spec.storage, unsafe=run.spec.state.unsafe, private=False)
        try:
            lease = Lease.acquire(blobs, prefix="", run_id=run.run_id)
        except AbortRun as error:  # of the store, which is the target's here and not the state's
            raise TableError(
                f"{table.target} cannot be written: {error.message}",
                hint=error.hint if error.hint == access.HINT else f"Let this user write to {folder}, for its lease",
                mark=table.mark_of("to"),
            ) from error
        stack.enter_context(lease)


def _check_stop(run: RunContext) -> None:
    if run.stopping.is_set():
        raise TableError("stopped before its commit", hint="Run again to finish it")
