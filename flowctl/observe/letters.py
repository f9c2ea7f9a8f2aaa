"""Whether the places that a spec names for dead letters can take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flowctl.connectors.target import Target
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.observe.asking import Connections
from flowctl.observe.world import Observed
from flowctl.spec.spec import DeadLetters, TableSpec, TargetRef


def with_letters(
    seen: Mapping[str, Observed], tables: Iterable[TableSpec], connections: Connections
) -> dict[str, Observed]:
    """``seen``, by table id, with the reason why a table's dead letters cannot be kept where its spec says. Each place
    is looked at once, however many tables share it."""
    found = dict(seen)
    reasons: dict[tuple[TargetRef, bool], FlowctlError | None] = {}
    for table in tables:
        letters = table.dead_letters
        if letters is None or letters.to is None or found[table.id].error is not None:
            continue
        place = (letters.to, letters.create is not None)
        if place not in reasons:
            reasons[place] = _why_not(connections, letters, letters.to)
        if (error := reasons[place]) is not None:
            error.mark = error.mark or table.mark_of("dead_letters.to")
            found[table.id] = replace(found[table.id], error=error)
    return found


def _why_not(connections: Connections, letters: DeadLetters, to: TargetRef) -> FlowctlError | None:
    try:
        target = connections.get(to.connection).target
        assert target is not None, "validate has refused connections that cannot be written"
        return _refused(target, letters, to)
    except FlowctlError as error:
        return error


def _refused(target: Target, letters: DeadLetters, to: TargetRef) -> FlowctlError | None:
    there = target.describe([to.object])[to.object]
    if there is None:
        absent = target.refuse_create(to.object, letters.layout)
        return StoppedByPolicy(f"dead letters: {absent[0]}", hint=absent[1]) if absent else None
    refused = target.refuse_letters(there)
    return StoppedByPolicy(f"{to}, which is for dead letters, {refused[0]}", hint=refused[1]) if refused else None
