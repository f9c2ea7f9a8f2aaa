"""Suffixes of the tables that flowctl keeps beside a target, appended to its own name."""

from __future__ import annotations

OBSERVED, QUARANTINE, DEAD_LETTERS = "__observed", "__quarantine", "__dead_letters"
