"""How large a spec may be. CI validates the specs of strangers: whatever stands in one, the answer comes at once.

Each limit is far above what a flow of some thousand tables needs, and each is checked before the work that it limits.
"""

from __future__ import annotations

import re

#: Of one file, and of all files of a flow together, in characters.
FILE_SIZE = 4 << 20
FLOW_SIZE = 8 << 20
FILES = 1_000
#: Maps and lists inside each other.
DEPTH = 50
#: Values of one file, those that aliases repeat included.
VALUES = 200_000
#: Of a list whose items are not all texts: JSON Schema compares each with each.
LIST_ITEMS = 1_000
#: Of a value, in characters; a number has fewer.
VALUE_SIZE = 256 << 10
NUMBER_SIZE = 100
#: Values that all tables together inherit from `defaults` and patterns.
INHERITED = 1_000_000
#: Tables that read each other in a row.
CHAIN = 300

_SIGNS = ",\n:[{"


def too_many_values(text: str) -> bool:
    """Whether a YAML text has more values than allowed, before anything is made of it: between two of them there is
    a sign."""
    return len(text) > VALUES and sum(map(text.count, _SIGNS)) + text.count("- ") > 2 * VALUES


def shown(text: str) -> str:
    """A part of the spec for a message, cut where nobody would read on."""
    return text if len(text) <= 80 else f"{text[:77]}…"


#: A run of digits that a format would make as many characters of, or that is not known before.
LONG_FORMAT = re.compile(r"\d{4,}|%[^a-zA-Z%]*\*|\{[^{}]*\{")
