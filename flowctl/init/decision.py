"""What is written for one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowctl.model.mode import Mode
from flowctl.model.table_info import ObjectName


@dataclass(frozen=True)
class Decision:
    """``reason`` is the comment about the table, ``decide`` are questions to its owner. ``key`` has names of the
    target, everything else names of the source. ``reads_nulls``: rows with a null cursor are read in every run.
    ``left_out`` is why the table cannot be moved (empty: it can); it is then written as a comment."""

    id: str
    object: ObjectName
    mode: Mode
    reason: str
    key: tuple[str, ...] = ()
    cursor: str = ""
    reads_nulls: bool = False
    exclude: tuple[str, ...] = ()
    as_text: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict, hash=False)
    format: Mapping[str, Any] = field(default_factory=dict, hash=False)
    decide: tuple[str, ...] = ()
    left_out: str = ""
