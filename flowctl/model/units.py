"""Durations and percentages as the spec writes them; their patterns are in `schemas/flow.schema.json`."""

from __future__ import annotations

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: A hundred years: no real duration is longer, and times much further away cannot be represented.
LONGEST = "36500d"


def seconds(text: str) -> float:
    """``15m`` → 900.0."""
    digits = text.rstrip("".join(_SECONDS))
    return float(digits) * _SECONDS[text[len(digits) :]]


def fraction(text: str) -> float:
    """``5%`` → 0.05."""
    return float(text.removesuffix("%")) / 100
