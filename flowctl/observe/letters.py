"""Whether the place that a spec names for dead letters can take them."""

from __future__ import annotations

from dataclasses import replace

from flowctl.connectors.target import Target
from flowctl.errors import FlowctlError, StoppedByPolicy
from flowctl.model import reserved
from flowctl.observe.asking import Connections
from flowctl.observe.world import Observed
from flowctl.spec.spec import DeadLetters, Layout, TableSpec, TargetRef, TopicLayout


def with_letters(table: TableSpec, seen: Observed, connections: Connections) -> Observed:
    """``seen``, or the reason why dead letters cannot be kept where the spec says."""
    letters = table.dead_letters
    if letters is None or letters.to is None or seen.error is not None:
        return seen
    try:
        target = connections.get(letters.to.connection).target
        assert target is not None, "validate has refused connections that cannot be written"
        _check(target, letters, letters.to)
    except FlowctlError as error:
        error.mark = error.mark or table.mark_of("dead_letters.to")
        return replace(seen, error=error)
    return seen


def _check(target: Target, letters: DeadLetters, to: TargetRef) -> None:
    there = target.describe([to.object])[to.object]
    if there is None:
        refused = target.refuse_create(to.object, Layout(topic=TopicLayout(create=letters.create)))
        if refused is not None:
            why, hint = refused
            raise StoppedByPolicy(f"dead letters: {why}", hint=hint)
    elif not target.is_log and not {column.name.lower() for column in there.columns} >= reserved.LETTERS:
        raise StoppedByPolicy(
            f"{to}, which is for dead letters, exists and was not made by flowctl",
            hint="Rename or drop it, or give the dead letters another `to`",
        )
