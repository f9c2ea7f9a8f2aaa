"""Did you mean: the known name closest to a mistyped one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: Names listed in a hint.
_LISTED = 100


def did_you_mean(written: str, known: Iterable[str], otherwise: str = "") -> str:
    """``Did you mean `name`?``, or ``otherwise`` followed by the known names."""
    names = sorted(known)
    if close := _closest(written, names):
        return f"Did you mean `{close}`?"
    listing = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "") if names else "none"
    return f"{otherwise}{listing}" if otherwise else f"Known: {listing}"


def suggest_connection(written: str, known: Iterable[str]) -> str:
    """For a connection that nothing defines."""
    return did_you_mean(written, known, f"Add it to `connections`, or give --connection {written}=URL; there are: ")


def nearest(written: str, known: Iterable[str], otherwise: str) -> str:
    """``Did you mean `name`?``, ignoring case; ``otherwise`` if no name is close."""
    names = {name.lower(): name for name in known}
    close = _closest(written.lower(), names)
    return f"Did you mean `{names[close]}`?" if close else otherwise


def _closest(written: str, names: Collection[str]) -> str:
    """Empty if no name is close, or if there is too much to compare, which takes quadratic time."""
    from difflib import get_close_matches

    is_short = len(written) <= 100 and len(names) <= 2_000
    return next(iter(get_close_matches(written, names, n=1, cutoff=0.6)), "") if is_short else ""
