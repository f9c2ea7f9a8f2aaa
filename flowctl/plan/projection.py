"""From source columns to target columns: what is read, how each column is derived, what flowctl adds, what is compared.

Pure: planning uses it for types and names, the runner for the Spark select; both get the same tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from flowctl.model import reserved, types
from flowctl.model.projection import ProjectedColumn
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.resolve.names import own_columns, reserved_names
from flowctl.spec.spec import DetectFlag, TableSpec
from flowctl.sql import dialects


def projection(
    table: TableSpec, source_columns: Sequence[Column], recorded: Sequence[Column] = ()
) -> tuple[ProjectedColumn, ...]:
    """Returns the columns to write, in the source's order, followed by those of ``columns.add``; without flowctl's own.

    Types of added columns come from ``columns.types``, otherwise from ``recorded`` (the target's columns after the last
    run). An added column of unknown type is left out; its type is known once the table has run.
    Raises ``ValueError`` for an invalid type text.
    """
    copied = [_copied(table, column) for column in source_columns if table.columns.takes(column.name)]
    known = {column.name: column.type for column in recorded}
    added = [
        ProjectedColumn(Column(name, kind), f"({sql})")
        for name, sql in table.columns.add.items()
        if (kind := _added_type(table, name, known)) is not None
    ]
    return tuple(_marked(table, (*copied, *added)))


def untyped(table: TableSpec, recorded: Sequence[Column]) -> tuple[str, ...]:
    """Names of ``columns.add`` whose types are neither declared nor recorded."""
    known = {column.name: column.type for column in recorded}
    return tuple(name for name in table.columns.add if _added_type(table, name, known) is None)


def read_columns(table: TableSpec, source_columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns to read: those that are written, and the cursor and delete flag even if they are excluded."""
    steering = {table.cursor.column if table.cursor else None}
    if isinstance(table.deletes, DetectFlag):
        steering.add(table.deletes.column)
    wanted = (column for column in source_columns if table.columns.takes(column.name) or column.name in steering)
    return tuple(_delivered(table, column) for column in wanted)


def _delivered(table: TableSpec, column: Column) -> Column:
    """A column declared as text is read as the source's own text, not cast from its mapped type; MySQL's TINYINT(1),
    which is described as a flag and may hold other numbers, as the number that it is declared as. The cursor keeps its
    type, which determines its order."""
    is_cursor = table.cursor is not None and table.cursor.column == column.name
    if is_cursor or column.type == types.STRING or column.name not in table.columns.types:
        return column
    declared = types.parse(table.columns.types[column.name])
    if declared == types.STRING:
        return replace(column, type=types.STRING, as_text=True, note="")
    is_numbers = column.type == types.BOOL and column.native.lower().startswith("tinyint") and types.is_number(declared)
    return replace(column, type=declared) if is_numbers else column


#: Suffix of the text column that holds the values of a column whose type has changed.
TEXT_SUFFIX = "__text"


def renaming(name: str) -> str:
    """A rule for hints that renames a source column to a name that no other column has."""
    return f"columns: {{rename: {{{name}: source_{name.lstrip('_')}}}}}"


def taken_name(table: TableSpec, columns: Iterable[Column]) -> tuple[str, str] | None:
    """For the first of the source's ``columns`` whose target name is reserved for flowctl: what is wrong and what to
    do."""
    own = reserved_names(table)
    for column in columns:
        name = column.name
        if table.columns.takes(name) and reserved.is_taken(table.columns.rename.get(name, name), own):
            return f'the source has a column "{name}", a name reserved for flowctl', f"Rename it: {renaming(name)}"
    return None


def compared_columns(table: TableSpec, columns: Iterable[Column]) -> tuple[str, ...]:
    """Names of those of ``columns`` whose change counts as a change of the row. Not compared: keys, columns in
    ``compare.ignore``, computed columns (they follow from the others), and the event time of scd2 (it says when a row
    changed, not what)."""
    apart = {*table.key, *table.compare_ignore, *table.columns.add, *own_columns(table)}
    if table.mode == "scd2" and table.valid_from:
        apart.add(table.valid_from)
    return tuple(column.name for column in columns if column.name not in apart)


def _copied(table: TableSpec, column: Column) -> ProjectedColumn:
    name = table.columns.rename.get(column.name, column.name)
    quoted = dialects.quoted(column.name, "spark")
    if column.name in table.columns.mask:
        masked = Column(name, types.STRING, column.nullable)
        return ProjectedColumn(masked, _mask(column.name), column.name)
    declared = table.columns.types.get(column.name)
    kind = types.parse(declared) if declared else column.type
    return ProjectedColumn(Column(name, kind, column.nullable), quoted, column.name)


def is_copied(table: TableSpec, made: ProjectedColumn, found: Column) -> bool:
    """Whether the column has the values of the source's column ``found`` as they are."""
    copies = made.source == found.name and made.expression == dialects.quoted(found.name, "spark")
    return copies and made.column.type == found.type and found.name not in table.columns.types


def is_mask(made: ProjectedColumn) -> bool:
    """Whether the column is written masked."""
    return made.source is not None and made.expression == _mask(made.source)


def _mask(name: str) -> str:
    return f"sha2(CAST({dialects.quoted(name, 'spark')} AS STRING), 256)"


def _added_type(table: TableSpec, name: str, known: Mapping[str, DataType]) -> DataType | None:
    declared = table.columns.types.get(name)
    return types.parse(declared) if declared else known.get(name)


def _marked(table: TableSpec, projected: Sequence[ProjectedColumn]) -> Iterable[ProjectedColumn]:
    compared = set(compared_columns(table, [made.column for made in projected]))
    for made in projected:
        yield ProjectedColumn(made.column, made.expression, made.source, made.column.name in compared)
