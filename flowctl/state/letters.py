"""Dead letters in the state of a table: a replay that was asked for, and letters that no longer count.

A letter is known by the sequence number of its commit and the place where it is kept, not by itself: state does not
grow with letters, and nothing needs to be removed for a letter to be settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flowctl.model.codec import in_json


@dataclass(frozen=True)
class Replay:
    """`dlq replay`: the next run reads the dead letters in ``place`` again, of which there were ``letters``."""

    letters: int
    place: str


@dataclass(frozen=True)
class PassedLetters:
    """Dead letters of the sequence numbers from ``first`` to ``last`` that no longer count, even if they are still
    there: they were read again, or their commit is gone. Those in ``place``; empty: wherever they are."""

    first: int
    last: int
    place: str = field(default="", metadata=in_json("not_default"))

    def covers(self, other: PassedLetters) -> bool:
        return self.first <= other.first and other.last <= self.last and self.place in ("", other.place)


def with_passed(known: Sequence[PassedLetters], new: PassedLetters) -> tuple[PassedLetters, ...]:
    if new.last < new.first or any(one.covers(new) for one in known):
        return tuple(known)
    return (*(one for one in known if not new.covers(one)), new)


def without_number(known: Sequence[PassedLetters], number: int) -> tuple[PassedLetters, ...]:
    """The letters of ``number`` count again, wherever they are."""
    parts = (
        part
        for one in known
        for part in (replace(one, last=min(one.last, number - 1)), replace(one, first=max(one.first, number + 1)))
        if part.first <= part.last
    )
    return tuple(dict.fromkeys(parts))


def passed_at(known: Sequence[PassedLetters], place: str) -> list[tuple[int, int]]:
    """The first and the last number of each range that does not count in ``place``."""
    return [(one.first, one.last) for one in known if one.place in ("", place)]
