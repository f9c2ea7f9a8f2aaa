"""The steps of one table: a begun number is finished before what has come since is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from flowctl.errors import StalePlan
from flowctl.model.position import CursorPosition
from flowctl.model.projection import Columns, RuntimeColumns
from flowctl.model.step import Load, Plan, RecordOnly, Recover, Removed, Runnable, Step, Stopped, UpToDate
from flowctl.state.document import StateDocument

#: Table and sequence number.
Key = tuple[str, int]


@dataclass(frozen=True)
class Chain:
    """A table's steps: one, or that of a begun number and what follows it."""

    first: Runnable | UpToDate | Stopped
    since: Load | Stopped | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return (self.first,) if self.since is None else (self.first, self.since)


def key_of(step: Runnable) -> Key:
    return step.id, step.seq


def chains_of(plan: Plan) -> list[Chain]:
    by_id: dict[str, Chain] = {}
    for step in plan.steps:
        match step:
            case Load(follows=int()) | Stopped(follows=int()):
                by_id[step.id] = replace(by_id[step.id], since=step)
            case Load() | Recover() | RecordOnly() | UpToDate() | Stopped():
                by_id[step.id] = Chain(step)
            case Removed():
                pass
            case _:
                assert_never(step)
    return list(by_id.values())


def continued(step: Load, finished: Step, document: StateDocument) -> Load:
    """``step`` from the position that the number before it has recorded: only now is it known which rows append has
    written there. Where only the engine could tell the columns, they are those that ``finished`` was written with."""
    recorded, interval = document.table(step.id), step.interval
    if recorded.seq != step.follows:
        raise StalePlan(f"{step.id}: sequence number {step.follows} is not the recorded one", hint="Run again")
    lower = interval.lower
    if isinstance(lower, CursorPosition) and isinstance(recorded.position, CursorPosition):
        if lower.at != recorded.position.at:
            raise StalePlan(
                f"{step.id}: sequence number {step.follows} ended at another position than planned", hint="Run again"
            )
        lower = lower if lower.ties is not None else recorded.position
    seen, columns = replace(step.table.seen, id=recorded.target_id), step.columns
    match columns, finished:
        case RuntimeColumns(), Recover(columns=Columns() as written):
            columns = replace(written, changes=(), statements=())
    return replace(step, interval=replace(interval, lower=lower), table=replace(step.table, seen=seen), columns=columns)
