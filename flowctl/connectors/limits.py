"""Extra power of a target: columns that take fewer values than their type in flowctl has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

from flowctl.model.table_info import Column, TableInfo


@runtime_checkable
class LimitingTarget(Protocol):
    def limited_columns(self, there: TableInfo, written: Collection[str]) -> list[Column]:
        """Those of the columns ``written`` for whose values a write checks that they are stored as they are, and fails
        otherwise. Pure."""
