"""When the files of a table are too many."""

from __future__ import annotations

#: A file below ``SMALL`` bytes should be part of a larger one, once a table could have over ``MANY`` files fewer. 2,000
#: small ones cost each merge 5 s: opening one takes as long as reading several megabytes.
SMALL, MANY = 32 << 20, 500


def small_size(target: int) -> int:
    """``SMALL``, for a table whose files are ended at ``target`` bytes. A file that has reached those is never small,
    or it would be written again and again."""
    return min(SMALL, target)
