"""How large a spec may be. CI validates untrusted specs: validation must be fast, whatever a spec contains.

Each limit is far above what a flow with thousands of tables needs, and each is checked before the work that it limits.
"""

from __future__ import annotations

import re

#: Size of one file, and of all files of a flow together, in characters.
FILE_SIZE = 4 << 20
FLOW_SIZE = 8 << 20
FILES = 1_000
#: Nesting of maps and lists.
DEPTH = 50
#: Values of one file, including those repeated by aliases.
VALUES = 200_000
#: Items of a list that are not all strings: JSON Schema compares every pair.
LIST_ITEMS = 1_000
#: Length of a value, in characters, and of a number.
VALUE_SIZE = 256 << 10
NUMBER_SIZE = 100
#: Values that all tables together inherit from `defaults` and patterns.
INHERITED = 1_000_000
#: Length of a chain of tables that read each other.
CHAIN = 300

_SIGNS = ",\n:[{"


def too_many_values(text: str) -> bool:
    """Whether a YAML text has more values than allowed, checked before parsing: any two values are separated
    by one of the signs."""
    return len(text) > VALUES and sum(map(text.count, _SIGNS)) + text.count("- ") > 2 * VALUES


def shown(text: str) -> str:
    """A part of the spec for a message, truncated to a readable length."""
    return text if len(text) <= 80 else f"{text[:77]}…"


#: A format whose width may be large: four or more digits, or a width that is given as a value.
LONG_FORMAT = re.compile(r"\d{4,}|%[^a-zA-Z%]*\*|\{[^{}]*\{")
