"""The columns of one table's step: read, projected, compared with the target, and the DDL for the differences.

Used by the plan, and by the runner for tables whose columns are known only once Spark has analyzed them
(:class:`RuntimeColumns`). Both get the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flowctl.model import types
from flowctl.model.projection import Columns, ProjectedColumn
from flowctl.model.table_info import Column
from flowctl.plan.case import Case
from flowctl.plan.comparison import Comparison, RecordedColumns
from flowctl.plan.definition import differences, is_recorded
from flowctl.plan.fills import filled
from flowctl.plan.projection import is_copied, projection, read_columns, untyped
from flowctl.plan.schema_diff import compare, for_new_table
from flowctl.spec.spec import SqlSource
from flowctl.sql.refs import output_names


def known_columns(case: Case) -> tuple[Column, ...] | None:
    """Returns the source's columns; None if they are known only when the table runs: a SQL table neither recorded under
    this definition nor declared in ``columns.types``, or an untyped ``columns.add``. Recorded columns are valid while
    the tables that SQL reads keep their columns, but never in a full refresh."""
    state, source = case.state, case.table.source
    if case.table.columns.add and untyped(case.table, recorded_target(case)):
        return None
    if not isinstance(source, SqlSource):
        return case.observed.source.columns if case.observed.source else None
    if state.schema and is_recorded(state.definition, case.definition) and not case.makes_other_types:
        return state.schema
    return _declared(case, source)


def shape(case: Case, source_columns: Sequence[Column], added: Sequence[Column] | None = None) -> Columns:
    """Returns the columns of the table's step. Changes that a policy refuses have the action ``fail``; there are no
    statements then. ``added`` are the columns of ``columns.add`` with types determined by Spark.
    Raises ``ValueError`` for an invalid type text."""
    table, target, rules = case.table, case.observed.target, case.rules
    wanted = _with_natives(case, projection(table, source_columns, recorded_target(case) if added is None else added))
    planned = _compared(case, wanted, source_columns, is_running=added is not None)
    if target is not None and planned.changes:  # adds each change's statement, and further changes that they require
        planned = replace(planned, changes=tuple(rules.alter_statements(target, planned.changes)))
    statements: Iterable[str] = (change.statement for change in planned.changes if change.alters)
    if any(change.action == "fail" for change in planned.changes):
        statements = ()
    elif target is None:
        statements = rules.create_statements(table.target.object, planned.target, table.layout)
    return replace(planned, source=read_columns(table, source_columns), statements=tuple(statements))


def _with_natives(case: Case, wanted: Sequence[ProjectedColumn]) -> tuple[ProjectedColumn, ...]:
    """New columns for values of a source of the same kind get the type that they have there; those that stay keep
    theirs."""
    source = case.observed.source
    if not case.undecoded or source is None:
        return tuple(wanted)
    made = []
    for part in wanted:
        found = source.column(part.source) if part.source is not None else None
        if found is not None and is_copied(case.table, part, found):
            there = case.observed.target.column(part.column.name) if case.observed.target else None
            stays = there is not None and there.type == part.column.type
            native = there.native if there is not None and stays else case.rules.native_type(found)
            part = replace(part, column=replace(part.column, native=native))
        made.append(part)
    return tuple(made)


def recorded_target(case: Case) -> tuple[Column, ...]:
    """The target's columns after the last run, for the types of ``columns.add``. Empty if another definition was
    accepted since, or if the types that they derive from have changed."""
    if not case.table.columns.add or not case.state.definition or case.makes_other_types:
        return ()
    return case.state.target_columns


def _declared(case: Case, source: SqlSource) -> tuple[Column, ...] | None:
    """The columns of a SQL table if all their types are declared; otherwise None."""
    declared = case.table.columns.types
    names = output_names(source.sql) if declared else None
    if names is None or any(name not in declared for name in names):
        return None
    return tuple(Column(name, types.parse(declared[name])) for name in names)


def _compared(
    case: Case, wanted: Sequence[ProjectedColumn], source_columns: Sequence[Column], *, is_running: bool
) -> Columns:
    """While running, or with a pending intent, flowctl itself may have added a column that is not recorded yet."""
    target, can = case.observed.target, case.rules.capabilities.target
    assert can is not None, "resolve has refused connections that are no targets"
    if target is None:
        return for_new_table(case.table, wanted, can)
    recorded = RecordedColumns(
        wanted={made.column.name: made.column for made in _wanted_before(case, wanted, source_columns)},
        target={column.name: column for column in case.state.target_columns},
    )
    before, intent = case.state.definition, case.state.intent
    return compare(Comparison(
        case.table,
        wanted,
        target.columns,
        recorded,
        can,
        replaces=case.replaces,
        rebuilds=case.rebuilds,
        redefined=case.rebuilds and bool(before) and bool(differences(before, case.definition)),
        may_take=is_running or intent is not None or not before,
        altered=frozenset(intent.altered) if intent is not None and can.alters_first else frozenset(),
        filled=filled(case),
        spec_path=case.spec_path,
    ))  # fmt: skip


def _wanted_before(
    case: Case, wanted: Sequence[ProjectedColumn], source_columns: Sequence[Column]
) -> Sequence[ProjectedColumn]:
    """The projection of the columns that the last run read."""
    state = case.state
    if not state.schema:
        return ()
    is_same = state.schema == tuple(source_columns) and not case.table.columns.add
    return wanted if is_same else projection(case.table, state.schema, state.target_columns)
