"""By what a table is partitioned, as far as its plan can tell."""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.model.table_info import Column
from flowctl.plan.case import Case
from flowctl.plan.finding import Stop


def partition_columns(case: Case, columns: Sequence[Column]) -> list[Column]:
    """Those of the target's ``columns``; a table whose content and schema are replaced may get other partitions."""
    if case.ddl is None:
        return []
    names = case.ddl.partition_columns(case.observed.target, case.table.layout, rebuilds=case.rebuilds)
    return [column for column in columns if column.name in names]


def refusal(case: Case, columns: Sequence[Column]) -> Stop | None:
    """Partitions that the target cannot have."""
    if case.ddl is None:
        return None
    refused = case.ddl.refuse_partitions(partition_columns(case, columns), columns)
    return Stop(*refused, "layout.partition_by") if refused else None
