"""Names that a spec accepts, made from names of a source."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence

from flowctl.model.table_info import ObjectName

#: Longer ids would make paths that some file systems refuse.
_LONGEST = 100


def plain_name(name: str, otherwise: str) -> str:
    """``name`` with letters of ASCII, digits and `_` only, which begins with none of the digits; ``otherwise`` if
    nothing of it is left."""
    ascii = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"\W+", "_", ascii).strip("_")[:_LONGEST]
    if not plain:
        return otherwise
    return f"_{plain}" if plain[0].isdigit() else plain


def table_ids(names: Sequence[tuple[str, ...]]) -> list[str]:
    """An id for each table: the last part of its name; with the part above if several tables have it. Ids differ in
    more than case."""
    short = [plain_name(parts[-1], "table") for parts in names]
    count = Counter(map(str.lower, short))
    ids: list[str] = []
    taken: set[str] = set()
    for parts, name in zip(names, short, strict=True):
        above = plain_name(parts[-2], "") if len(parts) > 1 and count[name.lower()] > 1 else ""
        ids.append(_free(f"{above}_{name}" if above else name, taken))
        taken.add(ids[-1].lower())
    return ids


def renamed_column(name: str, taken: Collection[str]) -> str:
    """A name for ``name`` that every target accepts and that differs from those ``taken`` in more than case."""
    return _free(plain_name(name, "column"), {one.lower() for one in taken})


def object_reference(object: ObjectName) -> str:
    """The dotted name as a spec has it, in quotes where it needs them."""
    return ".".join(part if re.fullmatch(r"\w+", part) else _quoted(part) for part in object.parts)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def _free(name: str, taken: Collection[str]) -> str:
    number, free = 2, name
    while free.lower() in taken:
        free, number = f"{name}_{number}", number + 1
    return free
