"""Expectations and guards on a batch: as Spark expressions while reading, or on counts of the staged batch.

``fail`` and guards stop the table before its commit; ``warn`` is counted and reported.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.target import OP_COLUMN
from flowctl.engine.spark_types import named
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.expect.expectation import BatchColumns, Expectation, GroupExpectation, OnFail, RowExpectation
from flowctl.plan.checks import DELETES_ALL, max_deleted
from flowctl.run.failure import CHECK_PREFIX
from flowctl.spec.spec import DetectMissingKeys, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: So many messages, at least, are taken for the whole of which a fraction may be dead letters.
FEWEST_MESSAGES = 100
#: Column of a counting query: the number of rows that share a value.
_GROUP_ROWS = "_flowctl_rows"
FIX_ROWS = "Fix the rows in the source, or set on_fail: quarantine or warn"


@dataclass(frozen=True)
class BatchCounts:
    """Counts of one staged batch. ``found`` has the measurement of each expectation that is decided here, ``columns``
    the columns that they need. ``target_rows`` is the number of the target's live rows before the commit, None if no
    guard needs it; ``deleted`` is how many of these the batch deletes, None for all of its ``deletes``. ``kept`` is
    how many of the ``quarantined`` rows are in quarantine already. ``null_keys`` counts rows with a null in their key;
    ``key_bounds`` is for :class:`flowctl.connectors.target.WriteJob`."""

    rows: int
    quarantined: int
    deletes: int
    found: Mapping[Expectation, Any] = field(default_factory=dict)
    columns: BatchColumns = BatchColumns({})
    target_rows: int | None = None
    deleted: int | None = None
    kept: int = 0
    null_keys: int = 0
    key_bounds: Mapping[str, tuple[str, str]] | None = None


def enforced(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The same rows, for the direct path: the job fails before its commit at the first row that violates a check."""
    from pyspark.sql import functions as f

    for check in row_checks(expectations, "fail"):
        message = f"{CHECK_PREFIX}{check.name} | {FIX_ROWS}"
        first = frame.columns[0]
        guarded = f.when(f.expr(check.violation()), f.raise_error(f.lit(message)).cast(frame.schema[first].dataType))
        frame = frame.withColumn(first, guarded.otherwise(named(first)))
    return frame


def with_reason(
    frame: DataFrame, expectations: Sequence[Expectation], *, deletions_by: Sequence[str] = ()
) -> DataFrame:
    """Adds :data:`REASON_COLUMN`: the names of the quarantine checks that a row violates, or null. A deletion that has
    the columns ``deletions_by`` violates none, because its other columns may be empty or anonymized (no columns: it is
    checked as any row). A row that has a reason keeps it."""
    from pyspark.sql import functions as f

    before = named(REASON_COLUMN) if REASON_COLUMN in frame.columns else f.lit(None).cast("string")
    rejecting = row_checks(expectations, "quarantine")
    reasons = [f.when(f.expr(check.violation()), f.lit(check.name)) for check in rejecting]
    if not reasons:
        return frame.withColumn(REASON_COLUMN, before)
    joined = f.concat_ws("; ", *reasons)
    is_rejected = joined != ""
    if deletions_by:
        is_incomplete = reduce(or_, [named(name).isNull() for name in deletions_by])
        is_rejected = is_rejected & ((named(OP_COLUMN) != "D") | is_incomplete)
    return frame.withColumn(REASON_COLUMN, f.coalesce(before, f.when(is_rejected, joined)))


def row_checks(expectations: Sequence[Expectation], *on_fail: OnFail) -> list[RowExpectation]:
    return [check for check in expectations if isinstance(check, RowExpectation) and check.on_fail in on_fail]


def count_in_bad_groups(rows: DataFrame, check: GroupExpectation) -> int:
    """The number of rows in groups (of equal non-null values) that violate the check."""
    from pyspark.sql import functions as f

    column = named(check.column)
    grouped = rows.where(column.isNotNull()).groupBy(column).agg(f.count(f.lit(1)).alias(_GROUP_ROWS))
    bad = grouped.where(check.violation(_GROUP_ROWS))
    row = bad.agg(f.coalesce(f.sum(_GROUP_ROWS), f.lit(0)).alias("n")).first()
    return int(row["n"]) if row is not None else 0


def decide(
    table: TableSpec, counts: BatchCounts, now: dt.datetime, *, replaces: bool, continues: bool = False
) -> tuple[str, ...]:
    """Warnings to report; raises if the table must stop before its commit. ``now`` is aware, in UTC. ``continues``: the
    run commits more after this."""
    warnings: list[str] = []
    for check in table.expect:
        if check.on_fail == "quarantine" or (continues and check.of_newest):
            continue
        problem = check.problem(counts.found[check], counts.columns, now)
        if problem is None:
            continue
        if check.on_fail == "fail":
            raise TableError(f"expectation {check.name} failed: {problem}", hint=FIX_ROWS, mark=check.mark)
        warnings.append(f"expectation {check.name}: {problem}")
    _guard(table, counts, replaces)
    return tuple(warnings)


def _guard(table: TableSpec, counts: BatchCounts, replaces: bool) -> None:
    guard, rows, before = table.guard, counts.rows, counts.target_rows
    if replaces and guard.allow_empty is False and rows == 0:
        raise empty_source(table, counts.quarantined)
    if replaces and guard.max_shrink is not None and before and (before - rows) / before > guard.max_shrink:
        what, hint = (
            f"{before:,} rows would become {rows:,}",
            "Check the source, or raise guard.max_shrink for this run",
        )
        raise _refused(table, "max_shrink", guard.max_shrink, what, hint)
    if deletes_too_many(table, counts):
        what = f"{_deleted(counts):,} of {before:,} rows would be deleted"
        hint = "Look at the source; if the deletions are right, raise guard.max_deleted"
        hint = DELETES_ALL if _is_whole(table, counts) else hint
        raise _refused(table, "max_deleted", max_deleted(table), what, hint)
    if quarantines_too_many(table, counts):
        new, kept = counts.quarantined - counts.kept, counts.kept
        what = f"{new:,} of {rows + new:,} rows would be quarantined"
        what += f", not counting {kept:,} that {'is' if kept == 1 else 'are'} there already" if kept else ""
        hint = "Look at what the source sends, or raise guard.max_quarantined"
        raise _refused(table, "max_quarantined", guard.max_quarantined, what, hint)


def refuse_dead_letters(table: TableSpec, dead: int, messages: int, example: Callable[[], str]) -> None:
    """Stops the table if too many of a commit's messages are dead letters."""
    most = table.dead_letters.max_fraction if table.dead_letters is not None else None
    if most is not None and dead > most * max(messages, FEWEST_MESSAGES):
        raise StoppedByPolicy(
            f"dead_letters.max_fraction {most * 100:g}%: {dead:,} of {messages:,} messages would be dead letters ("
            f"{example()})",
            hint="Look at what is sent, or raise dead_letters.max_fraction",
            mark=table.mark_of("dead_letters.max_fraction"),
        )


def empty_source(table: TableSpec, quarantined: int = 0) -> StoppedByPolicy:
    """``quarantined``: the source has this many rows, none of which passes the checks."""
    why, look = "the source has no rows", "Check the source"
    if quarantined:
        why = f"all of its rows ({quarantined:,}) would be quarantined"
        look = "Look at what the source sends and at the checks with on_fail: quarantine"
    hint = f"{look}; set guard.allow_empty: true if the target may be empty"
    return _refused(table, "allow_empty", None, f"{why}, which would leave the target empty", hint)


def _refused(table: TableSpec, guard: str, limit: float | None, what: str, hint: str) -> StoppedByPolicy:
    of = "" if limit is None else f" {limit * 100:g}%"
    return StoppedByPolicy(f"guard.{guard}{of}: {what}", hint=hint, mark=table.mark_of(f"guard.{guard}"))


def deletes_too_many(table: TableSpec, counts: BatchCounts) -> bool:
    """Whether the batch's deletes are more than ``guard.max_deleted`` allows."""
    most = max_deleted(table)
    if table.deletes is None or most is None or not _deleted(counts) or not counts.target_rows:
        return False
    share = _deleted(counts) / counts.target_rows
    return share > most or (_is_whole(table, counts) and not table.guard.allows_deleting_all)


def quarantines_too_many(table: TableSpec, counts: BatchCounts) -> bool:
    """Whether more of the batch's rows go to quarantine than ``guard.max_quarantined`` allows. A row that is there
    already is read again, and counts neither as a violation nor as a row."""
    most, new = table.guard.max_quarantined, counts.quarantined - counts.kept
    return most is not None and new > 0 and new / (counts.rows + new) > most


def _deleted(counts: BatchCounts) -> int:
    return counts.deletes if counts.deleted is None else counts.deleted


def _is_whole(table: TableSpec, counts: BatchCounts) -> bool:
    is_detected = isinstance(table.deletes, DetectMissingKeys)
    return is_detected and _deleted(counts) >= (counts.target_rows or 0)
