"""Columns that a spec names but that do not exist. Found by the plan; where only Spark knows the columns, by the run
before it creates anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from flowctl.diagnostics import Mark
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.table_info import TableInfo
from flowctl.plan.case import Case
from flowctl.plan.definition import is_recorded
from flowctl.plan.finding import Stop
from flowctl.plan.shape import known_columns
from flowctl.spec.spec import DetectFlag, SqlSource, TableSpec
from flowctl.spec.suggest import did_you_mean
from flowctl.state.document import TableState
from flowctl.text import quoted


def _rule_names(table: TableSpec) -> Iterator[tuple[str, str]]:
    """Source columns named by the rules and the cursor, each with its path in the spec. ``columns.types`` may also name
    added columns, which are left out."""
    rules = table.columns
    groups = (
        ("columns.include", rules.include or ()),
        ("columns.exclude", rules.exclude),
        ("columns.rename", rules.rename),
        ("columns.types", [name for name in rules.types if name not in rules.add]),
        ("columns.mask", rules.mask),
    )
    yield from ((path, name) for path, names in groups for name in names)
    if table.cursor:
        yield "cursor.column", table.cursor.column


def unread_column(case: Case) -> Stop | None:
    """Stops for a missing source column that every run needs; before the first run, also for one that a rule names."""
    source = case.observed.source
    columns = source.columns if source else known_columns(case)
    if columns is None:
        return None
    return missing_source_column(case.table, {column.name for column in columns}, with_rules=not case.state.schema)


def unprotected_column(case: Case) -> Stop | None:
    """Stops if a column to be masked or excluded is missing: under another name it would be written unprotected. Some
    files may lack it, as long as no other column is new."""
    source, table, state = case.observed.source, case.table, case.state
    if source is None or not source.columns or not (table.columns.mask or table.columns.exclude):
        return None
    if stop := _unprotected_files(case, source):
        return stop
    there = [column.name for column in source.columns]
    is_known = is_recorded(state.definition, case.definition) and not _new(table, there, state)
    may_lack = case.observed.positions == "files" and is_known
    return None if may_lack else missing_protected_column(table, there, state)


def taken_over_column(case: Case) -> Stop | None:
    """Stops if the source has lost a renamed column and now has another one under the name given to it. The target's
    column would continue with the values of that one, without a change of its schema."""
    table, source = case.table, case.observed.source
    if source is None or case.replaces:
        return None
    there = {column.name for column in source.columns}
    new = _new(table, tuple(there), case.state)
    recorded = {column.name for column in case.state.schema}
    for old, name in table.columns.rename.items():
        if old in recorded and old not in there and name in new and name not in table.columns.rename:
            accept = case.state_command("set", "--accept-definition")
            other = f"columns: {{rename: {{{name}: source_{name}}}}}"
            return Stop(
                f'columns.rename: "{old}" is no longer a column of {table.source}, and "{name}", its name in the '
                "target, is new there",
                f'Take the rename out if "{name}" is its new name, and continue with {accept}; otherwise write '
                f'"{name}" under another name with {other}',
                "columns.rename",
            )
    return None


def _protected(table: TableSpec) -> Iterator[tuple[str, str]]:
    """The columns that must not be written unchanged, each with the rule that requires it."""
    yield from (("columns.mask", name) for name in table.columns.mask)
    yield from (("columns.exclude", name) for name in table.columns.exclude)


def _unprotected_files(case: Case, source: TableInfo) -> Stop | None:
    found = perhaps_renamed(case.table, source, case.state)
    if found is None:
        return None
    path, name, others = found
    listed = quoted(others)
    otherwise = "else read those files as another table"
    if case.state.schema:  # a table that never ran records no column
        accept = case.state_command("set", "--accept-definition")
        them = "it as it is" if len(others) == 1 else "them as they are"
        otherwise = f"else take {them} with {accept}"
    return Stop(
        f'{path}: some files of {case.table.source} lack "{name}", and only those have {listed}',
        f'Write {listed} there too if it is a new name of "{name}"; {otherwise}',
        path,
    )


def perhaps_renamed(table: TableSpec, source: TableInfo, state: TableState) -> tuple[str, str, list[str]] | None:
    """Finds a protected column that some files lack while having other columns, which no file with it has: one of them
    may be its new name. Returns the rule, the column and the others, without columns that an earlier run has written or
    that were accepted."""
    recorded = {column.name for column in state.schema}
    for path, name in _protected(table):
        others = [
            other
            for other in source.only_without.get(name, ())
            if table.columns.takes(other) and other not in table.columns.mask and other not in recorded
        ]
        if others:
            return path, name, others
    return None


def missing_protected_column(table: TableSpec, there: Sequence[str], state: TableState) -> Stop | None:
    """``there`` are the source's columns; ``state`` is as recorded before this run."""
    dropped, new = _dropped(table, there, state), _new(table, there, state)
    gone = ((path, name) for path, name in _protected(table) if name not in there and name not in dropped)
    path, name = next(gone, ("", ""))
    if not path:
        return None
    stop = _unknown_column(path, name, str(table.source), there)
    if not new:
        near = f"{stop.hint} " if stop.hint.endswith("?") else ""
        return replace(stop, hint=f'{near}Correct it, or take "{name}" out if it is gone for good')
    is_new = "is" if len(new) == 1 else "are"
    return replace(
        stop,
        reason=f"{stop.reason}, and {quoted(new)} {is_new} new there",
        hint=f'Write its new name instead of "{name}", if that is one; else take "{name}" out',
    )


def dropped_exclusions(case: Case) -> Iterator[str]:
    """Notes about excluded columns that the source no longer has. Files may lack any column."""
    source = case.observed.source
    if source is not None and source.columns and case.table.columns.exclude and case.observed.positions != "files":
        yield from dropped_notes(case.table, [column.name for column in source.columns], case.state)


def dropped_notes(table: TableSpec, there: Sequence[str], state: TableState) -> Iterator[str]:
    for name in _dropped(table, there, state):
        yield f'columns.exclude names "{name}", which {table.source} no longer has'


def _dropped(table: TableSpec, there: Sequence[str], state: TableState) -> tuple[str, ...]:
    """Excluded columns that no longer exist in the source and cannot have been renamed: the last run excluded them, and
    no column to be written has been added since."""
    if not table.columns.exclude or not state.schema or _new(table, there, state):
        return ()
    left_out = state.definition.get("columns", {}).get("exclude", ())
    return tuple(name for name in table.columns.exclude if name in left_out and name not in there)


def _new(table: TableSpec, there: Sequence[str], state: TableState) -> list[str]:
    """The columns that would be written for the first time; empty if no earlier run is recorded."""
    recorded = {column.name for column in state.schema}
    return [name for name in there if recorded and name not in recorded and table.columns.takes(name)]


def unwritten_column(case: Case, columns: Columns | RuntimeColumns) -> Stop | None:
    """Stops for a named target column that is not among ``columns``. Columns known only when the table runs are
    compared then."""
    if isinstance(columns, RuntimeColumns) or not columns.target:
        return None
    table, there = case.table, {column.name for column in columns.target}
    missing = (named for named in _target_names(table) if named[1] not in there)
    return next((_unknown_column(path, name, str(table.target), there, mark) for path, name, mark in missing), None)


def missing_source_column(table: TableSpec, there: Collection[str], *, with_rules: bool) -> Stop | None:
    """``with_rules`` also checks the names under ``columns``. Empty files have no columns yet."""
    named = chain(_rule_names(table) if with_rules else (), _steering_names(table) if there else ())
    return next(
        (_unknown_column(path, name, str(table.source), there) for path, name in named if name not in there), None
    )


def _steering_names(table: TableSpec) -> Iterator[tuple[str, str]]:
    if isinstance(table.deletes, DetectFlag):
        yield "deletes.column", table.deletes.column
    if table.read.split_by != "auto" and not isinstance(table.source, SqlSource):
        yield "read.split_by", table.read.split_by


def _target_names(table: TableSpec) -> Iterator[tuple[str, str, Mark | None]]:
    layout = table.layout
    groups = [
        ("compare.ignore", table.compare_ignore),
        ("layout.partition_by", layout.partition_by),
        ("layout.cluster_by", layout.cluster_by),
        ("to.key", layout.topic.key),
        ("to.headers", layout.topic.headers),
    ]
    if "layout.statistics" in table.marks:  # otherwise flowctl's own choice, which may name an excluded column
        groups.append(("layout.statistics", layout.statistics or ()))
    if isinstance(table.source, SqlSource):  # for other sources, these are checked with the source's columns
        groups.append(("key", table.key))
        event = table.valid_from if table.mode == "scd2" else None
        groups.append(("scd2.valid_from", (event,) if event not in (None, "now") else ()))
    yield from ((path, name, None) for path, names in groups for name in names)
    yield from (("expect", check.column, check.mark) for check in table.expect if check.column)


def _unknown_column(path: str, name: str, place: str, there: Collection[str], mark: Mark | None = None) -> Stop:
    hint = did_you_mean(name, there, "Choose from ")
    return Stop(f'{path}: "{name}" is not a column of {place}', hint, path, mark=mark)
