"""Expectations and guards on rows: as Spark expressions while reading, as counts on the staged batch.

A row check is violated only by a row that is known to break it: null passes everything but ``not_null`` (SQL's own
rule for CHECK). ``fail`` and guards stop the table before its commit; ``warn`` is counted and reported.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.engine.spark_types import named
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.plan.checks import DEFAULT_MAX_DELETED, DELETES_ALL
from flowctl.run.failure import CHECK_PREFIX
from flowctl.spec.spec import DetectMissingKeys, Expectation, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Staged column: why the row goes to quarantine; null for rows of the batch.
REASON_COLUMN = "_flowctl_reason"
ROW_KINDS = ("not_null", "between", "in", "matches", "sql")
FIX_ROWS = "Fix the rows in the source, or set on_fail: quarantine or warn"


@dataclass(frozen=True)
class Observed:
    """Counts over one staged batch. ``violations`` is by expectation name, for row checks and ``unique``;
    ``newest`` is the maximum of each freshness column; ``target_rows`` is the target's live rows before the commit,
    None when no guard needs it; ``deleted`` is how many of those the batch's deletes take, None for as many as it has.
    ``null_keys`` counts rows that lack a part of their key, ``key_bounds`` is what
    :class:`flowctl.connectors.base.WriteJob` takes."""

    rows: int
    quarantined: int
    deletes: int
    violations: Mapping[str, int]
    newest: Mapping[str, dt.datetime | None]
    target_rows: int | None = None
    deleted: int | None = None
    null_keys: int = 0
    key_bounds: Mapping[str, tuple[str, str]] | None = None


def violation(expectation: Expectation) -> Column:
    """True for rows that break this row check, never null."""
    from pyspark.sql import functions as f

    holds: Column
    match expectation.kind:
        case "not_null":
            return named(str(expectation.column)).isNull()
        case "between":
            low, high = expectation.argument
            column = named(str(expectation.column))
            holds = (column >= f.lit(low)) & (column <= f.lit(high))
        case "in":
            holds = named(str(expectation.column)).isin(list(expectation.argument))
        case "matches":
            holds = named(str(expectation.column)).rlike(expectation.argument)
        case "sql":
            holds = f.expr(str(expectation.argument))
        case kind:
            raise ValueError(f"{kind} is not a row check")
    return ~f.coalesce(holds, f.lit(True))


def enforced(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The same rows, on a direct path: the job fails before its commit at the first row that breaks a check."""
    from pyspark.sql import functions as f

    for expectation in row_checks(expectations, "fail"):
        message = f"{CHECK_PREFIX}{expectation.name} | {FIX_ROWS}"
        first = frame.columns[0]
        guarded = f.when(violation(expectation), f.raise_error(f.lit(message)).cast(frame.schema[first].dataType))
        frame = frame.withColumn(first, guarded.otherwise(named(first)))
    return frame


def with_reason(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Adds :data:`REASON_COLUMN`: the names of the quarantine checks a row breaks, or null."""
    from pyspark.sql import functions as f

    reasons = [f.when(violation(check), f.lit(check.name)) for check in row_checks(expectations, "quarantine")]
    if not reasons:
        return frame.withColumn(REASON_COLUMN, f.lit(None).cast("string"))
    joined = f.concat_ws("; ", *reasons)
    return frame.withColumn(REASON_COLUMN, f.when(joined != "", joined))


def row_checks(expectations: Sequence[Expectation], on_fail: str) -> list[Expectation]:
    return [check for check in expectations if check.kind in ROW_KINDS and check.on_fail == on_fail]


def decide(table: TableSpec, observed: Observed, now: dt.datetime, replaces: bool) -> tuple[str, ...]:
    """Warnings to report; raises when the table must stop before its commit. ``now`` is aware UTC."""
    warnings: list[str] = []
    for check in table.expect:
        problem = _broken(check, observed, now)
        if problem is None or check.on_fail == "quarantine":
            continue
        if check.on_fail == "fail":
            raise TableError(f"expectation {check.name} failed: {problem}", hint=FIX_ROWS, mark=check.mark)
        warnings.append(f"expectation {check.name}: {problem}")
    _guard_empty(table, observed, replaces)
    _guard_shrink(table, observed, replaces)
    _guard_deleted(table, observed)
    _guard_quarantined(table, observed)
    return tuple(warnings)


def _broken(check: Expectation, observed: Observed, now: dt.datetime) -> str | None:
    """What is wrong, in words; None when the check holds."""
    match check.kind:
        case "rows":
            bounds: Mapping[str, Any] = check.argument
            low, high = bounds.get("min"), bounds.get("max")
            if low is not None and observed.rows < low:
                return f"{observed.rows:,} rows, at least {low:,} expected"
            if high is not None and observed.rows > high:
                return f"{observed.rows:,} rows, at most {high:,} expected"
            return None
        case "freshness":
            column, within = check.argument["column"], check.argument["within"]
            newest = observed.newest.get(column)
            if newest is None:
                return f'no value in "{column}"'
            age = (now - newest).total_seconds()
            return f'newest "{column}" is {age:,.0f} s old, at most {within:,.0f} s allowed' if age > within else None
        case _:
            count = observed.violations.get(check.name, 0)
            return f"{count:,} rows" if count else None


def _guard_empty(table: TableSpec, observed: Observed, replaces: bool) -> None:
    if replaces and table.guard.allow_empty is False and observed.rows == 0:
        raise empty_source(table)


def empty_source(table: TableSpec) -> StoppedByPolicy:
    return StoppedByPolicy(
        "guard.allow_empty: the source has no rows and the target's content would be wiped",
        hint="Check the source; set guard.allow_empty: true if it may be empty",
        mark=table.mark_of("guard.allow_empty"),
    )


def _guard_shrink(table: TableSpec, observed: Observed, replaces: bool) -> None:
    limit, before = table.guard.max_shrink, observed.target_rows
    if not replaces or limit is None or not before:
        return
    shrink = (before - observed.rows) / before
    if shrink > limit:
        raise StoppedByPolicy(
            f"guard.max_shrink {limit:.0%}: {before:,} rows would become {observed.rows:,}",
            hint="Check the source, or raise guard.max_shrink for this run",
            mark=table.mark_of("guard.max_shrink"),
        )


def _guard_deleted(table: TableSpec, observed: Observed) -> None:
    if not deletes_too_many(table, observed):
        return
    deleted, there = _deleted(observed), observed.target_rows
    is_whole = _is_whole(table, observed)
    raise StoppedByPolicy(
        f"guard.max_deleted {_max_deleted(table):.0%}: {deleted:,} of {there:,} rows would be deleted",
        hint=DELETES_ALL if is_whole else "Look at the source; if the deletions are right, raise guard.max_deleted",
        mark=table.mark_of("guard.max_deleted"),
    )


def deletes_too_many(table: TableSpec, observed: Observed) -> bool:
    """Whether the batch's deletes are more than ``guard.max_deleted`` allows."""
    if table.deletes is None or not _deleted(observed) or not observed.target_rows:
        return False
    share = _deleted(observed) / observed.target_rows
    return share > _max_deleted(table) or (_is_whole(table, observed) and not table.guard.allows_deleting_all)


def _deleted(observed: Observed) -> int:
    return observed.deletes if observed.deleted is None else observed.deleted


def _max_deleted(table: TableSpec) -> float:
    return table.guard.max_deleted if table.guard.max_deleted is not None else DEFAULT_MAX_DELETED


def _is_whole(table: TableSpec, observed: Observed) -> bool:
    is_detected = isinstance(table.deletes, DetectMissingKeys)
    return is_detected and _deleted(observed) >= (observed.target_rows or 0)


def _guard_quarantined(table: TableSpec, observed: Observed) -> None:
    limit, total = table.guard.max_quarantined, observed.rows + observed.quarantined
    if limit is None or not total:
        return
    share = observed.quarantined / total
    if share > limit:
        raise StoppedByPolicy(
            f"guard.max_quarantined {limit:.0%}: {observed.quarantined:,} of {total:,} rows would be quarantined",
            hint="Look at what the source sends, or raise guard.max_quarantined",
            mark=table.mark_of("guard.max_quarantined"),
        )
