"""Whether the places that a spec names for dead letters can take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flowctl.connectors.target import Target
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model.table_info import TableInfo
from flowctl.observe.asking import Connections
from flowctl.observe.world import Observed
from flowctl.spec.spec import DeadLetters, TableSpec, TargetRef


def with_letters(
    seen: Mapping[str, Observed],
    tables: Iterable[TableSpec],
    connections: Connections,
    recorded: Mapping[str, str],
) -> dict[str, Observed]:
    """``seen``, by table id, with the reason why a table's dead letters cannot be kept where its spec says. Each place
    is looked at once, however many tables share it. ``recorded`` are the identities of the flow's targets as state has
    them, by table id."""
    found = dict(seen)
    places: dict[tuple[TargetRef, bool], tuple[str, FlowctlError | None]] = {}
    observed = {id: there.identity for id, one in seen.items() if (there := one.target or one.unwritten)}
    written = {identity: id for id, identity in {**recorded, **observed}.items() if identity}
    for table in tables:
        letters = table.dead_letters
        if letters is None or letters.to is None or found[table.id].error is not None:
            continue
        place = (letters.to, letters.create is not None)
        if place not in places:
            places[place] = _look(connections, letters, letters.to)
        identity, error = places[place]
        error = error or _taken(table, letters.to, identity, found[table.id].source, written)
        if error is not None:
            error.mark = error.mark or table.mark_of("dead_letters.to")
            found[table.id] = replace(found[table.id], error=error)
    return found


def _taken(
    table: TableSpec, to: TargetRef, identity: str, source: TableInfo | None, written: Mapping[str, str]
) -> StoppedByPolicy | None:
    """As :func:`flowctl.resolve.places.find_shared`, where two names of a system lead to one place. A table that read
    its own letters would never end."""
    if not identity:
        return None
    hint = "Give its dead letters another `to`"
    if source is not None and source.identity == identity:
        return StoppedByPolicy(f"{table.source} and {to}, for its dead letters, are the same place", hint=hint)
    if (other := written.get(identity)) is not None:
        return StoppedByPolicy(f"{to} is where {other} is written: it cannot have dead letters", hint=hint)
    return None


def _look(connections: Connections, letters: DeadLetters, to: TargetRef) -> tuple[str, FlowctlError | None]:
    """The identity of what exists there (empty: nothing), and why it takes no letters."""
    try:
        target = connections.target(to.connection)
        there = target.describe([to.object])[to.object]
        return there.identity if there else "", _refused(target, letters, to, there)
    except FlowctlError as error:
        return "", error


def _refused(target: Target, letters: DeadLetters, to: TargetRef, there: TableInfo | None) -> FlowctlError | None:
    if there is None:
        absent = target.refuse_create(to.object, letters.layout)
        return StoppedByPolicy(f"dead letters: {absent[0]}", hint=absent[1]) if absent else None
    refused = target.refuse_letters(there)
    return StoppedByPolicy(f"{to}, which is for dead letters, {refused[0]}", hint=refused[1]) if refused else None
