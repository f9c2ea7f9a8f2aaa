"""Names of columns that a target cannot keep."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from flowctl.connectors.target import TargetCapabilities
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column


def refused_names(
    columns: Sequence[Column], can: TargetCapabilities, others: Collection[str] = ()
) -> Iterator[SchemaChange]:
    """Names that the target refuses, and names that differ in case only, also from those of ``others``."""
    seen = {name.lower(): name for name in others}
    for column in columns:
        earlier = seen.get(column.name.lower())
        seen[column.name.lower()] = column.name
        if earlier is not None:
            yield _refused(
                column, f'collides with "{earlier}"' + (", which differs in case only" * (earlier != column.name))
            )
        elif reason := can.refuses_names(column.name):
            yield _refused(column, f"cannot keep its name: {reason}")


def _refused(column: Column, note: str) -> SchemaChange:
    return SchemaChange(column.name, "new_column", None, column.type, "fail", "column names", note=note)
