"""Guards and expectations of one table: those that need no data are evaluated here, the rest before the commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import assert_never

from flowctl.connectors.source import HighWatermark
from flowctl.expect.expectation import RowExpectation
from flowctl.model.position import NoPosition, VersionPosition
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.step import Check, Via
from flowctl.model.table_info import RowEstimate
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.plan.projection import TEXT_SUFFIX
from flowctl.spec.spec import DetectFlag, DetectMissingKeys, ReportedDeletes, TableSpec

DEFAULT_MAX_DELETED = 0.1
#: The hint if all keys of the target are missing from the source.
DELETES_ALL = "Look at the source; if all rows are to be deleted, write guard: {max_deleted: 100%, allow_empty: true}"


def checks(case: Case, *, check_deletes: bool, reads_nothing: bool = False) -> tuple[Check, ...]:
    """Returns the checks in the order of the spec; failed ones stop the table (:func:`failed`). ``reads_nothing``: the
    source may have rows, of which none is read."""
    guard, empty = case.table.guard, is_empty(case.observed.watermark)
    without_rows = "the source has no rows" if empty or not reads_nothing else "no row of the source is read"
    empty = empty or reads_nothing
    found: list[Check] = []
    if case.replaces and guard.allow_empty is False:
        found.append(_decided("allow_empty", empty, without_rows))
    if case.replaces and guard.max_shrink is not None:
        found.append(Check(f"max_shrink {_percent(guard.max_shrink)}", "commit", "pending"))
    limits_deletes = case.table.deletes is not None and not case.rules.is_log  # how many rows a log has is not known
    if limits_deletes and (most := max_deleted(case.table)) is not None:
        trips = check_deletes and empty and case.observed.target is not None and not guard.allows_deleting_all
        found.append(_decided(f"max_deleted {_percent(most)}", trips, without_rows))
    if guard.max_quarantined is not None:
        found.append(Check(f"max_quarantined {_percent(guard.max_quarantined)}", "commit", "pending"))
    letters = case.table.dead_letters
    if letters is not None and letters.max_fraction is not None:
        found.append(Check(f"dead_letters.max_fraction {_percent(letters.max_fraction)}", "commit", "pending"))
    found.extend(Check(expected.name, "commit", "pending", expected.on_fail) for expected in case.table.expect)
    return tuple(found)


def of_nulls(table: TableSpec, columns: Columns | RuntimeColumns) -> Iterator[str]:
    """Notes about checks on columns that are null because their values go to a text column: most checks pass null."""
    written = {part.column.name: part for part in columns.projection} if isinstance(columns, Columns) else {}
    for name, part in written.items():
        text = written.get(name + TEXT_SUFFIX)
        found = ", ".join(check.name for check in table.expect if check.reads(name))
        if found and part.is_absent and text is not None and not text.is_absent:
            yield f'the values of "{name}" are in "{name}{TEXT_SUFFIX}": for {found}, all of them are null'


def failed(found: tuple[Check, ...]) -> Stop | None:
    for check in found:
        if check.result == "failed":
            name = check.name.partition(" ")[0]
            hint = (
                DELETES_ALL if name == "max_deleted" else f"Look at the source; if it is correct, change guard.{name}"
            )
            return Stop(f"guard {check.name}: {check.detail}", hint, f"guard.{name}", checks=found)
    return None


def max_deleted(table: TableSpec) -> float | None:
    """The share of the target's rows that one commit may delete; None: any. What is deduced from missing rows or a
    flag is limited by default; deletions that the source reports are not."""
    if table.guard.max_deleted is None and not isinstance(table.deletes, ReportedDeletes):
        return DEFAULT_MAX_DELETED
    return table.guard.max_deleted


def is_default(check: Check) -> bool:
    """Whether the check applies by default, without being in the spec."""
    return check.name == f"max_deleted {_percent(DEFAULT_MAX_DELETED)}"


def is_empty(watermark: HighWatermark | None) -> bool:
    """Whether the source is known to have no rows at all. Statistics are not sufficient."""
    match watermark:
        case None:
            return False
        case HighWatermark(None, _, _, has_null_cursor):
            return not has_null_cursor and not watermark.has_younger
        case HighWatermark(NoPosition() | VersionPosition(), RowEstimate(0, "count")):
            return True
        case _:
            return False


def via(table: TableSpec) -> Via:
    """Direct, unless something needs a staged batch."""
    return "staged" if why_staged(table) else "direct"


def why_staged(table: TableSpec) -> str:
    """Why the table needs a staged batch (merge, scd2, checks that count rows); empty if it needs none."""
    if table.mode in ("merge", "scd2"):
        return "keys are checked first"
    counted: list[str] = [
        one.on_fail if isinstance(one, RowExpectation) else one.key for one in table.expect if one.needs_staging
    ]
    counted += ["bad rows"] if table.keeps_bad_rows else []
    guard = table.guard
    limits = {
        "max_shrink": guard.max_shrink,
        "max_deleted": guard.max_deleted,
        "max_quarantined": guard.max_quarantined,
    }
    counted += [name for name, limit in limits.items() if limit is not None]
    return f"counted before the commit: {', '.join(dict.fromkeys(counted))}" if counted else ""


def deletes_due(table: TableSpec, checked_at: str | None, now: str) -> bool:
    """Whether this run detects missing keys. Both times are RFC 3339 in UTC."""
    match table.deletes:
        case DetectMissingKeys(every):
            if every is None or checked_at is None:
                return True
            since = dt.datetime.fromisoformat(now) - dt.datetime.fromisoformat(checked_at)
            return since.total_seconds() >= every
        case DetectFlag() | ReportedDeletes() | None:
            return False
        case _:
            assert_never(table.deletes)


def _decided(name: str, fails: bool, detail: str) -> Check:
    return Check(name, "plan", "failed", detail) if fails else Check(name, "commit", "pending")


def _percent(share: float) -> str:
    return f"{share * 100:g}%"
