"""Which columns an ALTER TABLE ends: what has their names later is something else.

A table map has names, types and an order. From these nobody can tell a column that was dropped and added again, or that
took the name of another, from one that has stayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


#: Character sets that have every character of any other.
_UNICODE = ("UTF8MB4", "UTF16", "UTF16LE", "UTF32")
#: How MariaDB's collations begin that are those of any character set.
_OF_ANY = ("UCA1400",)


@dataclass(frozen=True)
class Alterations:
    """``ended`` columns include those whose values are computed anew. ``converted`` are declared again, and may have
    other values by that; ``converts_texts``: all texts may."""

    ended: tuple[str, ...]
    converted: tuple[str, ...] = ()
    converts_texts: bool = False


def alterations(words: Sequence[Word], *, is_strict: bool) -> Alterations:
    """``words`` follow ALTER TABLE. ``is_strict``: a value that does not fit fails the statement. Raises ``IndexError``
    for a statement that ends too early."""
    parts = list(_parts(words[_after_name(words) :]))
    declared = {name: part for part in parts if (name := _declared(part)) is not None}
    ended = {name: None for part in parts if (name := _ended(part)) is not None}
    computed = {name: None for name, part in declared.items() if _is_computed(part)}
    if is_strict:
        return Alterations((*ended, *computed))
    lossy = {name: None for name, part in declared.items() if _is_in_another_charset(part)}
    return Alterations(
        tuple(ended | computed | lossy),
        tuple(name for name in declared if name not in ended | computed | lossy),
        any(_is(part[0], "CONVERT") and _is_in_another_charset(part) for part in parts if part),
    )


def _declared(part: Sequence[Word]) -> str | None:
    """The column that MODIFY, or CHANGE without another name, declares again. One with another name has ended."""
    if len(part) < 2 or not (_is(part[0], "MODIFY") or _is(part[0], "CHANGE")) or _ended(part) is not None:
        return None
    return part[_after_conditions(part, 2 if _is(part[1], "COLUMN") else 1)].raw


def _is_computed(part: Sequence[Word]) -> bool:
    """A default may be a CAST, whose AS is in parentheses."""
    depth = 0
    for word in part:
        depth += _is(word, "(") - _is(word, ")")
        if depth == 0 and _is(word, "AS"):
            return True
    return False


def _is_in_another_charset(part: Sequence[Word]) -> bool:
    """CHARACTER SET is one word or two. A collation's name begins with that of its character set, if it has one."""
    for place, word in enumerate(part):
        if word.is_quoted or not word.text:
            continue
        first = word.text.split()[0]
        if first in ("ASCII", "UNICODE"):
            return True
        if first in ("CHARACTER", "CHARSET", "COLLATE"):
            rest = [one.text.upper() for one in part[place + 1 : place + 3] if one.text not in ("SET", "=")]
            named = rest[0].partition("_")[0] if rest else ""
            return named not in (_UNICODE if first != "COLLATE" else (*_UNICODE, *_OF_ANY))
    return False


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
