"""Preconditions for committing a sequence number, the same for every target.

An intent without a target id means *the table that this sequence number creates*: another table under that name is
foreign. A sequence number is committed on top of exactly the commit at which its interval begins: a target that was
restored in the meantime has lost the rows in between, and only the commit that state recorded at the beginning shows
it.
"""

from __future__ import annotations

from flowctl.errors import StateConflict, StoppedByPolicy
from flowctl.model.commit import Commit


def foreign_target(record: Commit, place: object) -> StoppedByPolicy:
    """The error for ``place``, a foreign table created after the intent of ``record`` was written."""
    return StoppedByPolicy(
        f"{place} exists and was not made by this flow: it did not exist when sequence number {record.seq} was begun",
        hint="Plan again: the plan names the commands that take it over or replace it",
    )


def check_base(place: object, newest: str, base: str | None) -> None:
    """Raises :class:`StateConflict` if the target's newest commit (:attr:`flowctl.model.commit.Commit.name`, empty:
    none) is not ``base``; None allows any."""
    if base is None or newest == base:
        return
    found, expected = _number(newest), _number(base)
    has = f"another commit of {found}" if found == expected else found
    raise StateConflict(
        f"{place} was restored, or written by others, since this sequence number was begun: it has {has}, but the batch"
        f" continues after {expected}",
        hint="Plan again: the plan shows how to continue",
    )


def _number(name: str) -> str:
    return f"sequence number {name.partition('/')[0]}" if name else "no commit"
