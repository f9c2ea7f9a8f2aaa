"""Target columns that flowctl does not write: the database or someone else fills them."""

from __future__ import annotations

from collections.abc import Mapping

from flowctl.connectors.target import Fill
from flowctl.model.table_info import Column
from flowctl.plan.case import Case
from flowctl.plan.projection import TEXT_SUFFIX
from flowctl.resolve.names import OWN_NAMES, own_columns
from flowctl.spec.spec import SqlSource
from flowctl.sql.refs import output_names


def filled(case: Case) -> Mapping[str, Fill] | None:
    """The target columns that the database fills if a write omits them. None for a target that fills none and takes the
    columns of the content that replaces its own."""
    target = case.observed.target
    return case.rules.filled_columns(target) if target is not None else None


def columns_to_record(case: Case) -> tuple[Column, ...]:
    """The target columns that belong to flowctl: those that it creates and those recorded before. If the plan does not
    know which it creates, all except those that the database fills."""
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
    if not names:  # empty files have no columns yet
        return None
    return {*(table.columns.rename.get(name, name) for name in names if table.columns.takes(name)), *table.columns.add}
