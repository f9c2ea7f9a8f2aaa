"""How each target column is made from what is read: computed once in the plan, executed as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flowctl.model import types
from flowctl.model.types import DataType

Mask = Literal["sha256"]


@dataclass(frozen=True)
class ProjectedColumn:
    """One column of the frame that is written, ``name`` and ``type`` as in the target.

    Exactly one of three: ``source`` is the column it copies, cast to ``type`` (exact, or the read fails) and masked
    when ``mask`` is set (null stays null); ``expression`` is Spark SQL of ``columns.add``, which sees the other
    columns under their target names; neither means null (the source no longer has the column, the target keeps it).
    ``compared`` says whether a change of this column makes a row new for merge and scd2.
    """

    name: str
    type: DataType
    nullable: bool = True
    source: str | None = None
    expression: str | None = None
    mask: Mask | None = None
    compared: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "type": str(self.type)}


def from_json(document: Mapping[str, Any]) -> ProjectedColumn:
    return ProjectedColumn(**{**document, "type": types.parse(document["type"])})
