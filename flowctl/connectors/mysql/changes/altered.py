"""Which columns an ALTER TABLE ends: what has their names later is something else.

A table map has names, types and an order. From these nobody can tell a column that was dropped and added again, or that
took the name of another, from one that has stayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Word(Protocol):
    """``text`` is in capitals unless it ``is_quoted``; ``raw`` as it was written."""

    @property
    def text(self) -> str: ...
    @property
    def is_quoted(self) -> bool: ...
    @property
    def raw(self) -> str: ...


#: What follows DROP and is no column; the word after it, where the first may be the name of one.
_OTHERS = {
    "INDEX": "", "KEY": "", "PRIMARY": "", "FOREIGN": "", "CONSTRAINT": "", "PARTITION": "", "CHECK": "",
    "PERIOD": "FOR", "SYSTEM": "VERSIONING",
}  # fmt: skip


def ended_columns(words: Sequence[Word]) -> tuple[str, ...]:
    """``words`` follow ALTER TABLE. Raises ``IndexError`` for a statement that ends too early."""
    return tuple(name for part in _parts(words[_after_name(words) :]) if (name := _ended(part)) is not None)


def drops_primary_key(words: Sequence[Word]) -> bool:
    """Of what follows ALTER TABLE: also as the index with that name."""
    return any(_drops_primary_key(part) for part in _parts(words[_after_name(words) :]))


def _drops_primary_key(part: Sequence[Word]) -> bool:
    if len(part) < 2 or not _is(part[0], "DROP") or part[1].is_quoted:
        return False
    if part[1].text.split()[:1] == ["PRIMARY"]:  # PRIMARY KEY is one word
        return True
    at = _after_conditions(part, 2)
    return part[1].text in ("INDEX", "KEY", "CONSTRAINT") and at < len(part) and part[at].raw.upper() == "PRIMARY"


def _after_name(words: Sequence[Word]) -> int:
    at = _after_conditions(words, 0)
    at += 3 if at + 1 < len(words) and _is(words[at + 1], ".") else 1
    if at < len(words) and _is(words[at], "WAIT"):
        return at + 2
    return at + 1 if at < len(words) and _is(words[at], "NOWAIT") else at


def _parts(words: Sequence[Word]) -> Iterator[list[Word]]:
    """What is between commas outside of parentheses."""
    part: list[Word] = []
    depth = 0
    for word in words:
        depth += _is(word, "(") - _is(word, ")")
        if depth == 0 and _is(word, ","):
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _ended(part: Sequence[Word]) -> str | None:
    if len(part) < 2:
        return None
    verb, following = part[0], part[1]
    has_word = _is(following, "COLUMN")
    at = _after_conditions(part, 2 if has_word else 1)
    if _is(verb, "DROP"):
        return part[at].raw if has_word or not _is_other(part) else None
    if _is(verb, "CHANGE"):
        return part[at].raw if part[at].raw.lower() != part[at + 1].raw.lower() else None
    return part[at].raw if _is(verb, "RENAME") and has_word else None


def _is_other(part: Sequence[Word]) -> bool:
    word = part[1]
    second = _OTHERS.get(word.text.split()[0]) if word.text and not word.is_quoted else None  # PRIMARY KEY is one word
    if second is None:
        return False
    return not second or (len(part) > 2 and _is(part[2], second))


def _after_conditions(words: Sequence[Word], at: int) -> int:
    while at < len(words) and any(_is(words[at], word) for word in ("IF", "EXISTS")):
        at += 1
    return at


def _is(word: Word, text: str) -> bool:
    return not word.is_quoted and word.text == text
