"""One writer per place, and no table that reads what it writes: as far as the spec alone shows.

What only the system knows (PostgreSQL's search path, two names of one host) stops the table in the plan
(:func:`flowctl.plan.build.shared_places`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic
from flowctl.model import reserved
from flowctl.model.sidecars import DEAD_LETTERS, OBSERVED, QUARANTINE
from flowctl.model.table_info import ObjectName
from flowctl.resolve.expand import is_excluded, made_concrete
from flowctl.spec.names import is_pattern
from flowctl.spec.semantics import same_target
from flowctl.spec.spec import Connection, ObjectSource, Spec, TableSpec, TargetRef

#: Suffixes of a table's sidecars, appended to its own name, with what they hold.
SIDECARS: Mapping[str, str] = {
    OBSERVED: "observations",
    QUARANTINE: "quarantined rows",
    DEAD_LETTERS: "dead letters",
}

PlaceOf = Callable[[Connection, ObjectName], str | None]


def owner_name(name: str) -> str:
    """The name of the table that a sidecar belongs to; any other name is returned unchanged."""
    return next((name.removesuffix(suffix) for suffix in SIDECARS if name.endswith(suffix)), name)


def sidecars_of(table: TableSpec) -> tuple[str, ...]:
    """The suffixes of the sidecars that a table has or may get."""
    wanted = {
        OBSERVED: table.mode == "scd2",
        QUARANTINE: table.quarantines and table.dead_letters is None,
        DEAD_LETTERS: table.dead_letters is not None and table.dead_letters.to is None,
    }
    return tuple(suffix for suffix, has in wanted.items() if has)


def letters_of(table: TableSpec) -> TargetRef:
    """Where the table keeps its dead letters, or would if it kept any."""
    if table.dead_letters is not None and table.dead_letters.to is not None:
        return table.dead_letters.to
    *above, name = table.target.parts
    return TargetRef(table.target.connection, (*above, name + DEAD_LETTERS))


def check(spec: Spec, tables: Sequence[TableSpec]) -> Iterator[Diagnostic]:
    def place_of(connection: Connection, object: ObjectName) -> str | None:
        return registry.place(connection, object, spec.base_dir)

    yield from find_shared(tables, spec.connections, place_of)
    for pattern in spec.tables:
        if is_pattern(pattern.id):
            yield from _matches_own(pattern, spec.connections, place_of)


def find_shared(
    tables: Sequence[TableSpec], connections: Mapping[str, Connection], place_of: PlaceOf
) -> Iterator[Diagnostic]:
    """Yields a diagnostic for each table whose target is taken by another table, is reserved, or is its own source."""
    written: dict[str, TableSpec] = {}
    places = [_target_place(table, connections, place_of) for table in tables]
    for table, place in zip(tables, places, strict=True):
        earlier = next((written[name] for name in (_named(table), place) if name in written), None)
        for name in (_named(table), place):
            if name is not None:
                written.setdefault(name, table)
        if earlier is not None:
            yield same_target(earlier, table)
        if table.target.parts[-1].startswith(reserved.PREFIX):
            yield _refused(table, f"{table.target}: names that begin with {reserved.PREFIX} are flowctl's own")
        if place is not None and _reads(table, place, connections, place_of):
            yield _refused(table, f"`{table.id}` reads {table.source} and writes to the same place")
    for table, place in zip(tables, places, strict=True):
        above = next((written[folder] for folder in _above(place or "") if folder in written), None)
        if above is not None:
            yield _refused(table, f"{table.target} is in the folder of {above.target}, where `{above.id}` is written")
        for suffix, what in SIDECARS.items():
            for name in (_named(table), place):
                owner = written.get(name.removesuffix(suffix)) if name and name.endswith(suffix) else None
                if owner is not None:
                    yield _refused(table, f"{table.target} is where `{owner.id}` ({owner.mark}) keeps its {what}")
                    break
    for table in tables:
        to = table.dead_letters.to if table.dead_letters is not None else None
        if to is not None and (why := _taken_by_others(table, to, written, connections, place_of)):
            yield Diagnostic(why, "Give its dead letters another `to`", table.mark_of("dead_letters.to"), "same-target")


def _matches_own(pattern: TableSpec, connections: Mapping[str, Connection], place_of: PlaceOf) -> Iterator[Diagnostic]:
    """Yields a diagnostic for each place that the tables of ``pattern`` write, and that it would find in the next run:
    each run would add a table. Looks at one name that the pattern matches."""
    source = pattern.source
    if not isinstance(source, ObjectSource):
        return
    found = ObjectName(tuple(re.sub(r"[*?]", "x", part) for part in source.parts))
    one, many = (place_of(connections[source.connection], object) for object in (found, ObjectName(source.parts)))
    if one is None or many is None:
        return
    table = replace(made_concrete(pattern, found), source=source)
    places = [("to", "", table.target)]
    if table.dead_letters is not None and table.dead_letters.to is not None:
        places.append(("dead_letters.to", " for dead letters", table.dead_letters.to))
    for path, what, to in places:
        place = place_of(connections[to.connection], to.object)
        if place is None or place == one or is_excluded(to.object, pattern.exclude):
            continue
        if _matches(many, place) or _reads(table, place, connections, place_of):
            yield Diagnostic(
                f"`{pattern.id}` reads {source}, which matches {to}, where it writes{what}",
                f"Exclude it: `exclude: [{_glob_of(to, found)}]`, or give it another `to`",
                pattern.mark_of(path),
                "same-target",
            )


def _glob_of(to: TargetRef, found: ObjectName) -> str:
    """What excludes ``to`` and the same of every other name than ``found``."""
    return f'"{to.parts[-1].replace(found.parts[-1], "*")}"'


def _taken_by_others(
    table: TableSpec,
    to: TargetRef,
    written: Mapping[str, TableSpec],
    connections: Mapping[str, Connection],
    place_of: PlaceOf,
) -> str:
    """Why dead letters cannot be kept in ``to``; empty if they can. ``written`` has the tables by their places. Tables
    may share a place for dead letters."""
    if to.parts[-1].startswith(reserved.PREFIX):
        return f"{to}: names that begin with {reserved.PREFIX} are flowctl's own"
    place = place_of(connections[to.connection], to.object)
    if place is not None and _reads(table, place, connections, place_of):
        return f"`{table.id}` reads {table.source} and sends its dead letters to the same place"
    for name in (str(to).lower(), place):
        if name is None:
            continue
        if name in written:
            return f"{to} is where `{written[name].id}` is written: it cannot have dead letters of `{table.id}`"
        for suffix, what in SIDECARS.items():
            owner = written.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if owner is not None and (suffix, owner) != (DEAD_LETTERS, table):
                return f"{to} is where `{owner.id}` ({owner.mark}) keeps its {what}"
    return ""


def _above(place: str) -> Iterator[str]:
    """The folders above a place."""
    while "/" in place:
        place = place.rpartition("/")[0]
        yield place


def _named(table: TableSpec) -> str:
    return str(table.target).lower()


def _target_place(table: TableSpec, connections: Mapping[str, Connection], place_of: PlaceOf) -> str | None:
    return place_of(connections[table.target.connection], table.target.object)


def _reads(table: TableSpec, place: str, connections: Mapping[str, Connection], place_of: PlaceOf) -> bool:
    """Whether the source is the target, lies in its folder, or is a pattern that the target's files match."""
    if not isinstance(table.source, ObjectSource):
        return False
    source = place_of(connections[table.source.connection], ObjectName(table.source.parts))
    if source is None:
        return False
    return (
        source == place
        or source.startswith(place + "/")
        or _matches(source, f"{place}/1.{table.layout.files.extension}")
    )


def _matches(pattern: str, path: str) -> bool:
    if not set(pattern) & set("*?["):
        return False
    from fsspec.utils import glob_translate

    try:
        return re.match(glob_translate(pattern), path) is not None
    except ValueError:  # which its connector refuses
        return False


def _refused(table: TableSpec, message: str) -> Diagnostic:
    return Diagnostic(message, "Give it another `to`", table.mark_of("to"), "same-target")
