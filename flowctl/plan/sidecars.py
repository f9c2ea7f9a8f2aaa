"""Reasons to stop a table for what is kept beside its target, or is not there any more."""

from __future__ import annotations

from flowctl.model import reserved
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.resolve.places import SIDECARS

_OBSERVED = "__observed"


def foreign_sidecar(case: Case) -> Stop | None:
    """A table of somebody else's where this one is about to keep something: it would be changed, or replaced."""
    for suffix, info in case.observed.sidecars.items():
        if info is None:
            continue
        is_history = suffix == _OBSERVED
        own = reserved.FIRST_OBSERVED if is_history else reserved.FIRST_QUARANTINE
        is_alone = is_history and case.observed.target is None and not case.state.target_id
        if is_alone or not own <= {column.name.lower() for column in info.columns}:
            what = f"{case.table.target}{suffix}, where {case.table.id} would keep its {SIDECARS[suffix]}, exists"
            hint = f"Rename or drop it, or give {case.table.id} another `to`"
            return Stop(f"{what} and was not made by this flow", hint, "to")
    return None


def history_without_observations(case: Case) -> Stop | None:
    """Versions are derived from observations alone: those of a history without any would be deleted, key by key. A
    sidecar stays behind when its table is renamed or restored without it."""
    target, sidecars = case.observed.target, case.observed.sidecars
    if target is None or _OBSERVED not in sidecars or sidecars[_OBSERVED] is not None:
        return None
    is_empty = target.version is not None and target.rows.value == 0  # made by a run that ended before its commit
    if is_empty or case.lacks_history or case.replaces:
        return None
    there = f"{case.table.target}{_OBSERVED}"
    before = str(case.state.definition.get("to", ""))
    is_renamed = before not in ("", str(case.table.target))
    way = f"Rename {before}{_OBSERVED}" if is_renamed else "If the table was renamed, rename its `__observed`"
    return Stop(
        f"{case.table.target} is a history, and {there}, which its versions are derived from, is not there",
        f"{way} to {there}, or restore it; if it is lost, begin a new history under another `to`",
        "to",
    )
