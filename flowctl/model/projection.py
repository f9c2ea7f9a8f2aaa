"""How each target column is made from what is read: computed once in the plan, executed as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.model.table_info import Column, column_from_json


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

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "column": self.column.to_json()}


def from_json(document: Mapping[str, Any]) -> ProjectedColumn:
    return ProjectedColumn(**{**document, "column": column_from_json(document["column"])})
