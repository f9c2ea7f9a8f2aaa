"""The columns of one step: what is read, how each target column is derived from it, and the required schema changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowctl.model.codec import from_json, has_form, in_json
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column


@dataclass(frozen=True)
class ProjectedColumn:
    """One column of the frame that is written.

    ``column`` is the target column: name, type and nullability. ``expression`` is Spark SQL over the source's columns;
    the runner casts its result to the column's type (exactly, or the read fails). Expressions of ``columns.add`` may
    also use the target names of the columns before them (Spark's lateral aliases). ``source`` is the source column it
    is derived from; None for ``columns.add`` and for columns that the source no longer has (``NULL``). ``compared``:
    whether a change of this column counts as a change of the row for merge and scd2.
    """

    column: Column
    expression: str
    source: str | None = None
    compared: bool = False

    @property
    def is_absent(self) -> bool:
        """Whether the source no longer has this target column."""
        return self.source is None and self.expression == "NULL"


@dataclass(frozen=True)
class Columns:
    """``source`` are the columns as they will be read, ``target`` the target's columns once ``changes`` are applied, in
    the target's order and including flowctl's own columns such as ``valid_from``. ``projection`` is the frame to write,
    in target order and without flowctl's own columns. ``statements`` is the DDL to run before the write, in order: it
    creates the table or applies ``changes``."""

    source: tuple[Column, ...] = field(default=(), metadata=in_json(name="source_columns"))
    target: tuple[Column, ...] = field(default=(), metadata=in_json(name="target_columns"))
    projection: tuple[ProjectedColumn, ...] = ()
    changes: tuple[SchemaChange, ...] = field(default=(), metadata=in_json(name="schema"))
    statements: tuple[str, ...] = ()

    @property
    def recorded(self) -> tuple[Column, ...]:
        """The ``target`` columns that state records: all except foreign columns, which are refilled with nulls where
        replacing the content also replaces the columns."""
        others = {change.column for change in self.changes if change.change == "drift" and change.old is None}
        nulls = {part.column.name for part in self.projection if part.is_absent} & others
        return tuple(column for column in self.target if column.name not in nulls)

    def altered_since(self, before: Sequence[Column]) -> tuple[str, ...]:
        """The names of columns that ``changes`` alter, and of :attr:`recorded` ones that are not among those recorded
        ``before``; without what others have changed. Empty if none were recorded."""
        others = {change.column for change in self.changes if change.change == "drift"}
        altered = {change.column for change in self.changes if change.alters}
        added = {column.name for column in self.recorded} - {column.name for column in before}
        return tuple(sorted((altered | added) - others)) if before else ()


@dataclass(frozen=True)
class RuntimeColumns:
    """Columns that are known only when the table runs and the engine has analyzed them: those of SQL and of
    ``columns.add`` without declared types. ``source`` are the columns as they will be read, if the source describes
    them; ``target`` are the target's current columns."""

    source: tuple[Column, ...] = field(default=(), metadata=in_json(name="source_columns"))
    target: tuple[Column, ...] = field(default=(), metadata=in_json(name="target_columns"))

    @property
    def recorded(self) -> tuple[Column, ...]:
        return self.target


def _read_columns(document: Mapping[str, Any]) -> Columns | RuntimeColumns:
    """Documents hold null for changes that are known only when the table runs."""
    return from_json(Columns, document) if document["schema"] is not None else from_json(RuntimeColumns, document)


has_form(Columns | RuntimeColumns, None, _read_columns)
