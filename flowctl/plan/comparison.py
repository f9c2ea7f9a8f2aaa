"""The input for comparing one table's columns: its current source, what the last run left, its current target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from flowctl.connectors.target import Fill, TargetCapabilities
from flowctl.model.projection import ProjectedColumn
from flowctl.model.table_info import Column
from flowctl.resolve.names import own_columns
from flowctl.spec.spec import TableSpec


@dataclass(frozen=True)
class RecordedColumns:
    """What the last run left. ``wanted`` is the projection of the source as it was then, by name. Both are empty if
    nothing is recorded (first run, reset)."""

    wanted: Mapping[str, Column]
    target: Mapping[str, Column]


@dataclass(frozen=True)
class Comparison:
    """``wanted`` is the projection of the current source, ``target`` the columns of an existing target. ``replaces``:
    its whole content will be replaced; ``rebuilds``: by a full refresh, so that columns may change to any type;
    ``redefined``: and under another definition, so that columns left out of it are dropped. ``may_take``: foreign
    columns that the source now has too may be overwritten. ``altered`` are the names of columns that a pending intent
    may have changed already. ``filled`` are the columns that the database fills; None for a target that fills none and
    takes the columns of the content that replaces its own. ``spec_path`` is for commands in hints."""

    table: TableSpec
    wanted: Sequence[ProjectedColumn]
    target: Sequence[Column]
    recorded: RecordedColumns
    can: TargetCapabilities
    replaces: bool = False
    rebuilds: bool = False
    redefined: bool = False
    may_take: bool = False
    altered: frozenset[str] = frozenset()
    filled: Mapping[str, Fill] | None = None
    spec_path: str = ""

    @cached_property
    def there(self) -> Mapping[str, Column]:
        """The target's columns by name."""
        return {column.name: column for column in self.target}

    @cached_property
    def own(self) -> Mapping[str, Column]:
        """flowctl's own columns, by name."""
        return own_columns(self.table)

    @cached_property
    def needed(self) -> frozenset[str]:
        """Names of all columns that flowctl writes."""
        return frozenset(made.column.name for made in self.wanted) | self.own.keys()

    @property
    def fills(self) -> Mapping[str, Fill]:
        return self.filled or {}
