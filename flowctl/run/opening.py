"""What one attempt of a table opens: its target, the target's lease, and a snapshot of its source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext
from flowctl.connectors.source import Snapshot
from flowctl.connectors.target import Target
from flowctl.diagnostics import Mark
from flowctl.engine.spark_types import named
from flowctl.errors import AbortRun, TableError, TransientError
from flowctl.model.commit import Intent
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Recover, StreamStep, UpToDate
from flowctl.model.table_info import Column
from flowctl.observe.relations import relation
from flowctl.run import events
from flowctl.run.attempt import RunContext
from flowctl.run.reading import SqlSnapshot, open_snapshot
from flowctl.spec.spec import Spec, SqlSource, TableSpec, TargetRef
from flowctl.state.lease import Lease
from flowctl.storage import access
from flowctl.storage.options import open_store
from flowctl.storage.urls import scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_target(stack: ExitStack, run: RunContext, table: TableSpec) -> Target:
    target = open_connector(stack, run, table.target.connection).target
    if target is None:
        raise TableError(f"{table.target} cannot be written", mark=table.mark_of("to"))
    return target


def take_table_lease(stack: ExitStack, spec: Spec, run_id: str, table: TableSpec, target: Target) -> Lease | None:
    return take_lease(stack, spec, run_id, table.target, table.mark_of("to"), target)


def take_lease(
    stack: ExitStack, spec: Spec, run_id: str, to: TargetRef, mark: Mark, target: Target, *, patience: float = 0.0
) -> Lease | None:
    """That of one table, if it has one. Waits up to ``patience`` seconds for another holder."""
    folder = target.lease_folder(to.object)
    if folder is None:
        return None
    blobs = open_store(folder, spec.storage, unsafe=spec.state.unsafe, private=False)
    try:
        lease = Lease.acquire(blobs, prefix="", run_id=run_id, lock_timeout=patience)
    except AbortRun as error:  # the target's store failed, not the state's
        if scheme(folder) != "file" and error.__cause__ is not None and error.hint != access.HINT:
            what = f"the store of {to} does not answer: {error.message}"
            raise TransientError(what, hint=error.hint, mark=mark) from error
        raise TableError(
            f"{to} cannot be written: {error.message}",
            hint=error.hint if error.hint == access.HINT else f"Let this user write to {folder}, for its lease",
            mark=mark,
        ) from error
    return stack.enter_context(lease)


@contextmanager
def open_rows(run: RunContext, spark: SparkSession, table: TableSpec, intent: Intent) -> Iterator[Snapshot]:
    if run.opener is not None:
        with run.opener(spark, table, intent) as opened:
            yield opened
        return

    def on_rows(rows: int) -> None:
        run.listener(events.RowsRead(table.id, rows))

    with ExitStack() as stack:
        if isinstance(table.source, SqlSource):
            yield _sql_snapshot(stack, run, spark, table, table.source)
            return
        connector = open_connector(stack, run, table.source.connection)
        if connector.source is None:
            raise TableError(f"{table.source} cannot be read", mark=table.mark_of("from"))
        wanted = relation(table)
        info, rejects = run.sources[table.id], table.dead_letters is not None
        snapshot = open_snapshot(
            connector.source, spark, wanted, info, table.read, run.buffer, on_rows, rejects=rejects
        )
        yield stack.enter_context(snapshot)


def _sql_snapshot(
    stack: ExitStack, run: RunContext, spark: SparkSession, table: TableSpec, source: SqlSource
) -> SqlSnapshot:
    """Creates a view in this session for each referenced table, over its target's committed content."""
    views, read = {}, {}
    for number, ref in enumerate(source.refs):
        upstream = run.tables[ref]
        target = open_target(stack, run, upstream)
        object = upstream.target.object
        columns = _planned_columns(run.steps.get(ref))
        if not columns:
            info = target.describe([object])[object]
            columns = info.columns if info else ()
        view = f"_flowctl_ref_{number}"
        frame = target.scan(spark, object, columns)
        frame.select(*[named(column.name) for column in columns]).createOrReplaceTempView(view)
        views[ref], read[ref] = view, columns
    return SqlSnapshot(spark, source, views, read, table.where)


def _planned_columns(step: StreamStep | None) -> tuple[Column, ...]:
    """All columns that the table will have after its run. Empty if its plan cannot know them: because the target has
    further columns (foreign, or dropped in the source), or an earlier sequence number must be finished first."""
    match step:
        case Load(follows=None, columns=Columns() as columns) | Recover(columns=Columns() as columns):
            pass
        case UpToDate(columns=Columns() as columns):
            pass
        case _:
            return ()
    is_whole = not any(change.change in ("drift", "dropped_column") for change in columns.changes)
    return columns.target if is_whole else ()


def open_connector(stack: ExitStack, run: RunContext, name: str) -> Connector:
    context = OpenContext(run.spec.storage, run.base_dir, run.buffer)
    return stack.enter_context(registry.open(run.spec.connections[name], context))
