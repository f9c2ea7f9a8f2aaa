"""What a format of files cannot hold."""

from __future__ import annotations

from collections.abc import Sequence

from flowctl.errors import StoppedByPolicy
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, Struct
from flowctl.spec.files_layout import FilesLayout


def refuse_columns(columns: Sequence[Column], layout: FilesLayout) -> None:
    """Raises :class:`StoppedByPolicy` for the first column whose type the format does not have."""
    if layout.format != "csv":
        return
    for column in columns:
        if isinstance(column.type, Array | Struct):
            raise StoppedByPolicy(
                f"column {column.name} is {types.short(column.type)}, for which CSV has no form",
                hint="Write jsonl, parquet or orc, leave it out with columns.exclude, or make text of it with"
                " columns.add",
            )
