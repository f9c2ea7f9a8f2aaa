"""Extra powers of a target that has limits: of values, of columns, of a table's name, of what may be written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Literal

from flowctl.errors import StoppedByPolicy
from flowctl.model.step import Mode
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.spec.spec import Layout

#: How the database fills a column that a write leaves out: it computes it from others, or numbers it, and takes no
#: value for it in either case; or it has a default.
Fill = Literal["computed", "numbered", "default"]


class FillingTarget(ABC):
    @abstractmethod
    def filled_columns(self, there: TableInfo) -> Mapping[str, Fill]:
        """Columns that the database fills itself, by name. flowctl makes none. Pure."""


class LimitingTarget(ABC):
    @abstractmethod
    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        """Those of the columns ``written`` for whose values a write checks that they are stored as they are, and fails
        otherwise. Pure."""


class NarrowTarget(ABC):
    @abstractmethod
    def most_columns(self, mode: Mode) -> int:
        """How many columns a table of this mode may have, flowctl's own among them: the change to be made has some more
        on its way. Pure."""


class NamingTarget(ABC):
    @abstractmethod
    def refuse_name(self, object: ObjectName) -> str | None:
        """Why no table can have this name, which may be a sidecar's; None when one can. Pure."""


class RestrictedTarget(ABC):
    @abstractmethod
    def refuse_write(self, info: TableInfo, mode: Mode, *, replaces: bool) -> StoppedByPolicy | None:
        """Why what was described cannot be written exactly, so that a plan stops; None when it can. ``replaces``: the
        whole content is replaced. Pure."""


class PartitionedTarget(ABC):
    @abstractmethod
    def partition_columns(self, there: TableInfo | None, layout: Layout) -> tuple[str, ...]:
        """The columns by which the table is partitioned, or will be where there is none. Pure."""

    @abstractmethod
    def refuse_partition(self, column: Column) -> tuple[str, str] | None:
        """Why no table can be partitioned by this column, and what to do; None when one can. Pure."""
