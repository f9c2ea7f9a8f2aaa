"""What is due for a target's tables beside their rows, and what was done for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowctl.model.table_info import ObjectName


@dataclass(frozen=True)
class Task:
    """One thing to do for a table, or done. ``text`` is for people, ``figures`` are the same for programs: counts and
    bytes."""

    name: str
    text: str
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Maintenance:
    """What is due for one table, in order. ``left_out``: what cannot be done, why, and what would help."""

    object: ObjectName
    tasks: tuple[Task, ...] = ()
    left_out: str = ""
