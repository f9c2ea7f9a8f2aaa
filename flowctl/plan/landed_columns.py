"""The columns of a stream's table as its captured changes have them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flowctl.changes.shape import Shape
from flowctl.model.table_info import CONVERTED, ENDED, Column, TableInfo
from flowctl.observe.metadata import is_metadata, with_metadata
from flowctl.plan.case import Case
from flowctl.plan.projection import read_columns


def columns_of_shapes(shapes: Sequence[Shape], now: TableInfo, recorded: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that a batch delivers: of its last shape, and what only earlier ones have. Only ``now``, the table's
    description, tells whether one may be null. ``recorded`` are the columns from before."""
    *earlier, latest = columns_in_turn(shapes, recorded)
    last = {column.name: column for column in latest or now.columns}  # no shape tells if nothing was recorded either
    others = {column.name: column for columns in earlier for column in columns if column.name not in last}
    known = {column.name: column for column in now.columns}
    return tuple(
        replace(column, nullable=known[column.name].nullable if column.name in known else True)
        if column.identity != CONVERTED
        else column
        for column in (*last.values(), *others.values())
    )


def columns_in_turn(shapes: Sequence[Shape], recorded: Sequence[Column]) -> list[tuple[Column, ...]]:
    """Those of each shape, without those about a change. A column whose identity is not known is taken for the one that
    had the name before, unless that has ended."""
    before, found = tuple(column for column in recorded if not is_metadata(column)), []
    for shape in shapes:
        if shape.ended or shape.converted:
            before = _without(_converted(before, shape.converted, recorded), shape.ended)
        else:
            before = _identified(shape.columns, before)
        found.append(before)
    return found


def _without(columns: Sequence[Column], ended: Sequence[str]) -> tuple[Column, ...]:
    names = {name.lower() for name in ended}
    return tuple(replace(one, identity=ENDED) if one.name.lower() in names else one for one in columns)


def _converted(columns: Sequence[Column], names: Sequence[str], recorded: Sequence[Column]) -> tuple[Column, ...]:
    """Whether they could be null before is known from the recorded ones only."""
    lower, filled = {name.lower() for name in names}, {column.name for column in recorded if not column.nullable}
    return tuple(
        replace(one, identity=CONVERTED, nullable=one.name not in filled) if one.name.lower() in lower else one
        for one in columns
    )


def _identified(columns: Sequence[Column], before: Sequence[Column]) -> tuple[Column, ...]:
    known = {column.name: column.identity for column in before if column.identity not in (ENDED, CONVERTED)}
    return tuple(replace(column, identity=column.identity or known.get(column.name, "")) for column in columns)


def with_source_columns(table: Case, columns: Sequence[Column]) -> Case:
    source = table.observed.source
    assert source is not None
    own = [column for column in columns if column.name not in {one.name for one in _metadata(table)}]
    info = with_metadata(table.table, replace(source, columns=tuple(own)))
    return replace(table, observed=replace(table.observed, source=info))


def _metadata(table: Case) -> tuple[Column, ...]:
    return with_metadata(table.table, TableInfo(table.table.target.object, (), "")).columns


def announced(now: Case, landed: Case) -> Iterator[str]:
    """Changes of the source's columns that the stream has not reached yet, as the table reads them."""
    there = {column.name: column for column in _read(landed)}
    for column in _read(now):
        before = there.pop(column.name, None)
        if before is None:
            yield f'a new column "{column.name}" ({column.native}) comes when the stream reaches it'
        elif before.type != column.type:
            yield f'"{column.name}" becomes {column.native} when the stream reaches that'
    for name in there:
        yield f'"{name}" goes when the stream reaches that'


def _read(case: Case) -> Sequence[Column]:
    source = case.observed.source
    return read_columns(case.table, source.columns) if source is not None else ()
