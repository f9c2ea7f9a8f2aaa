"""Columns of a target that flowctl does not write: the database fills them, or somebody else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowctl.connectors.target import Fill
from flowctl.model.projection import ProjectedColumn
from flowctl.model.table_info import Column
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop
from flowctl.plan.projection import TEXT_SUFFIX, is_taken, renaming
from flowctl.resolve.names import OWN_NAMES, own_columns
from flowctl.spec.spec import SqlSource, TableSpec
from flowctl.sql.refs import output_names

_TAKES_NONE: Mapping[Fill, str] = {"computed": "GENERATED ALWAYS AS", "numbered": "GENERATED ALWAYS AS IDENTITY"}


def filled(case: Case) -> Mapping[str, Fill] | None:
    """The target's columns that the database fills where a write leaves them out; None for a target that fills none,
    and whose columns are those of what replaces its content."""
    target = case.observed.target
    return case.ddl.filled_columns(target) if target is not None and case.ddl is not None else None


def refusal(case: Case, projection: Sequence[ProjectedColumn]) -> Stop | None:
    """A column of ``projection`` or of flowctl's own for which the database takes no value."""
    fills = filled(case)
    if not fills:
        return None
    table, ways = case.table, {part.column.name: _way(case.table, part) for part in projection}
    for name in (*ways, *own_columns(table)):
        if told := _TAKES_NONE.get(fills.get(name, "default")):
            hint = ways.get(name, "Make it a plain column there, or write to another table")
            return Stop(f'{table.target}: column "{name}" is {told}, so the database takes no value for it', hint, "to")
    return None


def columns_to_record(case: Case) -> tuple[Column, ...]:
    """The target's columns that are flowctl's: those that it makes, and those recorded before. Where a plan cannot tell
    what it makes, all but those that the database fills."""
    target, fills = case.observed.target, filled(case) or {}
    if target is None:
        return ()
    made, before = _made_names(case), {column.name for column in case.state.target_columns} | OWN_NAMES
    if made is None:
        return tuple(column for column in target.columns if column.name not in fills)
    wanted = {*made, *(name + TEXT_SUFFIX for name in made), *own_columns(case.table)}
    return tuple(
        column
        for column in target.columns
        if column.name in wanted or (column.name in before and column.name not in fills)
    )


def _made_names(case: Case) -> set[str] | None:
    table, source = case.table, case.observed.source
    if isinstance(table.source, SqlSource):
        names = output_names(table.source.sql)
    else:
        names = tuple(column.name for column in source.columns) if source else None
    if not names:  # files that are still empty have no columns yet
        return None
    return {*(table.columns.rename.get(name, name) for name in names if is_taken(table, name)), *table.columns.add}


def _way(table: TableSpec, part: ProjectedColumn) -> str:
    name, source, plain = part.column.name, part.source, "or make it a plain column in the target"
    if source is None:
        return f"Take it out of columns.add or give it another name there, {plain}"
    renamed = renaming(source)
    if name in table.key:
        return f"Write it under another name with {renamed}, which `key` then has too, {plain}"
    return f"Leave it out with columns: {{exclude: [{source}]}}, write it under another name with {renamed}, {plain}"
