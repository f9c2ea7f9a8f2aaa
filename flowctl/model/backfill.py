"""A range of the cursor that is read again, as the command line gives it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backfill:
    """``start`` is included, ``stop`` is not: ``--from 2026-10-01 --to 2026-11-01`` is October. Each is text, read as
    the cursor's type; None: no bound of its own (the beginning, or the recorded position). One of the two is given."""

    start: str | None = None
    stop: str | None = None

    def __str__(self) -> str:
        given = (("--from", self.start), ("--to", self.stop))
        return " ".join(f"{option} {text}" for option, text in given if text is not None)
