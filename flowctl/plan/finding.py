"""What a step has to read, or why it has nothing to read, or must not."""

from __future__ import annotations

from dataclasses import dataclass

from flowctl.diagnostics import Mark
from flowctl.model.interval import Interval
from flowctl.model.position import Position
from flowctl.model.step import Check, StoppedBy


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
class Stop:
    """The table must not go on: reading or writing would lose, double or freeze something, or cannot be. ``path`` is
    the spec key behind it, for the place in the file, unless ``mark`` is one outside of the table."""

    reason: str
    hint: str
    path: str = ""
    by: StoppedBy = "policy"
    checks: tuple[Check, ...] = ()
    mark: Mark | None = None


Finding = Work | Idle | Stop
