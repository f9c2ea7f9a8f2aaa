"""Maintenance of a target's tables: what is due, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowctl.model.table_info import ObjectName


@dataclass(frozen=True)
class Task:
    """One maintenance task of a table, due or done. ``text`` is for people, ``figures`` are the same for programs:
    counts and bytes."""

    name: str
    text: str
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Maintenance:
    """The tasks due for one table, in order. ``left_out``: what cannot be done, why, and what would help."""

    object: ObjectName
    tasks: tuple[Task, ...] = ()
    left_out: str = ""
