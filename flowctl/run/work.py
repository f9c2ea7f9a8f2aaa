"""What an attempt of a table works with, and the batch and the job that it prepares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from flowctl import crashpoints
from flowctl.connectors.source import Snapshot
from flowctl.connectors.target import Target, WriteJob
from flowctl.connectors.undecoded import UndecodedRows
from flowctl.engine import cost
from flowctl.engine.batch import Batch
from flowctl.errors import Interrupted
from flowctl.model.commit import Commit, Intent
from flowctl.model.position import LandedPosition, OffsetsPosition, Position
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Recover
from flowctl.model.table_info import Column, TableInfo
from flowctl.run.attempt import COMMIT_MARGIN, Attempt, RunContext
from flowctl.run.checks import BatchCounts
from flowctl.spec.spec import DetectFlag, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


R = TypeVar("R", Batch, UndecodedRows)


@dataclass(frozen=True)
class Work:
    """An attempt whose target is open. ``notes`` are about columns that only the engine can determine."""

    run: RunContext
    attempt: Attempt
    step: Load | Recover
    columns: Columns
    notes: tuple[str, ...]
    table: TableSpec
    target: Target

    def session(self) -> SparkSession:
        """The table's own; starts Spark, if it does not run yet."""
        return self.run.session(self.table.id)


@dataclass(frozen=True)
class TableWork(Work):
    """An attempt whose source is open, too, and read with an engine."""

    spark: SparkSession
    snapshot: Snapshot


@dataclass(frozen=True)
class PreparedBatch(Generic[R]):
    """A batch that is ready to be committed. ``counts`` is None on the direct path, where nothing is counted and the
    rows are computed when they are used; ``rejected`` are the rows for quarantine, None if there are none; without
    ``counts``, ``letters`` is their number."""

    rows: R
    job: WriteJob
    counts: BatchCounts | None = None
    rejected: DataFrame | None = None
    warnings: tuple[str, ...] = ()
    letters: int = 0


def write_job(
    run: RunContext,
    step: Load | Recover,
    columns: Columns,
    intent: Intent,
    position: Position | None,
) -> WriteJob:
    table = run.tables[step.id]
    deletes = table.deletes

    def before_commit() -> None:
        run.check_lease(COMMIT_MARGIN)
        check_stop(run)
        crashpoints.reached("before_commit", step.id)

    return WriteJob(
        record=Commit(run.lineage, step.id, intent.seq, intent.id, intent.target_id, position),
        object=table.target.object,
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
        flags_deletes=isinstance(deletes, DetectFlag),
        is_ordered=table.has_source_order,
        layout=table.layout,
        run_id=run.run_id,
        fence=run.fence,
        at=intent.at,
        is_dated=isinstance(intent.interval.lower, LandedPosition)
        or isinstance(intent.interval.upper, OffsetsPosition),
        estimated_rows=cost.batch_rows(step.rows, run.sources.get(step.id)),
        standing=_standing(columns, run.targets.get(step.id)),
        before_commit=before_commit,
    )


def _standing(columns: Columns, target: TableInfo | None) -> tuple[Column, ...]:
    """See :class:`WriteJob`. Of undecoded rows, ``columns`` has some as texts."""
    wanted = {column.name: column for column in columns.target}
    altered = {change.column for change in columns.changes if change.alters}
    return tuple(
        now
        for now in (target.columns if target else ())
        if now.name not in altered
        and (column := wanted.get(now.name)) is not None
        and (column.type == now.type or column.as_text)
    )


def check_stop(run: RunContext) -> None:
    if run.stopping.is_set():
        raise Interrupted("stopped before its commit", hint="Run again to finish it")
