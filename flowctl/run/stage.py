"""The staged path: the batch is computed once, into the buffer or into memory, checked, and only then committed.

This takes one pass over the source; all checks (null and duplicate keys, expectations, guards) use counts of the
result, so the source is never read twice.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, assert_never

from flowctl import text
from flowctl.connectors.buffered import batch_like, buffered, computed, frame_of
from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.source import Snapshot
from flowctl.connectors.target import OP_COLUMN, Target, WriteJob
from flowctl.engine import cost
from flowctl.engine.batch import Batch, InMemory, OnEngine
from flowctl.engine.spark_types import columns_of, named
from flowctl.errors import TableError
from flowctl.expect.expectation import BatchColumns, BatchExpectation, Expectation, GroupExpectation
from flowctl.model.commit import Intent
from flowctl.model.position import VersionPosition
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Recover
from flowctl.run import batch, checks, counting, deletes, letters
from flowctl.run.appending import IntervalRead
from flowctl.run.checks import BatchCounts
from flowctl.run.quarantine import QUARANTINE, Place, count_kept
from flowctl.run.streaming.shaping import is_changes, shaped_changes, truncated_at
from flowctl.run.truncation import apply_to_rows, apply_to_versions, without_truncates
from flowctl.spec.spec import DetectFlag, DetectMissingKeys, ReportedDeletes, TableSpec
from flowctl.storage.buffer import Buffer, BufferFolder

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

#: Number of sample keys in an error.
SAMPLES = 5
#: Column of the counting query: whether a row belongs to the batch.
_COUNTED = "_flowctl_counted"
#: Column of the query for duplicates: how many rows a key has, and how many keys there are.
_ROWS = "_flowctl_rows"


@dataclass(frozen=True)
class StagedBatch:
    """``batch`` is for the target; ``rejected`` are the rows for quarantine, None if there are none."""

    batch: Batch
    rejected: DataFrame | None
    counts: BatchCounts
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Staging:
    """The input for staging one table. ``read`` is from ``snapshot``; ``job`` is for what becomes of it."""

    spark: SparkSession
    snapshot: Snapshot
    read: IntervalRead
    step: Load | Recover
    columns: Columns
    table: TableSpec
    intent: Intent
    target: Target
    buffer: Buffer
    job: WriteJob


def stage(work: Staging) -> StagedBatch:
    """Computes, counts and checks the batch; raises :class:`TableError` if the table must stop before its commit."""
    staged = _staged(work)
    counts = None if _needs_engine(work) else _counted(work, staged)
    if counts is None or counts.null_keys:  # the error about null keys shows samples
        return _checked_on_engine(work, staged)
    counts = replace(counts, target_rows=_target_rows(work, bool(counts.deletes)))
    if deletes.may_repeat(work) and checks.deletes_too_many(work.table, counts):
        return _checked_on_engine(work, staged)
    return _decided(work, _without_reason(work, staged), None, counts)


def _staged(work: Staging) -> Batch:
    """The batch with :data:`REASON_COLUMN`, computed once."""
    rows = _shaped(work, frame_of(work.read.rows, work.spark, lambda: _folder(work, "read")))
    truncates = work.read.truncates
    is_truncated = (truncates is not None and truncates.of_batch) or truncated_at(work) is not None
    like = OnEngine(rows) if is_truncated else work.read.rows  # it may delete any number of rows
    return computed(rows, like, lambda: _folder(work, "rows"))


def _needs_engine(work: Staging) -> bool:
    """Whether the checks need more than counts of rows, deletes and null keys."""
    return bool(
        work.table.expect
        or work.table.keeps_bad_rows
        or not _is_keyed(work)
        or _compares_keys(work)
        or work.table.dedupe == "fail"
    )


def _compares_keys(work: Staging) -> bool:
    """Whether to look for keys that the source no longer has."""
    is_wanted = work.step.check_deletes and isinstance(work.table.deletes, DetectMissingKeys | ReportedDeletes)
    return is_wanted and work.step.table.seen.exists


def _checked_on_engine(work: Staging, staged: Batch) -> StagedBatch:
    rows = staged_rows = frame_of(staged, work.spark, lambda: _folder(work, "rows"))
    if _compares_keys(work):
        _refuse_null_keys(work, rows, _null_keys(work, rows))
        rows = _with_missing_keys(work, rows)
    if _is_keyed(work) and work.table.dedupe == "fail":
        _refuse_duplicates(work, rows.where(named(REASON_COLUMN).isNull() & ~_null_key(work)))
    counts = _count(work, rows)
    _refuse_null_keys(work, rows, counts.null_keys)
    if deletes.may_repeat(work) and checks.deletes_too_many(work.table, counts):
        counts = replace(counts, deleted=deletes.count_live(work, rows, counts))
    rejected = _rejected(work, rows) if counts.quarantined else None
    if rows is staged_rows and rejected is None:
        return _decided(work, _without_reason(work, staged), None, counts)
    good = rows.where(named(REASON_COLUMN).isNull()).drop(*_own_names(work))
    folder = staged.folder if isinstance(staged, OnEngine) and rows is staged_rows else None
    more = counts.rows + counts.deletes - (staged.rows.num_rows if isinstance(staged, InMemory) else 0)
    is_small = isinstance(staged, InMemory) and more <= cost.IN_MEMORY_EXTRA_ROWS
    return _decided(work, batch_like(staged, good) if is_small else OnEngine(good, folder), rejected, counts)


def _rejected(work: Staging, rows: DataFrame) -> DataFrame:
    """The rows for quarantine. If the time of a history's versions is that of the run, a row that is read again would
    be another row by it, and be stored again."""
    rejected = rows.where(named(REASON_COLUMN).isNotNull())
    has_own_time = work.job.is_dated or work.table.valid_from not in (None, "now")
    return rejected if work.table.mode != "scd2" or has_own_time else rejected.drop("valid_from")


def _decided(work: Staging, rows: Batch, rejected: DataFrame | None, counts: BatchCounts) -> StagedBatch:
    if work.read.landed is not None and work.table.dead_letters is not None:
        rejected, dead = letters.all_rejected(
            work.table, rejected, counts.quarantined, work.read.landed, work.spark, lambda: _folder(work, "letters")
        )
        counts = replace(counts, quarantined=dead)
    elif rejected is not None and checks.quarantines_too_many(work.table, counts):
        place = Place(work.target, QUARANTINE.of(work.table.target.object), QUARANTINE)
        counts = replace(counts, kept=count_kept(work.spark, place, work.job, rejected))
    now, step = dt.datetime.now(dt.UTC), work.step
    warnings = checks.decide(work.table, counts, now, replaces=step.write_full, continues=step.continues)
    return StagedBatch(rows, rejected, counts, warnings)


def _own_names(work: Staging) -> list[str]:
    """Of columns that the batch has only until the checks have decided."""
    return list(dict.fromkeys((REASON_COLUMN, *(column.name for column in letters.carried(work.table)))))


def _without_reason(work: Staging, staged: Batch) -> Batch:
    match staged:
        case InMemory(rows):
            return InMemory(rows.drop_columns(_own_names(work)))
        case OnEngine(frame, folder):
            return OnEngine(frame.drop(*_own_names(work)), folder)
        case _:
            assert_never(staged)


def _shaped(work: Staging, rows: DataFrame) -> DataFrame:
    columns, table = work.columns, work.table
    if is_changes(work.intent.interval) and _is_keyed(work):
        return shaped_changes(rows, work)
    carried = [column.name for column in letters.carried(table)]
    if table.mode not in ("merge", "scd2"):
        rows = batch.projected(rows, columns.projection, columns.source, list(map(named, carried)))
        return checks.with_reason(rows, table.expect)
    rows, truncates = without_truncates(rows, work.read.truncates), work.read.truncates
    frame = batch.keyed(rows, columns, table, work.snapshot, work.intent.at, carried)
    frame = checks.with_reason(frame, table.expect, deletions_by=_identity(work) if _reports_deletes(work) else ())
    if table.dedupe == "fail":
        is_by_version = isinstance(work.intent.interval.lower, VersionPosition)  # the first run reads one version
        return batch.without_order(batch.newest_version_per_key(frame, table) if is_by_version else frame)
    frame = batch.in_source_order(frame, table)
    if truncates is not None and table.mode == "scd2":
        frame = apply_to_versions(frame, truncates, work)
    frame = batch.one_per_key(frame, table)
    return batch.without_order(apply_to_rows(frame, truncates, work) if truncates and table.mode == "merge" else frame)


def _reports_deletes(work: Staging) -> bool:
    """Whether the batch's deletions are those that its source reports, in whatever way."""
    deletes = work.table.deletes
    is_by_version = isinstance(deletes, DetectMissingKeys) and isinstance(work.intent.interval.lower, VersionPosition)
    return isinstance(deletes, ReportedDeletes | DetectFlag) or is_by_version


def _written(work: Staging, name: str, frame: DataFrame) -> DataFrame:
    return buffered(frame, _folder(work, name))


def _folder(work: Staging, name: str) -> BufferFolder:
    return work.buffer.folder(f"{work.step.id}-{work.intent.seq}-{name}")


def _is_keyed(work: Staging) -> bool:
    return work.table.mode in ("merge", "scd2")


def _identity(work: Staging) -> list[str]:
    """The columns that identify a row and must not be null."""
    if not _is_keyed(work):
        return []
    return batch.row_identity(work.table)


def _null_key(work: Staging) -> SparkColumn:
    from pyspark.sql import functions as f

    any_null = f.lit(False)
    for name in _identity(work):
        any_null = any_null | named(name).isNull()
    return named(REASON_COLUMN).isNull() & any_null


def _null_keys(work: Staging, rows: DataFrame) -> int:
    """The number of null keys; counted separately if rows are compared by key before the batch is complete."""
    from pyspark.sql import functions as f

    return int(rows.agg(f.count_if(_null_key(work))).collect()[0][0])


def _refuse_null_keys(work: Staging, rows: DataFrame, count: int) -> None:
    if count:
        sample = _sample(rows.where(_null_key(work)), work.table.key)
        raise TableError(
            f"{text.counted(count, 'row')} with a null in {' or '.join(_identity(work))} (key {sample})",
            hint="Fix them in the source, or send them to quarantine with expect: {column, not_null, on_fail}",
            mark=work.table.mark_of("key"),
        )


def _refuse_duplicates(work: Staging, rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    identity = [named(name) for name in _identity(work)]
    grouped = rows.groupBy(*identity).agg(f.count(f.lit(1)).alias(_ROWS)).where(f"{_ROWS} > 1")
    counted = grouped.agg(f.count(f.lit(1)).alias(_ROWS)).first()
    if counted is not None and counted[_ROWS]:
        raise TableError(
            f"dedupe: fail: {text.counted(counted[_ROWS], 'key')} with more than one row"
            f"{_at_one_time(work)} (key {_sample(grouped, work.table.key)})",
            hint="Fix the source, choose a key that is unique, or set dedupe: latest",
            mark=work.table.mark_of("dedupe"),
        )


def _at_one_time(work: Staging) -> str:
    if work.table.mode != "scd2":
        return ""
    event = work.table.valid_from
    return ", and no column has their times (valid_from: now)" if event in (None, "now") else f" of the same {event}"


def _sample(rows: DataFrame, key: Sequence[str]) -> str:
    """Up to five keys, as text; keys are the only row values that errors may show."""
    found = rows.select(*[named(name).cast("string").alias(name) for name in key]).limit(SAMPLES)
    return "; ".join(", ".join(f"{name}={row[name]}" for name in key) for row in found.toLocalIterator())


def _with_missing_keys(work: Staging, rows: DataFrame) -> DataFrame:
    """Adds ``D`` rows for keys that the source no longer has, and the rows that are missing in the target."""
    table, key = work.table, work.table.key
    live = deletes.live_rows(work)
    if live is None:
        return rows
    live = _written(work, "live", live.select(*[named(name) for name in key]))
    source_keys = _written(work, "keys", deletes.source_keys(work))
    gone = deletes.as_batch(
        deletes.gone(source_keys, live, key), rows, work.intent.at if table.mode == "scd2" else None
    )
    frame = rows.unionByName(_written(work, "gone", gone))
    if work.intent.interval.lower is None:
        return frame
    missed = _written(work, "missed", deletes.missed(source_keys, live, rows, key))
    if missed.isEmpty():
        return frame
    everything = _shaped(work, work.snapshot.frame(deletes.request_all(work, work.columns.source)))
    return frame.unionByName(_written(work, "again", deletes.only_keys(everything, missed, key)))


def _count(work: Staging, rows: DataFrame) -> BatchCounts:
    """All counts in one aggregate over the segments; each check on groups needs a separate query."""
    from pyspark.sql import functions as f

    expect, columns = work.table.expect, _batch_columns(work, rows)
    row_checks = checks.row_checks(expect, "fail", "warn")
    measures = [check for check in expect if isinstance(check, BatchExpectation)]
    bounded = work.table.key if _is_keyed(work) else ()
    good = named(REASON_COLUMN).isNull()
    deleted = (named(OP_COLUMN) == "D") if OP_COLUMN in rows.columns else f.lit(False)
    batch_rows = rows.withColumn(_COUNTED, good & ~deleted) if measures else rows
    counts = [
        f.count_if(good & ~deleted).alias("rows"),
        f.count_if(~good).alias("quarantined"),
        f.count_if(good & deleted).alias("deletes"),
        *[f.count_if(good & ~deleted & f.expr(c.violation())).alias(f"check{n}") for n, c in enumerate(row_checks)],
        *[f.expr(_measured(c.measure(columns))).alias(f"measure{n}") for n, c in enumerate(measures)],
        f.count_if(_null_key(work)).alias("null_keys"),
        *[f.min(f.when(good, named(c))).cast("string").alias(f"low{n}") for n, c in enumerate(bounded)],
        *[f.max(f.when(good, named(c))).cast("string").alias(f"high{n}") for n, c in enumerate(bounded)],
    ]
    (row,) = batch_rows.agg(*counts).collect()
    groups = [check for check in expect if isinstance(check, GroupExpectation)]
    found: dict[Expectation, Any] = {
        **{check: row[f"check{n}"] for n, check in enumerate(row_checks)},
        **{check: row[f"measure{n}"] for n, check in enumerate(measures)},
        **{check: checks.count_in_bad_groups(rows.where(good & ~deleted), check) for check in groups},
    }
    return BatchCounts(
        rows=row["rows"],
        quarantined=row["quarantined"],
        deletes=row["deletes"],
        found=found,
        columns=columns,
        target_rows=_target_rows(work, bool(row["deletes"])),
        null_keys=row["null_keys"],
        key_bounds={c: (row[f"low{n}"], row[f"high{n}"]) for n, c in enumerate(bounded) if row[f"low{n}"] is not None}
        if bounded
        else None,
    )


def _measured(measure: str) -> str:
    return f"CAST({measure} FILTER (WHERE {_COUNTED}) AS STRING)"


def _batch_columns(work: Staging, rows: DataFrame) -> BatchColumns:
    """The batch's columns; :class:`TableError` if a check cannot handle their types, which the plan may not know."""
    kinds = {column.name: column.type for column in columns_of(rows.schema)}
    columns = BatchColumns(kinds, work.table.cursor.zone if work.table.cursor else None)
    for check in work.table.expect:
        if refused := check.refuse(columns):
            what, hint = refused
            raise TableError(what, hint=hint, mark=check.mark)
    return columns


def _counted(work: Staging, staged: Batch) -> BatchCounts | None:
    """As :func:`_count`, but without an engine, for a batch that needs only counts of rows and keys; None if the engine
    is faster."""
    wanted = [name for name in (*_identity(work), OP_COLUMN) if name in staged.names]
    columns = [column for column in work.columns.target if column.name in work.table.key]
    match staged:
        case InMemory(rows):
            batches = iter(rows.select(wanted).to_batches())
        case OnEngine(_, folder):
            if folder is None or folder.rows() > cost.COUNTED_ROWS:
                return None
            batches = folder.batches(wanted)
        case _:
            assert_never(staged)
    return counting.count_rows(batches, _identity(work), columns)


def _target_rows(work: Staging, deleting: bool) -> int | None:
    """The number of the target's live rows; None if no guard needs it."""
    shrinks = work.step.write_full and work.table.guard.max_shrink is not None
    if not (deleting or shrinks) or work.target.is_log:
        return None
    live = deletes.live_rows(work)
    return None if live is None else int(live.count())
