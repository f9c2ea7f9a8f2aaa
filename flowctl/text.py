"""Text for people: paragraphs that fit a width, counts, sizes and durations in words."""

from __future__ import annotations

import re
import textwrap

#: Columns of what is not shown on a terminal: logs, files, pipes.
WIDTH = 100
#: Stands for a space at which :func:`paragraph` breaks no line.
NO_BREAK = "\0"
#: Commands that a reader copies.
_COMMAND = re.compile(r"`[^`]*`")


def paragraph(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines of at most ``width`` columns; all but the first are indented. Commands in backticks stay whole where they
    fit; only a word longer than a line is broken."""
    kept = _COMMAND.sub(lambda found: found[0].replace(" ", NO_BREAK), text)
    broken = textwrap.wrap(kept, width, subsequent_indent=" " * indent, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in broken]


def cut(text: str, width: int) -> str:
    """One line of at most ``width`` columns, with … where something is missing."""
    line = text.replace(NO_BREAK, " ")
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def counted(count: int, noun: str) -> str:
    """``1 row``, ``1,200 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(length: float) -> str:
    """Bytes: ``120 B``, ``34.1 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if length < 1000:
            return f"{length:,.0f} {unit}" if unit == "B" else f"{length:,.1f} {unit}"
        length /= 1000
    return f"{length:,.1f} TB"


def duration(seconds: float) -> str:
    """As a spec has it: ``15m``, ``1d``, ``90s``."""
    for unit, of in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= of and seconds % of == 0:
            return f"{seconds / of:g}{unit}"
    return f"{seconds:g}s"
