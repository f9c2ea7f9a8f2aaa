"""What stops a table once its columns are known: a policy, a name that matches no column, or a limitation of its
target, the database behind it or its engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowctl.connectors.gaps import Gap
from flowctl.connectors.target import Fill
from flowctl.engine.session import SAIL
from flowctl.model import types
from flowctl.model.projection import Columns, ProjectedColumn, RuntimeColumns
from flowctl.model.schema_change import SchemaChange
from flowctl.plan.case import Case
from flowctl.plan.column_names import unwritten_column
from flowctl.plan.fills import filled
from flowctl.plan.finding import Stop
from flowctl.plan.projection import renaming
from flowctl.plan.undecoded import why_values_are_needed
from flowctl.resolve import sail
from flowctl.resolve.names import own_columns
from flowctl.spec.spec import TableSpec
from flowctl.text import some


def refuse_columns(case: Case, columns: Columns | RuntimeColumns) -> Stop | None:
    """Returns the first reason to stop, as far as ``columns`` are known."""
    known = columns if isinstance(columns, Columns) else Columns()
    return (
        _refuse_filled(case, known.projection)
        or _refuse_changes(known.changes, case)
        or _refuse_lacking_file(case)
        or unwritten_column(case, columns)
        or _refuse_partitions(case, columns)
        or _refuse_key(case, columns)
        or _refuse_on_sail(case, columns)
    )


def _refuse_filled(case: Case, projection: Sequence[ProjectedColumn]) -> Stop | None:
    """Stops for a column of ``projection``, or one of flowctl's own, for which the database accepts no value."""
    fills = filled(case)
    if not fills:
        return None
    table, ways = case.table, {part.column.name: _instead_of_filled(case.table, part) for part in projection}
    for name in (*ways, *own_columns(table)):
        if declared := _TAKES_NONE.get(fills.get(name, "default")):
            hint = ways.get(name, "Make it a plain column there, or write to another table")
            reason = f'{table.target}: column "{name}" is {declared}, so the database takes no value for it'
            return Stop(reason, hint, "to")
    return None


_TAKES_NONE: Mapping[Fill, str] = {"computed": "GENERATED ALWAYS AS", "numbered": "GENERATED ALWAYS AS IDENTITY"}


def _instead_of_filled(table: TableSpec, part: ProjectedColumn) -> str:
    name, source, plain = part.column.name, part.source, "or make it a plain column in the target"
    if source is None:
        return f"Take it out of columns.add or give it another name there, {plain}"
    renamed = renaming(source)
    if name in table.key:
        return f"Write it under another name with {renamed}, which `key` then has too, {plain}"
    return f"Leave it out with columns: {{exclude: [{source}]}}, write it under another name with {renamed}, {plain}"


def _refuse_changes(changes: Sequence[SchemaChange], case: Case) -> Stop | None:
    """Stops for all changes that a policy or the target refuses."""
    refused = [change for change in changes if change.action == "fail"]
    if not refused:
        return None
    reasons = "; ".join(f"{one.policy.removeprefix('on_schema_change.')} — {_what(one)}" for one in refused)
    of_target = ". ".join(dict.fromkeys(change.next_step for change in refused if change.next_step))
    hint = of_target or _likely_rename(refused[0], changes) or _next_step(refused[0], case)
    return Stop(reasons, hint, refused[0].policy.partition(":")[0])


def _refuse_lacking_file(case: Case) -> Stop | None:
    """A column is gone from one file, though others have it."""
    table, source = case.table, case.observed.source
    lacking = source.lacking if source is not None and table.on_schema_change.dropped_column == "fail" else {}
    name, file = next(((name, file) for name, file in lacking.items() if table.columns.takes(name)), ("", ""))
    if not name:
        return None
    return Stop(
        f'dropped_column: fail — {file} has no column "{name}"',
        "Add it to that file; or set on_schema_change.dropped_column: keep, and its rows have none",
        "on_schema_change.dropped_column",
    )


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


def _likely_rename(gone: SchemaChange, changes: Sequence[SchemaChange]) -> str:
    """How to keep the data of a column that was probably renamed: one dropped and one new column of the same type."""
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


def _next_step(change: SchemaChange, case: Case) -> str:
    if change.change == "other_type" and not change.if_refused:
        return _next_steps_for_another_type(change, case)
    return change.if_refused or "Change the policy under `on_schema_change`, or exclude the column"


def _next_steps_for_another_type(change: SchemaChange, case: Case) -> str:
    """A history keeps its types even in a full refresh; a key column keeps its type under any policy."""
    again = f"drop the table in the target, then run with --full-refresh {case.table.id}"
    ways = ["Declare its type under `columns.types`"]
    if change.column not in case.table.key:
        ways.append("set the policy to text")
    if case.rules.is_log:
        ways.append("write to a new topic")
    elif case.table.mode != "scd2":
        ways.append(f"rebuild it with --full-refresh {case.table.id}" if _can_be_another_type(change, case) else again)
    return ", ".join(ways[:-1]) + f", or {ways[-1]}" if len(ways) > 1 else ways[0]


def _can_be_another_type(change: SchemaChange, case: Case) -> bool:
    """Whether the target can change a column's type when its content is replaced."""
    target = case.observed.target
    if target is None:
        return True
    asked = replace(change, action="retype", policy="--full-refresh")
    return all(one.action != "fail" or one.next_step for one in case.rules.alter_statements(target, [asked]))


def _refuse_partitions(case: Case, columns: Columns | RuntimeColumns) -> Stop | None:
    """Stops for unsupported partition columns. A table whose content and schema are replaced may get other ones."""
    names = case.rules.partition_columns(case.observed.target, case.table.layout, rebuilds=case.rebuilds)
    partitioned = [column for column in columns.target if column.name in names]
    refused = case.rules.refuse_partitions(partitioned, columns.target)
    return Stop(*refused, "layout.partition_by") if refused else None


def _refuse_key(case: Case, columns: Columns | RuntimeColumns) -> Stop | None:
    """Stops for a key by which the next run would not find the rows of this one."""
    table = case.table
    parts = [
        one for one in columns.target if one.name in table.key and isinstance(one.type, types.Array | types.Struct)
    ]
    if not parts or table.mode not in ("merge", "scd2") or case.rules.nested_keys(case.spark_url, case.spark_conf):
        return None
    name, kind = parts[0].name, types.short(parts[0].type)
    what = f'rows of {table.target} cannot be found by the key column "{name}", which is {kind}'
    as_text = f"columns: {{types: {{{name}: string}}}}"
    return Stop(
        what, f"Name a `key` of columns without parts; an array of a database can be one as text: {as_text}", "key"
    )


def _refuse_on_sail(case: Case, columns: Columns | RuntimeColumns) -> Stop | None:
    """Stops for a gap that only the source or the target shows; `validate` refuses the rest."""
    if case.spark_url != SAIL:
        return None
    gap: Gap | None
    if floats := sail.hashed_floats(case.table, columns.source):
        gap = Gap("mode", sail.GAPS["float"], ", ".join(floats))
    elif alike := _alike_on_engine(case, columns):
        reason = f"reading {some(alike)} together is not supported on Sail: {sail.GAPS['case']}"
        return Stop(reason, f"{_without_twin(case)}, or r{sail.HINT[1:]}", "columns")
    else:
        changes = columns.changes if isinstance(columns, Columns) else ()
        target, layout = case.observed.target, case.table.layout
        gap = case.rules.gap(SAIL, target, columns.target, changes, layout, rebuilds=case.rebuilds)
    return Stop(f"{gap.what} is not supported on Sail: {gap.reason}", sail.HINT, gap.key) if gap else None


def _alike_on_engine(case: Case, columns: Columns | RuntimeColumns) -> list[str]:
    """Names of read columns that differ only in case. Rows that are passed on undecoded reach no engine."""
    if case.undecoded and not why_values_are_needed(case, columns):
        return []
    source = case.observed.source
    return sail.same_but_for_case(source.columns if source and source.reads_whole_rows else columns.source)


def _without_twin(case: Case) -> str:
    if case.observed.source is not None and case.observed.source.reads_whole_rows:
        return "Rename one of them in the files, leave it out of format.schema (JSON Lines)"
    return "Leave one of them out with columns.exclude"
