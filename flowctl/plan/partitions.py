"""By what a table is partitioned, as far as its plan can tell."""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.model.table_info import Column
from flowctl.plan.case import Case, Stop


def partition_columns(case: Case, columns: Sequence[Column]) -> list[Column]:
    """Those of the target's ``columns``; a table whose content and schema are replaced may get other partitions."""
    if case.ddl is None:
        return []
    names = case.ddl.partition_columns(case.observed.target, case.table.layout, rebuilds=case.rebuilds)
    return [column for column in columns if column.name in names]


def refusal(case: Case, columns: Sequence[Column]) -> Stop | None:
    """A column whose values would not all be kept, or no column for the files themselves."""
    if case.ddl is None:
        return None
    partitioned = partition_columns(case, columns)
    if partitioned and len(partitioned) == len(columns):
        reason = "layout.partition_by names every column of the table, and its files must hold one"
        return Stop(reason, "Leave a column out of partition_by", "layout.partition_by")
    found = (case.ddl.refuse_partition(column) for column in partitioned)
    return next((Stop(*told, "layout.partition_by") for told in found if told is not None), None)
