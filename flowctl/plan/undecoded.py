"""Whether a table's rows can be passed on undecoded (:mod:`flowctl.connectors.undecoded`), and if not, why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from flowctl.connectors import registry
from flowctl.model import types
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.step import Load, Recover, Step
from flowctl.model.table_info import Column
from flowctl.plan.case import Case
from flowctl.plan.checks import why_staged
from flowctl.plan.projection import is_copied
from flowctl.spec.spec import ObjectSource, QuerySource, Spec, SqlSource, StreamTable, TableSpec, TopicSource
from flowctl.text import some


def undecoded_form(spec: Spec, table: TableSpec) -> str:
    """The form in which the table's source and target can exchange rows; empty if there is none."""
    source = table.source
    if not isinstance(source, ObjectSource | QuerySource) or isinstance(source, StreamTable | TopicSource):
        return ""
    gives = registry.capabilities(spec.connections[source.connection].type).source
    takes = registry.capabilities(spec.connections[table.target.connection].type).target
    common = set(gives.undecoded if gives else ()) & set(takes.undecoded if takes else ())
    return min(common, default="")


def with_way(step: Step, case: Case) -> Step:
    """The step, undecoded if nothing needs a value of its rows."""
    if case.undecoded and isinstance(step, Load | Recover) and not why_decoded(step, case):
        return replace(step, table=replace(step.table, via="undecoded"))
    return step


def as_texts(step: Load | Recover, table: TableSpec) -> Load | Recover:
    """The undecoded step with columns to compare: as the texts of their values, where flowctl's type may lack one."""
    columns = step.columns
    assert isinstance(columns, Columns), "undecoded rows have known columns"
    cursor = table.cursor.column if table.cursor else None
    texts = {column.name for column in columns.source if column.name != cursor and _lacks_values(column)}
    written = {part.column.name for part in columns.projection if part.source in texts}
    projection = [
        replace(part, column=_text(part.column)) if part.source in texts else part for part in columns.projection
    ]
    return replace(
        step,
        columns=replace(
            columns,
            source=tuple(texts_of(columns.source, texts)),
            target=tuple(texts_of(columns.target, written)),
            projection=tuple(projection),
        ),
    )


def texts_of(columns: Sequence[Column], names: Collection[str]) -> list[Column]:
    """The columns, those with these names as texts."""
    return [_text(column) if column.name in names else column for column in columns]


def _text(column: Column) -> Column:
    return replace(column, type=types.STRING, as_text=True, note="")


def _lacks_values(column: Column) -> bool:
    """Whether the source's type may have values that flowctl's type does not: infinity, years BC, other bounds."""
    return not isinstance(column.type, types.Scalar) or column.type in (
        types.DATE,
        types.TIMESTAMP,
        types.TIMESTAMP_NTZ,
    )


def is_within(table: TableSpec) -> bool:
    """Whether an undecoded copy stays inside one database, as far as the spec shows: it names one connection."""
    return not isinstance(table.source, SqlSource) and table.source.connection == table.target.connection


def why_decoded(step: Load | Recover, case: Case) -> str:
    """What needs the values of rows, for people; empty if nothing does."""
    if step.interval.upper is None:
        return "no row is read"
    return why_values_are_needed(case, step.columns)


def why_values_are_needed(case: Case, columns: Columns | RuntimeColumns) -> str:
    """As :func:`why_decoded`, before there is a step."""
    source = case.observed.source
    if source is None or not isinstance(columns, Columns):
        return "its columns are known only when it runs"
    if source.decoded_because:
        return source.decoded_because
    return _by_spec(case) or _by_columns(case, columns)


def _by_spec(case: Case) -> str:
    """What the spec asks for. Keys need no check if the source's primary key already ensures what it would."""
    table, rules = case.table, case.table.columns
    named = {
        "expect": table.expect,
        "columns.mask": rules.mask,
        "columns.types": rules.types,
        "columns.add": rules.add,
        "deletes": table.deletes,
    }
    if asked := [key for key, value in named.items() if value]:
        return f"{some(asked)} needs their values"
    match table.mode:
        case "scd2":
            return "a history compares hashes of rows"
        case "append" if table.cursor is not None:
            return "append recognizes rows at its position by their values"
        case "merge" if not _has_primary_key(case):
            return "`key` is not the source's primary key, so keys are checked first"
        case "merge":
            return _limits(table)
        case _:
            return why_staged(table)


def _has_primary_key(case: Case) -> bool:
    source, renamed = case.observed.source, case.table.columns.rename
    key = [renamed.get(name, name) for name in source.primary_key] if source else []
    return bool(key) and sorted(key) == sorted(case.table.key)


def _limits(table: TableSpec) -> str:
    guard = table.guard
    limits = {"max_shrink": guard.max_shrink, "max_quarantined": guard.max_quarantined}
    return some([f"guard.{name} counts them" for name, limit in limits.items() if limit is not None])


def _by_columns(case: Case, columns: Columns) -> str:
    """The first column that is not sent as the target stores it."""
    source, there = case.observed.source, case.observed.target
    assert source is not None, "the caller has looked"
    if not columns.projection:
        return "it has no columns"
    for part in columns.projection:
        sent = source.column(part.source) if part.source is not None else None
        if sent is None or not is_copied(case.table, part, sent):
            return f"{part.column.name} is converted" if part.source is not None else f"{part.column.name} is gone"
        standing = there.column(part.column.name) if there is not None else None
        if standing is not None and not case.rules.stores_undecoded(standing, sent):
            return f"{part.column.name} is {sent.native} in the source, {standing.native} in the target"
    return ""
