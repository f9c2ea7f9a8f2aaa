"""Expands patterns into tables: one per matching object, with placeholders filled in.

Placeholders are ``${table}``, ``${schema}``, ``${connection}`` and ``${id}``; ``$${`` is a literal ``${``. For files
``${table}`` is the file's name without its extensions and ``${schema}`` its folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from operator import is_not
from typing import Any, TypeVar

from flowctl.diagnostics import Diagnostic, Mark
from flowctl.model.table_info import ObjectName
from flowctl.spec.names import is_pattern, names_of
from flowctl.spec.spec import ObjectSource, TableSpec
from flowctl.spec.template import fill_placeholders

#: As in the schema. Commits tables in MySQL hold no longer ones.
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}")

T = TypeVar("T")


@dataclass(frozen=True)
class Expansion:
    """``tables`` are in file order, those of one pattern by object name. ``unmatched`` are the patterns that match
    nothing and lack ``allow_none``. ``diagnostics`` may contain errors."""

    tables: tuple[TableSpec, ...]
    unmatched: tuple[TableSpec, ...]
    diagnostics: tuple[Diagnostic, ...]


def expand(tables: Sequence[TableSpec], discovered: Mapping[str, Sequence[ObjectName]]) -> Expansion:
    """Returns every table of the flow, with patterns and placeholders resolved.

    ``discovered`` holds the objects that each pattern matches, by the pattern's id. If an id also has an exact entry,
    the exact entry wins; the loader has merged it over the pattern key by key.
    """
    exact = {table.id for table in tables if not is_pattern(table.id)}
    expanded: list[TableSpec] = []
    unmatched: list[TableSpec] = []
    for table in tables:
        if not is_pattern(table.id):
            expanded.append(_fill(table))
        elif table.id in discovered:
            matches = _matches(table, discovered[table.id])
            if not matches and not table.allow_none:
                unmatched.append(table)
            concrete = (made_concrete(table, object) for object in matches)
            expanded.extend(one for one in concrete if one.id not in exact)
    return Expansion(tuple(expanded), tuple(unmatched), (*_bad_ids(expanded), *_repeated_ids(expanded)))


def _matches(pattern: TableSpec, objects: Sequence[ObjectName]) -> list[ObjectName]:
    return [object for object in objects if not is_excluded(object, pattern.exclude)]


def is_excluded(object: ObjectName, globs: Sequence[str], fold: Callable[[str], str] = str) -> bool:
    """``fold`` makes two names equal that the source takes for one."""
    names = fold(object.parts[-1]), fold(str(object))
    return any(fnmatchcase(name, fold(glob)) for glob in globs for name in names)


def made_concrete(pattern: TableSpec, object: ObjectName) -> TableSpec:
    """The table of ``pattern`` for an object that it matches."""
    assert isinstance(pattern.source, ObjectSource)
    source = replace(pattern.source, parts=object.parts, is_glob=False)
    names = names_of(source)
    table_id = substitute(pattern.id, names)
    filled = substitute(replace(pattern, id=table_id), {**names, "id": table_id})
    return replace(filled, source=source)  # a discovered name may look like a placeholder


def _fill(table: TableSpec) -> TableSpec:
    names = names_of(table.source) if isinstance(table.source, ObjectSource) else {}
    return substitute(table, {**names, "id": table.id})


def substitute(value: T, names: Mapping[str, str]) -> T:
    """Fills placeholders in every string of ``value``, a frozen dataclass, and everything nested in it. Placeholders
    not in ``names`` are kept; the loader has already refused unknown ones."""
    return _substitute(value, names)  # type: ignore[no-any-return]


def _substitute(value: Any, names: Mapping[str, str]) -> Any:
    """Called for every value of every table, so it returns the same object if nothing is filled in."""
    kind: Any = type(value)
    if kind is str:
        return fill_placeholders(value, names) if "${" in value else value
    if kind is tuple:
        filled = tuple(_substitute(item, names) for item in value)
        return filled if any(map(is_not, filled, value)) else value
    if isinstance(value, Mapping):
        items = {key: _substitute(item, names) for key, item in value.items()}
        return items if any(map(is_not, items.values(), value.values())) else value
    if not (text_fields := _text_fields(kind)):
        return value
    changed = {
        name: after
        for name in text_fields
        if (after := _substitute(before := getattr(value, name), names)) is not before
    }
    return replace(value, **changed) if changed else value


@cache
def _text_fields(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass that may hold text from the spec; empty for anything else."""
    if kind is Mark or not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind) if field.name != "marks")


def _bad_ids(tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    for table in tables:
        if not _ID.fullmatch(table.id):
            yield Diagnostic(
                f"{table.source} gives the id {table.id!r}, which is not a valid id",
                "Exclude the object and write an entry of its own for it: "
                "ids are up to 255 letters, digits, `_`, `.` and `-`, and start with a letter or `_`",
                table.mark,
                "bad-id",
            )


def _repeated_ids(tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    first: dict[str, TableSpec] = {}
    for table in tables:
        earlier = first.setdefault(table.id.lower(), table)
        if earlier is not table:
            yield Diagnostic(
                f"{table.source} gives the id {table.id!r}, which {earlier.source} at {earlier.mark} gives too",
                "Exclude one of them, or put ${schema} into the id",
                table.mark,
                "duplicate-id",
            )
