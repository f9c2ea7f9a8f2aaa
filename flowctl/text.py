"""Text for people: styled lines, paragraphs and tables that fit a width, counts, sizes and durations in words."""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Line width, in columns, of output that does not go to a terminal: logs, files, pipes.
WIDTH = 100
#: Stands for a space at which :func:`paragraph` breaks no line.
NO_BREAK = "\0"
#: Commands that a reader copies.
_COMMAND = re.compile(r"`[^`]*`")


@dataclass(frozen=True)
class Piece:
    """``style`` is a rich style, for terminals; it carries no information of its own."""

    text: str
    style: str = ""


Line = tuple[Piece, ...]


def plain(lines: Iterable[Line]) -> str:
    """The text without styles and without a final line break."""
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines)


def paragraph(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines of at most ``width`` columns; all but the first are indented. A word longer than a line is broken, but a
    command in backticks stays whole, on a line of its own: pasted, it has to work."""
    kept = _COMMAND.sub(lambda found: found[0].replace(" ", NO_BREAK), text)
    broken = _Wrapper(width, subsequent_indent=" " * indent, break_on_hyphens=False).wrap(kept)
    return [line.replace(NO_BREAK, " ") for line in broken]


class _Wrapper(textwrap.TextWrapper):
    def _handle_long_word(self, reversed_chunks: list[str], cur_line: list[str], cur_len: int, width: int) -> None:
        word = reversed_chunks[-1]
        self.break_long_words = not ("`" in word and NO_BREAK in word)
        super()._handle_long_word(reversed_chunks, cur_line, cur_len, width)


def cut(text: str, width: int) -> str:
    """One line of at most ``width`` columns, ending in … if it was truncated."""
    line = text.replace(NO_BREAK, " ")
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def bytes_in_json(value: bytes) -> dict[str, str]:
    """As ``value`` if it is UTF-8, otherwise as ``base64``."""
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def labelled(label: str, said: str, width: int, style: str = "", room: int = 11) -> list[Line]:
    """An indented paragraph after its label, which is ``room`` columns wide."""
    indent = " " * 4
    return [
        (Piece(f"{indent}{'' if at else label:<{room}}", "dim"), Piece(line, style))
        for at, line in enumerate(paragraph(said, width - len(indent) - room))
    ]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, left: Sequence[str]) -> list[str]:
    """Aligned lines of at most ``width`` columns. The columns named in ``left`` are left-aligned, the widest of them
    truncated if there is no room; all others are right-aligned. A column without values is left out."""
    columns = [(name, cells) for name, *cells in zip(header, *rows, strict=True) if any(cells)]
    widths = {name: max(map(len, (name, *cells))) for name, cells in columns}
    excess = sum(widths.values()) + 2 * (len(widths) - 1) - width
    if excess > 0:
        widest = max((name for name in left if name in widths), key=widths.__getitem__)
        widths[widest] = max(widths[widest] - excess, len(widest))
    shown = [
        [f"{cut(cell, widths[name]):{'<' if name in left else '>'}{widths[name]}}" for cell in (name, *cells)]
        for name, cells in columns
    ]
    return ["  ".join(line).rstrip() for line in zip(*shown, strict=True)]


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 row``, ``1,200 rows``; ``plural`` for nouns that take more than an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def some(names: Sequence[object]) -> str:
    """The first three, and how many more."""
    return ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def quoted(names: Iterable[str]) -> str:
    """``"id", "name"``."""
    return ", ".join(f'"{name}"' for name in names)


def size(length: float) -> str:
    """Bytes: ``120 B``, ``34.1 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if length < 1000:
            return f"{length:,.0f} {unit}" if unit == "B" else f"{length:,.1f} {unit}"
        length /= 1000
    return f"{length:,.1f} TB"


def elapsed(seconds: float) -> str:
    """``41 s``, ``12 min``, ``3.5 h``, ``4 days``."""
    if seconds < 120:
        return f"{seconds:,.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"


def duration(seconds: float) -> str:
    """As written in a spec: ``15m``, ``1d``, ``90s``."""
    for unit, of in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= of and seconds % of == 0:
            return f"{seconds / of:g}{unit}"
    return f"{seconds:g}s"
