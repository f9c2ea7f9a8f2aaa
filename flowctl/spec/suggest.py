"""Did you mean: the known name closest to a mistyped one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: Names listed in a hint.
_LISTED = 100


def did_you_mean(written: str, known: Iterable[str], otherwise: str = "") -> str:
    """``Did you mean `name`?``, or ``otherwise`` followed by the known names."""
    from difflib import get_close_matches

    names = sorted(known)
    if _is_short(written, names) and (close := get_close_matches(written, names, n=1, cutoff=0.6)):
        return f"Did you mean `{close[0]}`?"
    listing = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "") if names else "none"
    return f"{otherwise}{listing}" if otherwise else f"Known: {listing}"


def nearest(written: str, known: Iterable[str], otherwise: str) -> str:
    """``Did you mean `name`?``, ignoring case; ``otherwise`` if no name is close."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    close = get_close_matches(written.lower(), names, n=1, cutoff=0.6) if _is_short(written, names) else []
    return f"Did you mean `{names[close[0]]}`?" if close else otherwise


def _is_short(written: str, names: Collection[str]) -> bool:
    """Comparing names takes time by the square of their lengths, once per mistake."""
    return len(written) <= 100 and len(names) <= 2_000
