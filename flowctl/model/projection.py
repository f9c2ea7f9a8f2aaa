"""The columns of one step: what is read, how each target column is made of it, and what must change for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowctl.model.codec import from_json, has_form, in_json
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column


@dataclass(frozen=True)
class ProjectedColumn:
    """One column of the frame that is written.

    ``column`` is the target's, with its name, type and nullability. ``expression`` is Spark SQL over the source's
    columns, which the runner makes the column's type (exactly, or the read fails); expressions of
    ``columns.add`` may also use the target names of the columns before them (Spark's lateral aliases). ``source`` is
    the one source column it is made of, None for ``columns.add`` and for columns that the source has no longer
    (``NULL``). ``compared`` says whether a change of this column makes a row new for merge and scd2.
    """

    column: Column
    expression: str
    source: str | None = None
    compared: bool = False

    @property
    def is_absent(self) -> bool:
        """Whether the source has this column of the target no longer."""
        return self.source is None and self.expression == "NULL"


@dataclass(frozen=True)
class Columns:
    """``source`` are the columns as they will be read, ``target`` what the target will have once ``changes`` are made,
    in the target's order (flowctl's own columns such as ``valid_from`` included). ``projection`` is the frame to write,
    in target order and without flowctl's own columns. ``statements`` is the DDL to run before the write, in order: it
    makes the table, or makes ``changes``."""

    source: tuple[Column, ...] = field(default=(), metadata=in_json(name="source_columns"))
    target: tuple[Column, ...] = field(default=(), metadata=in_json(name="target_columns"))
    projection: tuple[ProjectedColumn, ...] = ()
    changes: tuple[SchemaChange, ...] = field(default=(), metadata=in_json(name="schema"))
    statements: tuple[str, ...] = ()

    @property
    def recorded(self) -> tuple[Column, ...]:
        """What state records of ``target``: all but those of others, which a target that is replaced with its columns
        gets as nulls."""
        others = {change.column for change in self.changes if change.change == "drift" and change.old is None}
        nulls = {part.column.name for part in self.projection if part.is_absent} & others
        return tuple(column for column in self.target if column.name not in nulls)


@dataclass(frozen=True)
class RuntimeColumns:
    """Columns that are known when the table runs and its engine has looked: those of SQL, and of ``columns.add``, that
    declare no types. ``source`` are the columns as they will be read, where the source says so; ``target`` are those
    that the target has now."""

    source: tuple[Column, ...] = field(default=(), metadata=in_json(name="source_columns"))
    target: tuple[Column, ...] = field(default=(), metadata=in_json(name="target_columns"))

    @property
    def recorded(self) -> tuple[Column, ...]:
        return self.target


def _read_columns(document: Mapping[str, Any]) -> Columns | RuntimeColumns:
    """Documents have null for changes that are known when the table runs."""
    return from_json(Columns, document) if document["schema"] is not None else from_json(RuntimeColumns, document)


has_form(Columns | RuntimeColumns, None, _read_columns)
