"""What a run would change in one table: the batch, prepared as in a run, is compared with the target's rows.

The engine compares, for all targets, with the SELECTs of :mod:`flowctl.sql.difference` and :mod:`flowctl.sql.scd2`,
which every target's commit applies. Only the buffer is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from flowctl.connectors.buffered import buffered, computed, frame_of
from flowctl.connectors.history import Tables, check_observed, sidecar_columns, versioning
from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.target import OP_COLUMN, CommitLookup
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import frame_in_order, named
from flowctl.model.effects import CountedEffects, SampleRow
from flowctl.model.step import Load, Recover
from flowctl.model.table_info import Column, TableInfo
from flowctl.plan.projection import is_mask
from flowctl.plan.undecoded import as_texts, texts_of
from flowctl.run import events
from flowctl.run.attempt import Attempt, RunContext
from flowctl.run.changed_rows import (
    ACTIONS,
    ChangedRows,
    Sampling,
    before,
    count_changes,
    inserted_rows,
    merged_rows,
    sample_rows,
    version_rows,
)
from flowctl.run.opening import open_target
from flowctl.run.table import begin_work, prepare
from flowctl.run.work import PreparedBatch, TableWork
from flowctl.sql import scd2
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.difference import Upsert, difference
from flowctl.sql.observations import observations
from flowctl.sql.versioning import IS_CURRENT, OWN_COLUMNS, VALID_FROM
from flowctl.storage.buffer import BufferFolder

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

#: Temporary views of the table's own session.
_BATCH, _TARGET, _DIFFERENCE = "_flowctl_batch", "_flowctl_target", "_flowctl_difference"
_OBSERVED, _ALL_OBSERVED = "_flowctl_observed", "_flowctl_all_observed"


def count_effects(
    attempt: Attempt, step: Load | Recover, run: RunContext, found: TableInfo | None, sampling: Sampling
) -> CountedEffects:
    """``found`` is the target as observed by the plan. Raises what a run would raise before the table's commit."""
    there = found.columns if found else ()
    if step.table.via == "undecoded":  # the comparison needs values
        step = as_texts(step, run.tables[step.id])
        there = tuple(texts_of(there, {column.name for column in step.columns.target if column.as_text}))
        attempt = replace(attempt, step=step)
    with ExitStack() as stack:
        target = open_target(stack, run, run.tables[step.id])
        work = begin_work(stack, attempt, run, step, target)
        return _Comparison(work, prepare(work), there, sampling).effects()


@dataclass(frozen=True)
class _Comparison:
    """``columns_there`` are the target's columns; empty if the table does not exist."""

    work: TableWork
    prepared: PreparedBatch[Batch]
    columns_there: tuple[Column, ...]
    sampling: Sampling

    def effects(self) -> CountedEffects:
        work, mode = self.work, self.prepared.job.mode
        rows, count = self._computed()
        work.run.listener(events.PhaseEntered(work.table.id, "comparing", count))
        match mode:
            case "scd2":
                found = self._of_versions(rows, count)
            case "merge" if (
                self.columns_there and not self.prepared.job.replaces_content and not self.work.target.is_log
            ):
                found = self._of_merge(rows, count)
            case "append" | "truncate" | "merge":
                found = self._of_new_rows(rows, count)
            case _:
                assert_never(mode)
        warnings = (*work.notes, *self.prepared.warnings)
        return replace(found, quarantined=self._quarantined(), warnings=warnings)

    def _computed(self) -> tuple[Batch, int]:
        """The batch, computed once, and its number of rows without deletions."""
        prepared = self.prepared
        if prepared.counts is not None:
            return prepared.rows, prepared.counts.rows
        rows = prepared.rows
        if isinstance(rows, OnEngine):
            place = self._folder("rows")
            rows = OnEngine(buffered(rows.frame, place), place)
        count = rows.rows.num_rows if isinstance(rows, InMemory) else place.rows()
        prepared.job.before_commit()  # confirms the direct read
        return rows, count

    def _of_new_rows(self, rows: Batch, count: int) -> CountedEffects:
        """All rows of the batch are inserted."""
        samples: tuple[SampleRow, ...] = ()
        if self.sampling.rows:
            frame = self._frame(rows, "rows")
            alive = frame.where(named(OP_COLUMN) == "U") if OP_COLUMN in frame.columns else frame
            columns = tuple(name for name in self._column_names if name in frame.columns)
            samples = self._samples(inserted_rows(alive, columns))
        deleted = self._count_replaced()
        if self.work.target.is_log and self.prepared.counts is not None:
            deleted = self.prepared.counts.deletes  # a message each, whether there was such a row or not
        return CountedEffects(self.prepared.job.at, count, deleted=deleted, samples=samples)

    def _count_replaced(self) -> int:
        """The number of the target's rows if all of them are replaced, otherwise 0."""
        there = self.columns_there
        if not there or not self.prepared.job.replaces_content or self.work.target.is_log:
            return 0
        return int(self.work.target.scan(self.work.spark, self.work.table.target.object, there[:1]).count())

    def _of_merge(self, rows: Batch, count: int) -> CountedEffects:
        job, names = self.prepared.job, self._column_names
        carried = {name: before(n) for n, name in enumerate(names)}
        copies = [named(name).alias(copy) for name, copy in carried.items()]
        self._target().select("*", *copies).createOrReplaceTempView(_TARGET)
        self._frame(rows, "batch").createOrReplaceTempView(_BATCH)
        change = Upsert(
            target=(_TARGET,),
            batch=(_BATCH,),
            columns=names,
            batch_columns=rows.names,
            key=job.key,
            compared=tuple(name for name in job.compared if name in rows.names),
            operation=OP_COLUMN,
            deleted_at=job.at if job.soft_deletes else None,
            is_ordered=job.is_ordered,
            carried=tuple(carried.values()),
        )
        found = self.work.spark.sql(difference(change, "spark"))
        effects = self._of_changes(merged_rows(found, names), job.key)
        if job.is_ordered:
            offered = self._count_offered(count)
            return replace(effects, ignored=offered - effects.inserted - effects.updated - effects.deleted)
        return replace(effects, unchanged=max(0, count - effects.inserted - effects.updated))

    def _count_offered(self, count: int) -> int:
        """The number of the batch's rows, of which ``count`` are no deletions."""
        return count + (self.prepared.counts.deletes if self.prepared.counts is not None else 0)

    def _of_versions(self, rows: Batch, count: int) -> CountedEffects:
        """Counts versions. A new version is compared with its key's current one."""
        batch = self._frame(rows, "batch")
        batch.createOrReplaceTempView(_BATCH)
        job = self.prepared.job
        target = self._empty(job.columns) if job.replace else self._target()
        target.createOrReplaceTempView(_TARGET)
        found, observed = self._version_difference(rows, target)
        names, key = self._column_names, job.key
        joined = (
            found.alias("d")
            .join(target.alias("t"), _equal("t", "d", (*key, VALID_FROM)), "left")
            .join(target.where(named(IS_CURRENT)).dropDuplicates([*key]).alias("c"), _equal("c", "d", key), "left")
        )
        effects = self._of_changes(version_rows(joined, names), (*key, *OWN_COLUMNS))
        effects = replace(effects, deleted=effects.deleted + self._count_replaced())
        if job.is_ordered:
            return replace(effects, ignored=self._count_offered(count) - observed if observed is not None else 0)
        same = batch.alias("b").join(found.alias("d"), _equal("b", "d", key), "left_anti")
        unchanged = same.where(named(OP_COLUMN) == "U").count()
        return replace(effects, unchanged=unchanged)

    def _version_difference(self, rows: Batch, target: DataFrame) -> tuple[DataFrame, int | None]:
        """The rows of :func:`flowctl.sql.scd2.difference`, computed, and how many of the batch are observations; None:
        all."""
        spark, job = self.work.spark, self.prepared.job
        known = self._observed(rows)
        known.createOrReplaceTempView(_OBSERVED)
        arrival, *hashed = spark.sql(scd2.next_arrival((_OBSERVED,), "spark")).collect()[0]
        is_first = arrival == 1 and target.isEmpty()
        tables = Tables((_TARGET,), (_BATCH,), (_OBSERVED,))
        change = versioning(job, tables, rows.names, arrival, "spark", first=is_first)
        change, observed = scd2.after(change, hashed), None
        if not is_first:
            new = computed(spark.sql(observations(change, "spark")), rows, lambda: self._folder("observations"))
            added = self._frame(new, "observations")
            observed = added.count() if job.is_ordered else None
            known.unionByName(added).createOrReplaceTempView(_ALL_OBSERVED)
            change = replace(change, observed=(_ALL_OBSERVED,))
        versions = computed(spark.sql(scd2.difference(change, "spark")), rows, lambda: self._folder("difference"))
        found = self._frame(versions, "difference")
        if not is_first:
            found.createOrReplaceTempView(_DIFFERENCE)
            check_observed(job, change, (_DIFFERENCE,), "spark", lambda query: spark.sql(query).collect())
        return found, observed

    def _observed(self, rows: Batch) -> DataFrame:
        """The sidecar's rows as the batch needs them; empty if the content is replaced or there is no sidecar."""
        work, job = self.work, self.prepared.job
        columns = sidecar_columns(job, rows.names)
        lookup = CommitLookup(work.run.lineage, work.table.id, work.table.target.object)
        there = None if job.replace else work.target.scan_observed(work.spark, lookup)
        return self._empty(columns) if there is None else frame_in_order(there, columns)

    def _target(self) -> DataFrame:
        """The target's rows with all columns that it will have; columns that this commit adds are null."""
        columns, work = self.prepared.job.columns, self.work
        names = {column.name for column in columns}
        there = [column for column in self.columns_there if column.name in names]
        if not there:
            return self._empty(columns)
        return frame_in_order(work.target.scan(work.spark, work.table.target.object, there), columns)

    def _empty(self, columns: Sequence[Column]) -> DataFrame:
        return self.work.spark.createDataFrame([], schema_ddl(columns))

    def _of_changes(self, changed: ChangedRows, left_out: Sequence[str]) -> CountedEffects:
        """``left_out`` are columns for which changes are not counted."""
        if self.sampling.rows:  # used more than once
            changed = replace(changed, frame=buffered(changed.frame, self._folder("changes")))
        counts = count_changes(changed, left_out)
        inserted, updated, deleted = (counts.rows.get(action, 0) for action in ACTIONS)
        return CountedEffects(
            self.prepared.job.at,
            inserted,
            updated,
            deleted,
            columns=counts.columns,
            samples=self._samples(changed),
        )

    def _quarantined(self) -> Mapping[str, int]:
        from pyspark.sql import functions as f

        rejected = self.prepared.rejected
        if rejected is None:
            return {}
        counted = rejected.groupBy(REASON_COLUMN).agg(f.count(f.lit(1)).alias("n")).collect()
        return {row[REASON_COLUMN]: row["n"] for row in sorted(counted)}

    def _samples(self, changed: ChangedRows) -> tuple[SampleRow, ...]:
        key = self.prepared.job.key
        if not self.sampling.rows or not (key or self.sampling.with_values):
            return ()
        masked = {part.column.name for part in self.work.columns.projection if is_mask(part)}
        return tuple(sample_rows(changed, key, masked, self.sampling))

    @property
    def _column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.prepared.job.columns)

    def _frame(self, rows: Batch, name: str) -> DataFrame:
        return frame_of(rows, self.work.spark, lambda: self._folder(name))

    def _folder(self, name: str) -> BufferFolder:
        return self.work.run.buffer.folder(f"{self.work.table.id}-effects-{name}")


def _equal(left: str, right: str, names: Sequence[str]) -> SparkColumn:
    condition = named(names[0], left) == named(names[0], right)
    for name in names[1:]:
        condition = condition & (named(name, left) == named(name, right))
    return condition
