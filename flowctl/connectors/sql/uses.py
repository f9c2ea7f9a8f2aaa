"""What uses a target's column, so that the database does not change or drop it, in the words of every database."""

from __future__ import annotations

from collections.abc import Sequence

#: Where the database does not say what it is.
DROP_WHAT_USES_IT = "Drop what uses the column, run, and make it again"


def joined(names: Sequence[str]) -> str:
    """None is left out: each has to go."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def drop_them(names: Sequence[str]) -> str:
    return f"Drop {joined(names)}, run, and make {'it' if len(names) == 1 else 'them'} again"
