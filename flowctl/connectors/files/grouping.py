"""Which files of a folder are one table, for `flowctl init`: a pure function of their paths.

- Folders that only divide a table (`year=2026`, `2026-01`, `05`) belong to the table above them.
- Files whose names differ in digits alone (`orders_2026-01.csv`, `orders_2026-02.csv`) are one table.
- Files of a folder whose names are all such parts (`part-0001.parquet`, `2026-01.csv`) are the table of the folder.
- Every other file is a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

_DIVIDES = re.compile(r"[^=]+=.*|[\d_.-]*\d[\d_.-]*")
_PART = re.compile(r"(part|data|file|chunk|batch|export|dump|page)?s?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}|\d+", re.IGNORECASE)
_ENDINGS = re.compile(r"((?:\.[A-Za-z]\w{0,8}){1,2})$")


@dataclass(frozen=True)
class Group:
    """``pattern`` matches ``paths``, and with ``is_many`` files like them that may come. ``name`` is that of the table,
    after the folder that it is in."""

    pattern: str
    paths: tuple[str, ...]
    is_many: bool
    name: tuple[str, ...]


def groups_of(paths: Iterable[str]) -> list[Group]:
    """``paths`` are relative, of files of known formats; the result is sorted by pattern."""
    found: list[Group] = []
    by_place: dict[tuple[str, bool, str], list[str]] = {}
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        above = _undivided(folder)
        by_place.setdefault((above, above != folder, ending_of(name)), []).append(path)
    for (folder, is_divided, ending), inside in by_place.items():
        if is_divided:
            found.append(Group(f"{_below(folder)}**/*{_exactly(ending)}", tuple(inside), True, _name(folder)))
        else:
            found += _of_folder(folder, ending, inside)
    return sorted(found, key=lambda group: group.pattern)


def merged(groups: Sequence[Group]) -> Group:
    """All of ``groups``, single files of one folder with one ending, as one."""
    first = groups[0].paths[0]
    folder, _, name = first.rpartition("/")
    paths = tuple(sorted(path for group in groups for path in group.paths))
    return Group(f"{_below(folder)}*{_exactly(ending_of(name))}", paths, True, _name(folder))


def _of_folder(folder: str, ending: str, paths: Sequence[str]) -> list[Group]:
    by_stem: dict[str, list[str]] = {}
    for path in paths:
        by_stem.setdefault(_skeleton(path.rpartition("/")[2].removesuffix(ending)), []).append(path)
    whole = f"{_below(folder)}*{_exactly(ending)}"
    if folder and len(by_stem) == 1 and _PART.fullmatch(next(iter(by_stem)).strip("_.- ")):
        return [Group(whole, tuple(paths), True, _name(folder))]
    found = []
    for stem, same in by_stem.items():
        prefix = _prefix([path.rpartition("/")[2] for path in same])
        pattern = f"{_below(folder)}{_exactly(prefix)}*{_exactly(ending)}"
        if len(same) > 1 and [path for path in paths if fnmatchcase(path, pattern)] == same:
            found.append(Group(pattern, tuple(same), True, (*_name(folder), stem or "table")))
        else:
            found += [Group(_exactly(path), (path,), False, _name(path.removesuffix(ending))) for path in same]
    return found


def _undivided(folder: str) -> str:
    """``folder`` without the folders at its end that only divide a table."""
    parts = folder.split("/") if folder else []
    while len(parts) > 1 and _DIVIDES.fullmatch(parts[-1]):
        parts.pop()
    return "/".join(parts)


def _skeleton(stem: str) -> str:
    """What is left of a name without its numbers: ``orders_2026-01`` → ``orders``."""
    return re.sub(r"[\W_]+$", "", re.sub(r"[\W_]*\0[\W_]*", "_", _NUMBER.sub("\0", stem)).strip("_"))


def _prefix(names: Sequence[str]) -> str:
    """What the names begin with, up to the first number: ``orders_2026-01``, ``orders_2026-02`` → ``orders_``."""
    least, greatest = min(names), max(names)
    length = next((at for at, pair in enumerate(zip(least, greatest, strict=False)) if pair[0] != pair[1]), len(least))
    return re.sub(r"(^|[\W_]?)[\W_\d]*$", r"\1", least[:length]) if length else ""


def _name(path: str) -> tuple[str, ...]:
    return tuple(path.split("/")[-2:])


def ending_of(name: str) -> str:
    """The extension of a file's name, with that of its compression: ``.csv.gz``; empty if it has none."""
    found = _ENDINGS.search(name)
    return found[1] if found else ""


def _below(folder: str) -> str:
    return f"{_exactly(folder)}/" if folder else ""


def _exactly(text: str) -> str:
    """``text`` as a pattern that matches it alone."""
    return re.sub(r"([*?\[])", r"[\1]", text)
