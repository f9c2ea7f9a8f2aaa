"""The mark of a table that flowctl has made: the id of the intent, so that a table that somebody makes anew is another.
It is where the database keeps a comment."""

from __future__ import annotations

import re

_MARK = "made by flowctl for "
_MARKED = re.compile(re.escape(_MARK) + r"(\S+)")


def mark(intent_id: str) -> str:
    return f"{_MARK}{intent_id}"


def creator_in(comment: str) -> str:
    """The id of the intent; empty if there is none."""
    found = _MARKED.search(comment)
    return found[1] if found else ""


def identity_with(identity: str, creator: str) -> str:
    return f"{identity}/{creator}" if creator else identity
