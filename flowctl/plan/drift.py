"""What somebody else did to a target, and the columns there that flowctl does not write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.connectors.target import Fill, TargetCapabilities
from flowctl.model.projection import ProjectedColumn
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.spec.spec import TableSpec


@dataclass(frozen=True)
class Recorded:
    """What the last run left. ``wanted`` is the projection of the source as it was then, by name; both are empty when
    nothing is recorded (first run, reset)."""

    wanted: Mapping[str, Column]
    target: Mapping[str, Column]


def drift(
    table: TableSpec,
    wanted: Sequence[ProjectedColumn],
    there: Mapping[str, Column],
    recorded: Recorded,
    own: Mapping[str, Column],
    can: TargetCapabilities,
    *,
    replaces: bool,
    may_take: bool,
) -> Iterator[SchemaChange]:
    """What somebody else did to the target since the last run; nothing when nothing is recorded. ``may_take``: a column
    of theirs that is to be written now may be, whatever it holds."""
    if not recorded.target:
        return
    needed = {made.column.name for made in wanted} | {*own}
    for name, before in recorded.target.items():
        now = there.get(name)
        if now is None:
            fails = name in needed and not replaces
            note = "dropped in the target by someone else" + ("; its values are lost" if fails else "")
            yield _shown(name, before, None, note, fails=fails)
        elif now.type not in (before.type, can.stores(before.type)):
            yield _shown(name, before, now, "type changed in the target by someone else", fails=False)
        elif before.nullable and not now.nullable:
            yield _shown(name, before, now, "made not null in the target by someone else", fails=False)
    for name in there:
        if name not in recorded.target and name in needed:
            yield _taken(table, there[name], replaces=replaces, may_take=may_take or name in own)


def _taken(table: TableSpec, now: Column, *, replaces: bool, may_take: bool) -> SchemaChange:
    """A column of others that is written from now on. An append and a history touch no values that are there."""
    note = f"{_ADDED}; written from now on"
    if not replaces and table.mode != "merge":
        return _shown(now.name, None, now, note, fails=False)
    is_allowed = may_take or (replaces and table.on_schema_change.dropped_column == "null")
    shown = _shown(now.name, None, now, f"{note}: {TAKEN}", fails=not is_allowed)
    return replace(shown, change_class="destructive")


TAKEN = "its values are replaced"
_ADDED = "added in the target by someone else"


def is_ignored(table: TableSpec, made: ProjectedColumn, there: Mapping[str, Column], recorded: Recorded) -> bool:
    """Whether a column of the source is left out because others have one of its name and new columns are ignored."""
    name = made.column.name
    is_others = bool(recorded.target) and name in there and name not in recorded.target
    return is_others and table.on_schema_change.new_column == "ignore" and name not in table.key


def of_others(
    table: TableSpec,
    wanted: Sequence[ProjectedColumn],
    there: Mapping[str, Column],
    recorded: Recorded,
    own: Mapping[str, Column],
    filled: Mapping[str, Fill],
) -> list[Column]:
    """Columns that flowctl does not write. They stay out of the write altogether, so that updates leave them alone and
    the database fills them. What it always fills is never flowctl's; a column with a default is, once written and as
    long as the source has it or has it null from now on."""
    needed = {made.column.name for made in wanted} | {*own}
    has_run = bool(recorded.target and recorded.wanted)
    keeps = table.on_schema_change.dropped_column == "keep"
    return [
        column
        for name, column in there.items()
        if name not in needed
        and (
            (bool(recorded.target) and name not in recorded.target)
            or filled.get(name) in ("computed", "numbered")
            or (name in filled and (not has_run or (keeps and name not in recorded.wanted)))
        )
    ]


def left_alone(table: TableSpec, now: Column, fill: Fill | None, *, replaces: bool) -> SchemaChange:
    """What becomes of somebody else's column. One that is computed holds nothing that could be lost."""
    note = "filled by the database" if fill else _ADDED
    if not now.nullable and not fill:
        return _shown(now.name, None, now, f"{note}; not null, so the next write would fail", fails=True)
    if not replaces or fill == "computed":
        return _shown(now.name, None, now, f"{note}; left alone", fails=False)
    policy, may_go = table.on_schema_change.dropped_column, table.on_schema_change.dropped_column == "null"
    then = "its values are lost" if may_go else "replacing the content would lose its values"
    shown = _shown(now.name, None, now, f"{note}; {then}", fails=not may_go)
    return replace(shown, policy=f"on_schema_change.dropped_column: {policy}", change_class="destructive")


def _shown(name: str, before: Column | None, now: Column | None, note: str, *, fails: bool) -> SchemaChange:
    old, new = before.type if before else None, now.type if now else None
    return SchemaChange(
        name, "drift", old, new, "fail" if fails else "show", "drift", "destructive" if fails else "safe", note=note
    )
