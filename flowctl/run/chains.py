"""The steps of one table: a begun number is finished before what has come since is read."""

from __future__ import annotations

from dataclasses import replace

from flowctl.errors import StalePlan
from flowctl.model.position import CursorPosition
from flowctl.model.step import Plan, Step
from flowctl.state.document import StateDocument

#: A table's steps: one, or that of a begun number and what follows it.
Chain = tuple[Step, ...]
Key = tuple[str, int | None]


def key_of(step: Step) -> Key:
    return step.id, step.follows


def chains_of(plan: Plan) -> list[Chain]:
    by_id: dict[str, Chain] = {}
    for step in plan.steps:
        if step.action != "removed":
            by_id[step.id] = (*by_id.get(step.id, ()), step)
    return list(by_id.values())


def continued(step: Step, finished: Step, document: StateDocument) -> Step:
    """``step`` from the position that the number before it has recorded: only now is it known which rows append has
    written there. Where only the engine could tell the columns, they are those that ``finished`` was written with."""
    recorded, interval = document.table(step.id), step.interval
    if recorded.seq != step.follows or interval is None:
        raise StalePlan(f"{step.id}: sequence number {step.follows} is not the recorded one", hint="Run again")
    lower = interval.lower
    if isinstance(lower, CursorPosition) and isinstance(recorded.position, CursorPosition):
        if lower.at != recorded.position.at:
            raise StalePlan(
                f"{step.id}: sequence number {step.follows} ended at another position than planned", hint="Run again"
            )
        lower = lower if lower.ties is not None else recorded.position
    step = replace(step, interval=replace(interval, lower=lower), target_id=recorded.target_id)
    if step.schema is not None or not finished.projection:
        return step
    return replace(
        step,
        schema=(),
        source_columns=finished.source_columns,
        target_columns=finished.target_columns,
        projection=finished.projection,
    )
