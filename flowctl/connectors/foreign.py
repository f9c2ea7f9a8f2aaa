"""A target that was not there when its number was begun must be made under that number, or be refused.

An intent without a target id means *the table that this number makes*. Another table under that name belongs to
somebody else, whose rows a truncate would delete and an append would mix with ours.
"""

from __future__ import annotations

from flowctl.errors import StoppedByPolicy
from flowctl.model.commit import Commit


def foreign_target(record: Commit, place: object) -> StoppedByPolicy:
    """The error for ``place``, a table that somebody else has made since the intent of ``record`` was written."""
    return StoppedByPolicy(
        f"{place} exists and was not made by this flow: it was not there when number {record.seq} was begun",
        hint="Plan again: the plan names the commands that take it over or replace it",
    )
