"""The columns of one table's step: read, projected, compared with the target, and the DDL that closes the gap.

Used by the plan, and by the runner for tables whose columns are known only when Spark has looked
(:class:`RuntimeColumns`): both come to the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowctl.connectors.target import TargetCapabilities, TargetRules
from flowctl.model import types
from flowctl.model.projection import Columns, ProjectedColumn
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName
from flowctl.plan.case import Case
from flowctl.plan.comparison import Comparison, RecordedColumns
from flowctl.plan.definition import differences
from flowctl.plan.fills import filled
from flowctl.plan.finding import Stop
from flowctl.plan.projection import projection, read_columns, untyped
from flowctl.plan.schema_diff import SchemaPlan, compare, for_new_table
from flowctl.spec.spec import SqlSource
from flowctl.sql.refs import output_names


def known_columns(case: Case) -> tuple[Column, ...] | None:
    """The source's columns as far as a plan can tell; None when they are known only when the table has run: a SQL
    table neither recorded under this definition nor declared in ``columns.types``, or an untyped ``columns.add``.
    What is recorded holds while the tables that SQL reads keep their columns, and never in a full refresh."""
    state, source = case.state, case.table.source
    if case.table.columns.add and untyped(case.table, recorded_target(case)):
        return None
    if not isinstance(source, SqlSource):
        return case.observed.source.columns if case.observed.source else None
    if state.schema and state.definition == case.definition and not case.makes_other_types:
        return state.schema
    return _declared(case, source)


def shape(case: Case, source_columns: Sequence[Column], added: Sequence[Column] | None = None) -> Columns:
    """The columns of the table's step. Changes that a policy refuses have the action ``fail`` (:func:`refusal`); there
    are no statements then. ``added`` are the columns of ``columns.add``, where Spark has told their types.
    ``ValueError`` for a type text that is none."""
    wanted = projection(case.table, source_columns, recorded_target(case) if added is None else added)
    planned = _compared(case, wanted, source_columns, is_running=added is not None)
    changes = _with_statements(case, planned.changes)
    failed = any(change.action == "fail" for change in changes)
    return Columns(
        source=read_columns(case.table, source_columns),
        target=planned.columns,
        projection=planned.projection,
        changes=changes,
        statements=() if failed else _statements(case, planned, changes),
    )


def refusal(changes: Sequence[SchemaChange], case: Case) -> Stop | None:
    """Why the schema stops the table, naming every refused column."""
    refused = [change for change in changes if change.action == "fail"]
    if not refused:
        return None
    reasons = "; ".join(f"{_rule(change)} — {_what(change)}" for change in refused)
    of_target = ". ".join(dict.fromkeys(change.next_step for change in refused if change.next_step))
    hint = of_target or _likely_rename(refused[0], changes) or _way_on(refused[0], case)
    return Stop(reasons, hint, refused[0].policy.partition(":")[0])


def _likely_rename(gone: SchemaChange, changes: Sequence[SchemaChange]) -> str:
    """How to keep the data of a column that has got another name: one gone, one new, of one type."""
    if gone.change != "dropped_column" or gone.is_known:
        return ""
    alike = [one for one in changes if one.change == "dropped_column" and one.old == gone.old]
    new = [one for one in changes if one.change == "new_column" and one.new == gone.old and one.action != "fail"]
    if len(alike) != 1 or len(new) != 1:
        return ""
    renamed = f"columns: {{rename: {{{new[0].column}: {gone.column}}}}}"
    return (
        f'If "{new[0].column}" is its new name, write {renamed} and accept the definition: the stored values stay. '
        'Otherwise set on_schema_change.dropped_column: "null"'
    )


def recorded_target(case: Case) -> tuple[Column, ...]:
    """The target's columns as the last run left them, for the types of ``columns.add``; nothing where another
    definition was accepted since, or the types that they were made of are others now."""
    if not case.table.columns.add or not case.state.definition or case.makes_other_types:
        return ()
    return case.state.target_columns


def _declared(case: Case, source: SqlSource) -> tuple[Column, ...] | None:
    """The columns of a SQL table whose types are all declared."""
    declared = case.table.columns.types
    names = output_names(source.sql) if declared else None
    if names is None or any(name not in declared for name in names):
        return None
    return tuple(Column(name, types.parse(declared[name])) for name in names)


def _compared(
    case: Case, wanted: Sequence[ProjectedColumn], source_columns: Sequence[Column], *, is_running: bool
) -> SchemaPlan:
    """``is_running``, and a begun number: then flowctl itself may have made a column that is not recorded yet."""
    target, can = case.observed.target, _capabilities(case)
    if target is None:
        return for_new_table(case.table, wanted, can)
    recorded = RecordedColumns(
        wanted={made.column.name: made.column for made in _wanted_before(case, wanted, source_columns)},
        target={column.name: column for column in case.state.target_columns},
    )
    before = case.state.definition
    compared = Comparison(
        case.table,
        wanted,
        target.columns,
        recorded,
        can,
        replaces=case.replaces,
        rebuilds=case.rebuilds,
        redefined=case.rebuilds and bool(before) and bool(differences(before, case.definition)),
        may_take=is_running or case.state.intent is not None or not before,
        filled=filled(case),
    )
    return compare(compared)


def _wanted_before(
    case: Case, wanted: Sequence[ProjectedColumn], source_columns: Sequence[Column]
) -> Sequence[ProjectedColumn]:
    """What the last run made of the columns that it read."""
    state = case.state
    if not state.schema:
        return ()
    is_same = state.schema == tuple(source_columns) and not case.table.columns.add
    return wanted if is_same else projection(case.table, state.schema, state.target_columns)


def _ddl(case: Case) -> TargetRules:
    assert case.ddl is not None, "stops has dealt with targets that were not observed"
    return case.ddl


def _capabilities(case: Case) -> TargetCapabilities:
    can = _ddl(case).capabilities.target
    assert can is not None, "resolve has refused connections that are no targets"
    return can


def _with_statements(case: Case, changes: Sequence[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Every change with the target's own statement, and what they need of the table beside its columns."""
    target = case.observed.target
    if target is None or not changes:
        return tuple(changes)
    return tuple(_ddl(case).alter_statements(target, changes))


def _statements(case: Case, planned: SchemaPlan, changes: Sequence[SchemaChange]) -> tuple[str, ...]:
    if case.observed.target is None:
        object = ObjectName(case.table.target.parts)
        return tuple(_ddl(case).create_statements(object, planned.columns, case.table.layout))
    return tuple(change.statement for change in changes if change.alters)


def _rule(change: SchemaChange) -> str:
    return change.policy.removeprefix("on_schema_change.")


def _what(change: SchemaChange) -> str:
    match change.change:
        case "dropped_column" if change.next_step:
            return f'column "{change.column}" is to be dropped ({change.note})'
        case "dropped_column":
            lost = ", and its stored values would become null" if change.change_class == "destructive" else ""
            what = "is not filled from the source" if change.is_known else "is gone"
            return f'column "{change.column}" {what}{lost}'
        case "new_column" if not change.note:
            return f'column "{change.column}" is new'
        case "wider_type" | "other_type" if change.old and change.new:
            text = f'column "{change.column}" is {types.short(change.new)}, was {types.short(change.old)}'
            return text + (f" ({change.note})" if change.note else "")
        case _:
            return f'column "{change.column}" {change.note}'.rstrip()


def _way_on(change: SchemaChange, case: Case) -> str:
    match change.change:
        case "drift" if change.policy.startswith("on_schema_change"):
            return 'Set on_schema_change.dropped_column: "null" if they may go, or drop the column in the target'
        case "drift" if change.overwrites:
            accept = case.state_command("set", "--accept-definition")
            alone = "on_schema_change.new_column: ignore leaves them alone"
            return f"{accept} lets them be replaced; {alone}, or rename the column under `columns`"
        case "drift" if change.old is None:
            return "Give it a default in the target, or drop its NOT NULL"
        case "drift":
            return "Undo it in the target, or take it over with `flowctl state adopt`"
        case "new_column" if change.policy == "column names":
            return "Rename or exclude it under `columns`"
        case "other_type":
            return _ways_of_another_type(change, case)
        case "dropped_column" if change.change_class == "destructive":
            null = 'set on_schema_change.dropped_column: "null" to have it null from now on'
            return f"Put it back, {null}, or drop the column in the target"
        case "nullable" if change.policy.startswith("on_schema_change.dropped_column"):
            return _ways_of_a_required_column(change, case)
        case "nullable" if change.policy.endswith("relax"):  # which the target cannot
            return "Copy the table there without that NOT NULL, and put the copy in its place"
        case "nullable":
            return "Set on_schema_change.nullable: relax, or make the column nullable in the target"
        case "dropped_column":
            return "Put it back, set on_schema_change.dropped_column: keep, or drop the column in the target"
        case _:
            return "Change the policy under `on_schema_change`, or exclude the column"


def _ways_of_a_required_column(change: SchemaChange, case: Case) -> str:
    """A column that is gone from the source, and that takes no null in a target that cannot change that."""
    ways = "Put it back, drop the column in the target, or copy the table there without that NOT NULL"
    stays = case.table.mode in ("append", "merge") and not case.replaces
    if stays and (filled(case) or {}).get(change.column) == "default":
        return f"Set on_schema_change.dropped_column: keep, and new rows have its default; {ways[:1].lower()}{ways[1:]}"
    return ways


def _ways_of_another_type(change: SchemaChange, case: Case) -> str:
    """A history keeps its types in a full refresh, and a key its own whatever the policy."""
    again = f"drop the table in the target, then run with --full-refresh {case.table.id}"
    if change.policy == "--full-refresh":  # it is one already
        return again[:1].upper() + again[1:]
    ways = ["Declare its type under `columns.types`"]
    if change.column not in case.table.key:
        ways.append("set the policy to text")
    if case.table.mode != "scd2":
        ways.append(f"rebuild it with --full-refresh {case.table.id}" if _can_be_another_type(change, case) else again)
    return ", ".join(ways[:-1]) + f", or {ways[-1]}" if len(ways) > 1 else ways[0]


def _can_be_another_type(change: SchemaChange, case: Case) -> bool:
    """Whether the target changes the type of a column whose content is replaced."""
    target = case.observed.target
    if target is None:
        return True
    asked = replace(change, action="retype", policy="--full-refresh")
    return all(one.action != "fail" or one.next_step for one in _ddl(case).alter_statements(target, [asked]))
