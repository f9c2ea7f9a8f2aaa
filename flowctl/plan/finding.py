"""What a step has to read, or why there is nothing to read, or why it must not read."""

from __future__ import annotations

from dataclasses import dataclass

from flowctl.diagnostics import Mark
from flowctl.model.interval import Interval
from flowctl.model.position import Position
from flowctl.model.step import Check, StoppedBy


@dataclass(frozen=True)
class Work:
    """Something to read. ``notes`` are warnings."""

    interval: Interval
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Idle:
    """Nothing to read. ``upper`` is the table's position (None: none yet)."""

    reason: str
    upper: Position | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stop:
    """The table must not continue: reading or writing would lose, duplicate or freeze rows, or is impossible. ``path``
    is the spec key that locates the error in the file, unless ``mark`` gives a place outside the table."""

    reason: str
    hint: str
    path: str = ""
    by: StoppedBy = "policy"
    checks: tuple[Check, ...] = ()
    mark: Mark | None = None


Finding = Work | Idle | Stop
