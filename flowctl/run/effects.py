"""What a run would change in one table: the batch as a run prepares it, compared with the target's rows.

The comparison is the engine's, for all targets: by the SELECTs of :mod:`flowctl.sql.difference` and
:mod:`flowctl.sql.scd2`, which every target's commit applies. Nothing is written but the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flowctl.connectors.buffered import buffered, computed, frame_of
from flowctl.connectors.history import Tables, kept_columns, lost_observations, versioning
from flowctl.connectors.target import OP_COLUMN, CommitLookup
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import named
from flowctl.model import types
from flowctl.model.effects import Action, CountedEffects, SampleRow
from flowctl.model.step import Load, Recover
from flowctl.model.table_info import Column
from flowctl.plan.projection import is_mask
from flowctl.run import events
from flowctl.run.attempt import Attempt, RunContext
from flowctl.run.checks import REASON_COLUMN
from flowctl.run.opening import open_target
from flowctl.run.quarantine import as_text
from flowctl.run.table import PreparedBatch, TableWork, begin_work, prepare
from flowctl.sql import scd2
from flowctl.sql.dialects import schema_ddl
from flowctl.sql.difference import ACTION, Upsert, difference
from flowctl.sql.scd2 import Versioning
from flowctl.sql.versioning import IS_CURRENT, OWN_COLUMNS, VALID_FROM
from flowctl.storage.scratch import ScratchFolder

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

ACTIONS: tuple[Action, ...] = ("insert", "update", "delete")
MASKED = "(masked)"
#: Views of the table's own session.
_BATCH, _TARGET, _DIFFERENCE = "_flowctl_batch", "_flowctl_target", "_flowctl_difference"
_OBSERVED, _ALL_OBSERVED = "_flowctl_observed", "_flowctl_all_observed"
#: Of a changed row: what happens to it, and whether the target has it (or its key's current version) now.
_ACTION, _IS_KNOWN, _ROWS = "_flowctl_action", "_flowctl_is_known", "_flowctl_rows"


@dataclass(frozen=True)
class Sampling:
    """``rows`` of each action are shown by their keys; ``with_values`` also by what changes in them."""

    rows: int = 0
    with_values: bool = False


def count_effects(attempt: Attempt, step: Load | Recover, run: RunContext, sampling: Sampling) -> CountedEffects:
    """Raises what a run would raise before the table's commit."""
    with ExitStack() as stack:
        target = open_target(stack, run, run.tables[step.id])
        work = begin_work(stack, attempt, run, step, target)
        return _Comparison(work, prepare(work), sampling).effects()


@dataclass(frozen=True)
class _Changes:
    """``frame`` has one row for each that changes: :data:`_ACTION`, :data:`_IS_KNOWN`, and the values of ``columns``
    before and after, by their places in it."""

    frame: DataFrame
    columns: tuple[str, ...]


@dataclass(frozen=True)
class _Comparison:
    work: TableWork
    prepared: PreparedBatch
    sampling: Sampling

    def effects(self) -> CountedEffects:
        work, job = self.work, self.prepared.job
        rows, count = self._rows
        work.run.listener(events.PhaseEntered(work.table.id, "comparing", count))
        if job.mode == "scd2":
            found = self._of_versions(rows)
        elif job.replaces_content or job.mode == "append" or not self._columns_there:
            found = self._of_new_rows(rows, count)
        else:
            found = self._of_merge(rows, count)
        warnings = (*work.notes, *self.prepared.warnings)
        return replace(found, quarantined=self._quarantined(), warnings=warnings)

    @cached_property
    def _rows(self) -> tuple[Batch, int]:
        """The batch, worked out, and how many rows of it are no deletions."""
        prepared = self.prepared
        if prepared.counts is not None:
            return prepared.rows, prepared.counts.rows
        rows = prepared.rows
        if isinstance(rows, OnEngine):
            place = self._folder("rows")
            rows = OnEngine(buffered(rows.frame, place), place)
        count = rows.rows.num_rows if isinstance(rows, InMemory) else place.rows()
        prepared.job.before_commit()  # confirms what a direct read has read
        return rows, count

    @cached_property
    def _columns_there(self) -> tuple[Column, ...]:
        """The target's columns now; none where there is no table."""
        info = self.work.target.describe([self.work.object])[self.work.object]
        return info.columns if info else ()

    def _of_new_rows(self, rows: Batch, count: int) -> CountedEffects:
        """All rows of the batch come; those that are there go where they are replaced."""
        there, deleted = self._columns_there, 0
        if there and self.prepared.job.replaces_content:
            deleted = self.work.target.scan(self.work.spark, self.work.object, there[:1]).count()
        samples: tuple[SampleRow, ...] = ()
        if self.sampling.rows:
            frame = self._frame(rows, "rows")
            alive = frame.where(named(OP_COLUMN) == "U") if OP_COLUMN in frame.columns else frame
            columns = tuple(name for name in self._column_names if name in frame.columns)
            samples = self._samples(_inserted(alive, columns))
        return self._counted(inserted=count, deleted=deleted, samples=samples)

    def _of_merge(self, rows: Batch, count: int) -> CountedEffects:
        job, names = self.prepared.job, self._column_names
        before = {name: f"_flowctl_before{n}" for n, name in enumerate(names)}
        target = self._target()
        target.select("*", *(named(name).alias(copy) for name, copy in before.items())).createOrReplaceTempView(_TARGET)
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
            carried=tuple(before.values()),
        )
        found = self.work.spark.sql(difference(change, "spark"))
        after = [named(name).alias(f"_flowctl_after{n}") for n, name in enumerate(names)]
        is_known = (named(ACTION) != "insert").alias(_IS_KNOWN)
        changes = _Changes(found.select(named(ACTION).alias(_ACTION), is_known, *before.values(), *after), names)
        effects = self._of_changes(changes, job.key)
        return replace(effects, unchanged=max(0, count - effects.inserted - effects.updated))

    def _of_versions(self, rows: Batch) -> CountedEffects:
        """Rows are versions. A new one is compared with its key's current one."""
        batch = self._frame(rows, "batch")
        batch.createOrReplaceTempView(_BATCH)
        target = self._target()
        target.createOrReplaceTempView(_TARGET)
        found = self._frame(self._version_difference(rows, target), "difference")
        names, key = self._column_names, self.prepared.job.key
        joined = (
            found.alias("d")
            .join(target.alias("t"), _equal("t", "d", (*key, VALID_FROM)), "left")
            .join(target.where(named(IS_CURRENT)).dropDuplicates([*key]).alias("c"), _equal("c", "d", key), "left")
        )
        effects = self._of_changes(_version_changes(joined, names), (*key, *OWN_COLUMNS))
        same = batch.alias("b").join(found.alias("d"), _equal("b", "d", key), "left_anti")
        deleted = 0
        if self.prepared.job.replace:
            deleted = target.count()
        unchanged = same.where(named(OP_COLUMN) == "U").count()
        return replace(effects, unchanged=unchanged, deleted=effects.deleted + deleted)

    def _version_difference(self, rows: Batch, target: DataFrame) -> Batch:
        """:func:`flowctl.sql.scd2.difference`, worked out."""
        spark, job = self.work.spark, self.prepared.job
        known = self._observed(rows)
        known.createOrReplaceTempView(_OBSERVED)
        arrival, *hashed = spark.sql(scd2.next_arrival((_OBSERVED,), "spark")).collect()[0]
        is_first = job.replace or (arrival == 1 and target.isEmpty())
        tables = Tables((_TARGET,), (_BATCH,), (_OBSERVED,))
        change = versioning(job, tables, rows.names, arrival, "postgres", first=is_first)
        change = scd2.after(change, hashed)
        if not is_first:
            new = computed(spark.sql(scd2.observations(change, "spark")), rows, lambda: self._folder("observations"))
            known.unionByName(self._frame(new, "observations")).createOrReplaceTempView(_ALL_OBSERVED)
            change = replace(change, observed=(_ALL_OBSERVED,))
        found = computed(spark.sql(scd2.difference(change, "spark")), rows, lambda: self._folder("difference"))
        if not is_first:
            self._refuse_lost(found, change)
        return found

    def _refuse_lost(self, found: Batch, change: Versioning) -> None:
        self._frame(found, "difference").createOrReplaceTempView(_DIFFERENCE)
        lost = self.work.spark.sql(scd2.unobserved(change, (_DIFFERENCE,), "spark")).collect()
        if lost[0][0]:
            raise lost_observations(self.prepared.job)

    def _observed(self, rows: Batch) -> DataFrame:
        """The sidecar's rows as the batch needs them; none where they do not count."""
        work, job = self.work, self.prepared.job
        columns = scd2.observed_columns(job.columns, job.key, kept_columns(job, rows.names))
        lookup = CommitLookup(work.run.lineage, work.table.id, work.object)
        there = None if job.replace else work.target.scan_observed(work.spark, lookup)
        return self._empty(columns) if there is None else _as_columns(there, columns)

    def _target(self) -> DataFrame:
        """Its rows with all columns that it will have: those that it gets with this commit are null."""
        columns, work = self.prepared.job.columns, self.work
        names = {column.name for column in columns}
        there = [column for column in self._columns_there if column.name in names]
        return _as_columns(work.target.scan(work.spark, work.object, there), columns) if there else self._empty(columns)

    def _empty(self, columns: Sequence[Column]) -> DataFrame:
        return self.work.spark.createDataFrame([], schema_ddl(columns))

    def _of_changes(self, changes: _Changes, not_counted: Sequence[str]) -> CountedEffects:
        """``not_counted`` are columns that are not told among those that change."""
        from pyspark.sql import functions as f

        frame = changes.frame
        if self.sampling.rows:  # used more than once
            frame = buffered(frame, self._folder("changes"))
        told = [n for n, name in enumerate(changes.columns) if name not in not_counted]
        differs = [~f.col(f"_flowctl_before{n}").eqNullSafe(f.col(f"_flowctl_after{n}")) for n in told]
        is_counted = f.col(_IS_KNOWN) & (f.col(_ACTION) != "delete")
        counted = [f.count_if(is_counted & one).alias(f"n{n}") for n, one in zip(told, differs, strict=True)]
        found = frame.groupBy(_ACTION).agg(f.count(f.lit(1)).alias(_ROWS), *counted).collect()
        numbers = {row[_ACTION]: row[_ROWS] for row in found}
        columns = {changes.columns[n]: sum(row[f"n{n}"] for row in found) for n in told}
        return self._counted(
            inserted=numbers.get("insert", 0),
            updated=numbers.get("update", 0),
            deleted=numbers.get("delete", 0),
            columns={name: number for name, number in columns.items() if number},
            samples=self._samples(replace(changes, frame=frame)),
        )

    def _counted(self, **found: Any) -> CountedEffects:
        return CountedEffects(at=self.prepared.job.at, **found)

    def _quarantined(self) -> Mapping[str, int]:
        from pyspark.sql import functions as f

        rejected = self.prepared.rejected
        if rejected is None:
            return {}
        counted = rejected.groupBy(REASON_COLUMN).agg(f.count(f.lit(1)).alias(_ROWS)).collect()
        return {row[REASON_COLUMN]: row[_ROWS] for row in sorted(counted)}

    def _samples(self, changes: _Changes) -> tuple[SampleRow, ...]:
        is_shown = bool(self.prepared.job.key) or self.sampling.with_values
        return tuple(self._sampled(changes)) if self.sampling.rows and is_shown else ()

    def _sampled(self, changes: _Changes) -> Iterator[SampleRow]:
        columns, key = changes.columns, self.prepared.job.key
        masked = {part.column.name for part in self.work.columns.projection if is_mask(part)}
        identity = [f"_flowctl_after{columns.index(name)}" for name in key]
        texts = [as_text(changes.frame, name) for name in changes.frame.columns if name not in (_ACTION, _IS_KNOWN)]
        for action in ACTIONS:
            chosen = changes.frame.where(named(_ACTION) == action)
            chosen = chosen.orderBy(*identity) if identity else chosen
            for row in chosen.select(_IS_KNOWN, *texts).limit(self.sampling.rows).collect():
                yield self._sample(action, row, columns, masked)

    def _sample(self, action: Action, row: Any, columns: Sequence[str], masked: set[str]) -> SampleRow:
        key = self.prepared.job.key
        before, after = (
            {name: row[f"_flowctl_{when}{n}"] for n, name in enumerate(columns)} for when in ("before", "after")
        )
        shown = {name: MASKED if name in masked else after[name] for name in key}
        if not self.sampling.with_values:
            return SampleRow(action, shown)
        is_known = row[_IS_KNOWN]
        told = [name for name in columns if name not in key and (action != "update" or before[name] != after[name])]
        hidden = {name: MASKED for name in told if name in masked}
        return SampleRow(
            action,
            shown,
            before={name: before[name] for name in told if is_known} | (hidden if is_known else {}),
            after={name: after[name] for name in told} | hidden if action != "delete" else {},
        )

    @property
    def _column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.prepared.job.columns)

    def _frame(self, rows: Batch, name: str) -> DataFrame:
        return frame_of(rows, self.work.spark, lambda: self._folder(name))

    def _folder(self, name: str) -> ScratchFolder:
        return self.work.run.scratch(self.work.table.id).folder(f"{self.work.table.id}-effects-{name}")


def _inserted(frame: DataFrame, columns: tuple[str, ...]) -> _Changes:
    from pyspark.sql import functions as f

    before = [f.lit(None).cast("string").alias(f"_flowctl_before{n}") for n in range(len(columns))]
    after = [named(name).alias(f"_flowctl_after{n}") for n, name in enumerate(columns)]
    values = (f.lit("insert").alias(_ACTION), f.lit(False).alias(_IS_KNOWN), *before, *after)
    return _Changes(frame.select(*values), columns)


def _version_changes(joined: DataFrame, names: tuple[str, ...]) -> _Changes:
    """``joined`` are versions ``d`` that change, with the stored version ``t`` that each is, and with its key's current
    one ``c``."""
    from pyspark.sql import functions as f

    is_stored = named(VALID_FROM, "t").isNotNull()
    action = f.when(named(scd2.CHANGE_COLUMN, "d") == "delete", "delete")
    action = action.otherwise(f.when(is_stored, "update").otherwise("insert"))
    before = [
        f.when(is_stored, named(name, "t")).otherwise(named(name, "c")).alias(f"_flowctl_before{n}")
        for n, name in enumerate(names)
    ]
    after = [named(name, "d").alias(f"_flowctl_after{n}") for n, name in enumerate(names)]
    is_known = (is_stored | named(VALID_FROM, "c").isNotNull()).alias(_IS_KNOWN)
    return _Changes(joined.select(action.alias(_ACTION), is_known, *before, *after), names)


def _as_columns(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Exactly ``columns``, with their types; those that ``frame`` lacks are null."""
    from pyspark.sql import functions as f

    there = set(frame.columns)
    return frame.select(
        *(
            (named(column.name) if column.name in there else f.lit(None))
            .cast(types.spark_ddl(column.type))
            .alias(column.name)
            for column in columns
        )
    )


def _equal(left: str, right: str, names: Sequence[str]) -> SparkColumn:
    condition = named(names[0], left) == named(names[0], right)
    for name in names[1:]:
        condition = condition & (named(name, left) == named(name, right))
    return condition
