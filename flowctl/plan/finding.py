"""What a step has to read, or why it has nothing to read, or must not."""

from __future__ import annotations

from dataclasses import dataclass

from flowctl.model.interval import Interval
from flowctl.model.position import Position


@dataclass(frozen=True)
class Work:
    """Something to read. ``reason`` says why, ``notes`` warn."""

    interval: Interval
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Idle:
    """Nothing to read; ``upper`` is where the table stands (None: nowhere yet)."""

    reason: str
    upper: Position | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A guard stops the table: reading on would lose or freeze something. ``path`` is the spec key behind it."""

    guard: str
    reason: str
    hint: str
    path: str = "cursor"


Finding = Work | Idle | Refused
