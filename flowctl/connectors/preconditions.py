"""What must hold of a target before a sequence number is committed to it, whichever target it is.

An intent without a target id means *the table that this number makes*: another table under that name is somebody
else's. A number is committed over the very commit that its interval begins at: a target that was restored meanwhile has
lost the rows in between, which only the commit that state had as the number was begun shows.
"""

from __future__ import annotations

from flowctl.errors import StateConflict, StoppedByPolicy
from flowctl.model.commit import Commit


def foreign_target(record: Commit, place: object) -> StoppedByPolicy:
    """The error for ``place``, a table that somebody else has made since the intent of ``record`` was written."""
    return StoppedByPolicy(
        f"{place} exists and was not made by this flow: it was not there when number {record.seq} was begun",
        hint="Plan again: the plan names the commands that take it over or replace it",
    )


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
