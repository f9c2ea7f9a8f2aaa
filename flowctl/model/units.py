"""Durations, sizes and percentages as the spec writes them; their patterns are in `schemas/flow.schema.json`."""

from __future__ import annotations

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: A hundred years: no real duration is longer, and times much further away cannot be represented.
LONGEST = "36500d"


def seconds(text: str) -> float:
    """``15m`` → 900.0."""
    digits = text.rstrip("".join(_SECONDS))
    return float(digits) * _SECONDS[text[len(digits) :]]


#: 10³ⁿ and 2¹⁰ⁿ bytes.
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


def size(text: str) -> int:
    """``256MB`` → 256,000,000 bytes."""
    digits = text.rstrip("".join(_BYTES))
    return int(digits) * _BYTES[text[len(digits) :]]


def fraction(text: str) -> float:
    """``5%`` → 0.05."""
    return float(text.removesuffix("%")) / 100
