"""What a number is committed over: the very commit that its interval begins at.

A target that is taken back while a run is under way (a copy put in its place, RESTORE) has lost the rows in between,
and its number is lower than ours all the same. Only the commit that state had as the number was begun tells.
"""

from __future__ import annotations

from flowctl.errors import StateConflict


def check_base(place: object, newest: str, base: str | None) -> None:
    """:class:`StateConflict` when the target's newest commit (:attr:`flowctl.model.commit.Commit.name`, empty: none) is
    another than ``base``; None allows any."""
    if base is not None and newest != base:
        raise StateConflict(
            f"{place} was taken back, or written by others, since this number was begun: it carries {_number(newest)}, "
            f"and not the {_number(base)} that the batch continues",
            hint="Plan again: the plan says how to continue",
        )


def _number(name: str) -> str:
    return f"number {name.partition('/')[0]}" if name else "no number"
