"""An extra power of targets: to tell from what was described that a table should be tidied up."""

from __future__ import annotations

from abc import ABC, abstractmethod

from flowctl.model.table_info import TableInfo


class MaintainedTarget(ABC):
    """flowctl tidies up nothing by itself: what is told is for the user to do."""

    @abstractmethod
    def maintenance_due(self, info: TableInfo) -> str:
        """What is due and what to do, in words for people; empty when nothing is. Pure: no request for a plan."""
