"""Values that change with a table's columns, without a change of the row: no stream sends them.

A new column with a default has it in every row; a column that was renamed keeps its values under a name that the target
does not have; one that took the name of another has other values than the target has under it; a column whose type
changed may have been rounded, cut or computed anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from flowctl.model import types
from flowctl.model.table_info import CONVERTED, ENDED, Column, TableInfo
from flowctl.observe.metadata import is_metadata
from flowctl.plan.case import Case
from flowctl.plan.commands import state_command
from flowctl.plan.finding import Stop
from flowctl.plan.projection import read_columns
from flowctl.text import some

_LENGTH = re.compile(r"\((\d+)\)$")
_MEMBER = re.compile(r"'(?:[^']|'')*'")


def unsent_columns(
    case: Case, columns: Sequence[Column], now: TableInfo | None, before: Sequence[Column] | None = None
) -> list[str]:
    """Those of ``columns``, the source's as a batch or the catalog has them, that may have values in the target's rows
    which no change names. ``now`` is the table as its catalog describes it at that time or later (None: it is gone);
    ``before`` are the columns of before, None: the recorded ones. Empty if the table was never read."""
    recorded = case.state.schema if before is None else before
    known = {column.name: column for column in recorded}
    found = {column.name: column for column in read_columns(case.table, columns)}
    if not known:
        return []
    known |= _in_another_case(known, found)
    kept = {column.name for column in case.state.target_columns}  # also of columns that the source no longer has
    return [
        name
        for name, column in found.items()
        if (
            _is_another(known[name], column) or not _keeps_values(known[name], column)
            if name in known
            else case.table.columns.rename.get(name, name) in kept
            or _may_be_renamed(column, known, found)
            or _has_value(name, now)
        )
    ]


def unsent_in_shapes(
    case: Case, shapes: Sequence[Sequence[Column]], describe: Callable[[], TableInfo | None]
) -> list[str]:
    """As :func:`unsent_columns`, for batches: ``shapes`` are the columns that their changes have, one after the other,
    without those about a change. ``describe`` looks at the catalog: only if a column is new, because what a plan has
    seen may be from before it came."""
    before = tuple(column for column in case.state.schema if not is_metadata(column))
    known = {column.name for column in before}
    is_any_new = any(column.name not in known for shape in shapes for column in read_columns(case.table, shape))
    now = describe() if before and is_any_new else None
    found: dict[str, None] = {}
    for shape in shapes if before else ():
        found |= dict.fromkeys(unsent_columns(case, shape, now, before))
        before = read_columns(case.table, shape)
    return list(found)


def stop_if_unsent(case: Case, names: Sequence[str]) -> Stop | None:
    if not names or case.table.on_schema_change.unsent != "fail":
        return None
    again = state_command("resnapshot", case.spec_path, case.table.id)
    reason = f"{case.table.source}: {what(names)} (on_schema_change.unsent: fail)"
    return Stop(reason, f"Read the table again: {again}; unsent: resnapshot does it by itself", "on_schema_change")


def what(names: Sequence[str]) -> str:
    return f"rows have values in {some(names)} that no change has sent"


def _in_another_case(before: Mapping[str, Column], found: Mapping[str, Column]) -> dict[str, Column]:
    """The columns of before by the names that they have now, where only the case differs. Systems that distinguish
    names by case know what a column is; elsewhere it is the same one."""
    gone = {name.lower(): one for name, one in before.items() if name not in found and one.identity in ("", ENDED)}
    new = {name: gone.get(name.lower()) for name, one in found.items() if name not in before and not one.identity}
    return {name: one for name, one in new.items() if one is not None}


def _is_another(old: Column, new: Column) -> bool:
    if old.identity == CONVERTED:
        return _is_narrower(old, new)
    is_known = bool(old.identity and new.identity) or old.identity == ENDED
    return is_known and old.identity != new.identity


def _is_narrower(old: Column, new: Column) -> bool:
    """Whether values of the old column may not fit, though its type is no other: nulls, negative numbers, members."""
    is_filled = old.nullable and not new.nullable
    is_positive = "unsigned" in new.native and "unsigned" not in old.native
    has_members = new.native.startswith(("enum(", "set("))
    lost = {*_MEMBER.findall(old.native)} - {*_MEMBER.findall(new.native)} if has_members else ()
    return is_filled or is_positive or (has_members and (bool(lost) or not old.native.startswith(("enum(", "set("))))


def _may_be_renamed(new: Column, before: Mapping[str, Column], found: Mapping[str, Column]) -> bool:
    """Whether a column from before may be this one now; if one has no identity, any that is gone."""
    identities = {column.identity for column in before.values()}
    if new.identity and "" not in identities:
        return new.identity in identities
    return any(name not in found for name in before)


def _has_value(name: str, now: TableInfo | None) -> bool:
    """Whether rows that exist got a value with the new column; so may those of a column that is gone again."""
    column = now.column(name) if now is not None else None
    return now is None or column is None or not column.nullable or name in now.extra.get("filled", {})


def _keeps_values(old: Column, new: Column) -> bool:
    if old.native == new.native and old.type == new.type:
        return True
    if old.type != new.type:
        return types.is_wider(new.type, old.type)
    if old.type != types.STRING or old.as_text or new.as_text:
        return False
    lengths = _LENGTH.search(old.native), _LENGTH.search(new.native)
    return lengths[1] is None or (lengths[0] is not None and int(lengths[0][1]) <= int(lengths[1][1]))
