"""Changes made to a target by someone else, and the target columns that flowctl does not write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.plan.commands import state_command
from flowctl.plan.comparison import Comparison


def drift(compared: Comparison) -> Iterator[SchemaChange]:
    """Changes made to the target by someone else since the last run; empty if nothing is recorded. What a pending
    intent may have changed before its commit failed is flowctl's own."""
    there, recorded, altered = compared.there, compared.recorded.target, compared.altered
    if not recorded:
        return
    for name, before in recorded.items():
        now = there.get(name)
        if now is None and name in altered and name not in compared.needed:
            continue
        if now is None:
            fails = name in compared.needed and not compared.replaces
            note = "dropped in the target by someone else" + ("; its values are lost" if fails else "")
            shown = _shown(name, before, None, note, fails=fails)
            yield replace(shown, if_refused="Undo it in the target, or take it over with `flowctl state adopt`")
        elif now.type not in (before.type, compared.can.stores(before.type)) and name not in altered:
            yield _shown(name, before, now, "type changed in the target by someone else")
        elif before.nullable and not now.nullable:
            yield _shown(name, before, now, "made not null in the target by someone else")
    for name in there:
        if name not in recorded and name in compared.needed and name not in altered:
            yield _taken(compared, there[name])


def _taken(compared: Comparison, now: Column) -> SchemaChange:
    """A foreign column that flowctl writes from now on. An append or a history does not change existing values."""
    table, note = compared.table, f"{_ADDED}; written from now on"
    if not compared.replaces and table.mode != "merge":
        return _shown(now.name, None, now, note)
    is_lost = compared.replaces and table.on_schema_change.dropped_column == "null"
    is_allowed = compared.may_take or now.name in compared.own or is_lost
    shown = _shown(now.name, None, now, f"{note}: its values are replaced", fails=not is_allowed)
    accept = state_command("set", compared.spec_path, table.id, "--accept-definition")
    alone = "on_schema_change.new_column: ignore leaves them alone"
    hint = f"{accept} lets them be replaced; {alone}, or rename the column under `columns`"
    return replace(shown, change_class="destructive", if_refused=hint)


_ADDED = "added in the target by someone else"


def without_ignored(compared: Comparison) -> Comparison:
    """If new columns are ignored, leaves out source columns whose name a foreign column of the target already has."""
    table, recorded = compared.table, compared.recorded.target
    if not recorded or table.on_schema_change.new_column != "ignore":
        return compared
    others = compared.there.keys() - recorded.keys() - compared.altered - {*table.key}
    return replace(compared, wanted=[made for made in compared.wanted if made.column.name not in others])


def of_others(compared: Comparison) -> list[Column]:
    """Columns that flowctl does not write. They are left out of the write entirely, so that updates do not change them
    and the database fills them. A column that the database always fills is never flowctl's. One with a default becomes
    flowctl's once written, and stays so while the source has it or the policy makes it null from now on."""
    recorded, fills = compared.recorded, compared.fills
    has_run = bool(recorded.target and recorded.wanted)
    keeps = compared.table.on_schema_change.dropped_column == "keep"
    return [
        column
        for name, column in compared.there.items()
        if name not in compared.needed
        and (
            (bool(recorded.target) and name not in recorded.target and name not in compared.altered)
            or fills.get(name) in ("computed", "numbered")
            or (name in fills and (not has_run or (keeps and name not in recorded.wanted)))
        )
    ]


def left_alone(compared: Comparison, now: Column) -> SchemaChange:
    """What happens to a foreign column. A computed one has no values that could be lost."""
    fill = compared.fills.get(now.name)
    note = "filled by the database" if fill else _ADDED
    if not now.nullable and not fill:
        shown = _shown(now.name, None, now, f"{note}; not null, so the next write would fail", fails=True)
        return replace(shown, if_refused="Give it a default in the target, or drop its NOT NULL")
    if not compared.replaces or fill == "computed":
        return _shown(now.name, None, now, f"{note}; left alone")
    policy = compared.table.on_schema_change.dropped_column
    may_go = policy == "null"
    then = "its values are lost" if may_go else "replacing the content would lose its values"
    shown = _shown(now.name, None, now, f"{note}; {then}", fails=not may_go)
    return replace(
        shown,
        policy=f"on_schema_change.dropped_column: {policy}",
        change_class="destructive",
        if_refused='Set on_schema_change.dropped_column: "null" if they may go, or drop the column in the target',
    )


def _shown(name: str, before: Column | None, now: Column | None, note: str, *, fails: bool = False) -> SchemaChange:
    old, new = before.type if before else None, now.type if now else None
    return SchemaChange(
        name, "drift", old, new, "fail" if fails else "show", "drift", "destructive" if fails else "safe", note=note
    )
