"""A change stream in the plan: whether it begins, advances or stops, and the step of each of its tables. Pure.

A table is read in full at a *moment* of the source's log, and from there on takes the changes of its stream. Which
batches those are is known only once they are captured, so an :class:`Advance` fixes where the run ends and what each
policy does, not how many commits it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flowctl.changes.shape import Shape
from flowctl.diagnostics import Mark
from flowctl.model.interval import Interval
from flowctl.model.position import LandedPosition, Position, comparable
from flowctl.model.step import Advance, Load, RecordOnly, Recover, Stopped, StreamAction, StreamPlan, StreamStep
from flowctl.model.table_info import same_identity
from flowctl.observe.world import SeenStream
from flowctl.plan import checks, recovery
from flowctl.plan.case import Case
from flowctl.plan.commands import state_command
from flowctl.plan.finding import Stop, Work
from flowctl.plan.how import how
from flowctl.plan.landed_columns import announced, columns_in_turn, columns_of_shapes, with_source_columns
from flowctl.plan.reading import columns_of, planned_table, rfc3339, stopped, working
from flowctl.plan.refusals import refuse_columns
from flowctl.plan.stops import first_stop
from flowctl.plan.stream_stops import (
    first_stream_stop,
    stop_by_problem,
    stop_if_appended_again,
    stop_if_partitions_moved,
    unclear_partitions,
    undelivered_columns,
)
from flowctl.plan.unsent import stop_if_unsent, unsent_columns, unsent_in_shapes, what
from flowctl.spec.spec import Spec, StreamSpec
from flowctl.state.streams import applied
from flowctl.storage.landing import LandedTable
from flowctl.text import counted, some


@dataclass(frozen=True)
class StreamCase:
    """One stream with everything known about it. ``spec_path`` names the spec in commands."""

    spec: StreamSpec
    seen: SeenStream
    spec_path: str

    @property
    def is_begun(self) -> bool:
        """Whether its reader was created, and captured from a known point on."""
        return self.seen.newest is not None

    @property
    def is_anew(self) -> bool:
        """Whether a user has asked for a new reader."""
        return self.seen.state.stream is not None and self.seen.state.stream.anew

    @property
    def applied(self) -> int:
        return self.seen.state.stream.applied if self.seen.state.stream else 0


def plan_stream(case: StreamCase, tables: Sequence[Case]) -> StreamPlan:
    """``tables`` are its selected tables, in the order of the plan."""
    seen, info, spec = case.seen, case.seen.info, case.spec
    lost = _lost(case)
    stop = _stop(case, lost)
    is_new = not case.is_begun or case.is_anew or (lost != "" and spec.on_lost_position == "resnapshot")
    steps = [step for table in tables for step in _table_steps(case, table, stop=stop, is_new=is_new)]
    holding = _holding(case, tables, steps)
    if holding:
        steps = _waiting(tables, steps, holding)
    action, reason = _action(case, stop, steps, holding, is_new=is_new)
    return StreamPlan(
        name=spec.name,
        mark=(stop.mark if stop else None) or spec.mark,
        connection=spec.connection,
        action=action,
        reason=f"{reason}: {lost}" if lost and not stop else reason,
        hint=stop.hint if stop else "",
        lineage=seen.state.recorded_lineage,
        serial=seen.state.serial,
        label=info.label if info else "",
        landed=spec.landed,
        lower=seen.newest.upper if seen.newest else None,
        upper=info.head if info else None,
        lower_time=seen.newest.event_at if seen.newest else "",
        upper_time=rfc3339(info.clock) if info else "",
        batch=seen.newest.batch if seen.newest else 0,
        applied=case.applied,
        waiting=sum(batch.changes for batch in seen.waiting if batch.batch > case.applied),
        lag=info.lag if info else None,
        retained=info.retained if info else None,
        health=info.health if info else {},
        source_changes=() if stop or info is None else info.source_changes,
        notes=tuple(_notes(case, steps)) if not stop else (),
        steps=tuple(steps),
    )


def former_stream(name: str, seen: SeenStream, spec: Spec) -> StreamPlan:
    """The item of a stream that no table reads any more: nothing is done with it."""
    stream, info = seen.state.stream, seen.info
    assert stream is not None
    what = info.label if info is not None and info.keeps_reader and info.oldest is not None else ""
    if stream.options.get("landed"):
        reason = "no table reads it any more"
    elif what:
        reason = f"no table reads it any more, but its {what} goes on keeping the log of {stream.connection}"
    elif info is not None and not info.keeps_reader:
        reason = "no table reads it any more"
    elif info is not None:
        reason = "no table reads it any more; its reader in the source is gone"
    else:
        why = seen.error.message if seen.error else f"the spec has no connection {stream.connection}"
        reason = f"no table reads it any more; whether its reader keeps the source's log is not known: {why}"
    return StreamPlan(
        name=name,
        mark=Mark(spec.path, 1),
        connection=stream.connection,
        action="removed",
        reason=reason,
        hint=f"End it with {state_command('end-stream', spec.argument, name)}",
        lineage=seen.state.recorded_lineage,
        serial=seen.state.serial,
        label=info.label if info else "",
        applied=stream.applied,
        retained=info.retained if info else None,
        health=info.health if info else {},
    )


def _action(
    case: StreamCase, stop: Stop | None, steps: Sequence[StreamStep], holding: Sequence[str], *, is_new: bool
) -> tuple[StreamAction, str]:
    if stop is not None:
        return "stop", stop.reason
    is_all = all(isinstance(step, Stopped) for step in steps)
    if is_all and is_new:
        return "none", "all of its tables are stopped"
    if is_all or holding:
        return "capture", "captures only, while its tables are stopped"
    if is_new:
        return "create", "begins" if not case.is_begun else "begins anew"
    info, newest = case.seen.info, case.seen.newest
    assert info is not None and newest is not None
    if (
        not _is_beyond(info.head, newest.upper)
        and newest.batch == case.applied
        and not info.source_changes
        and not _lagging(case, steps)
        and not any(isinstance(one, Load | Recover | RecordOnly) for one in steps)
    ):
        return "none", "nothing has happened in the source"
    return "advance", "continues"


def _lagging(case: StreamCase, steps: Sequence[StreamStep]) -> bool:
    """Whether a table that takes part is behind the others, or has yet to join them."""
    numbers = [applied(case.seen.state, step.id) for step in steps if isinstance(step, Advance)]
    return any(number is None or number < case.applied for number in numbers)


def _stop(case: StreamCase, lost: str) -> Stop | None:
    seen, info, spec = case.seen, case.seen.info, case.spec
    if seen.error is not None:
        return Stop(seen.error.message, seen.error.hint, "", "error", mark=seen.error.mark)
    assert info is not None
    if found := next((problem for problem in info.problems if problem.object is None), None):
        return Stop(found.what, found.repair)
    is_kept = info.keeps_reader and info.oldest is not None
    if not case.is_begun and not spec.landed and is_kept and not _is_own(case):
        hint = f"Give the stream another name for it, or remove this one: {info.removal}"
        return Stop(f"the {info.label} exists and was not made by this flow", hint)
    if lost and spec.on_lost_position == "fail":
        again = state_command("resnapshot", case.spec_path, spec.name)
        hint = f"{again} reads its tables again, without emptying their targets first"
        return Stop(f"the position is lost: {lost}", hint)
    return None


def _is_own(case: StreamCase) -> bool:
    """Whether a reader that was found is one whose creation was interrupted."""
    stream = case.seen.state.stream
    return stream is not None and stream.begun != ""


def _lost(case: StreamCase) -> str:
    """Why the source no longer has what follows the captured batches; empty if it has."""
    info, newest, recorded = case.seen.info, case.seen.newest, case.seen.state.stream
    if info is None or newest is None or recorded is None or recorded.anew:
        return ""
    if recorded.source and not same_identity(recorded.source, info.system):
        return f"the source is another system now ({recorded.source} → {info.system})"
    if info.oldest is None:
        return f"the {info.label} is gone"
    if recorded.published and recorded.published != info.published:
        return "the publication was changed, made again or dropped, and has no changes from in between"
    if info.lost:
        return info.lost
    if not comparable(info.head, newest.upper):
        return f"positions are of another kind now ({newest.upper} → {info.head})"
    if _is_beyond(info.oldest, newest.upper) and not info.keeps_reader:
        return f"the {info.label} begins at {info.oldest}, and captured is only up to {newest.upper}: it was purged"
    if _is_beyond(info.oldest, newest.upper):
        return f"the {info.label} is at {info.oldest}, and captured is only up to {newest.upper}"
    if not case.spec.landed and _is_beyond(newest.upper, info.head):
        return f"the source is at {info.head}, before what was captured ({newest.upper}): it was restored"
    return ""


def _is_beyond(one: Position, other: Position) -> bool:
    return type(one) is type(other) and one > other  # type: ignore[operator]


def _notes(case: StreamCase, steps: Sequence[StreamStep]) -> Iterator[str]:
    info, standby = case.seen.info, case.spec.snapshot_from
    if standby and any(isinstance(step, Load) for step in steps):
        yield f"tables are read in full from {standby}"
    if info is not None and info.active:
        yield f"{info.active} reads it now, and is ended"


def _table_steps(case: StreamCase, table: Case, *, stop: Stop | None, is_new: bool) -> Iterator[StreamStep]:
    if stop is not None:
        reason = f"its stream {case.spec.name} is stopped"
        yield stopped(table, replace(stop, reason=reason, hint="", path="from", mark=None))
        return
    assert case.seen.info is not None
    problems = [one for one in case.seen.info.problems if one.object is not None]
    found = stop_by_problem(table, problems) or first_stop(table) or first_stream_stop(table)
    if found is None and not is_new:
        found = stop_if_partitions_moved(table, case.spec)
    if found is not None:
        yield stopped(table, found)
        return
    if table.begun is not None:
        yield from _finished(case, table, is_new=is_new)
        return
    yield _current(case, table, is_new=is_new)


def _holding(case: StreamCase, tables: Sequence[Case], steps: Sequence[StreamStep]) -> list[str]:
    """The stopped tables for which the others wait (`on_table_error: stop`): all have come equally far. One that has
    never been read has nothing to do with the others."""
    joined = {table.table.id for table in tables if _batch(case, table) is not None}
    holding = [step.id for step in steps if isinstance(step, Stopped) and step.id in joined]
    return holding if case.spec.on_table_error == "stop" else []


def _waiting(tables: Sequence[Case], steps: Sequence[StreamStep], holding: Sequence[str]) -> list[StreamStep]:
    found: list[StreamStep] = []
    by_id = {table.table.id: table for table in tables}
    for step in steps:
        if isinstance(step, Advance | Load):
            reason = f"waits for {some(holding)} (on_table_error: stop)"
            hint = f"Fix {some(holding)}, or let the others go on: on_table_error: detach"
            step = stopped(by_id[step.id], Stop(reason, hint, "from", "dependency"))
        found.append(step)
    return found


def _finished(case: StreamCase, table: Case, *, is_new: bool) -> Iterator[StreamStep]:
    """A pending sequence number: one of landed batches is finished, a snapshot's moment is gone for ever."""
    begun = table.begun
    assert begun is not None
    if not table.is_committed and (begun.interval.lower is None or is_new):
        yield _current(case, recovery.giving_up(table), is_new=is_new)
        return
    # A snapshot has the columns of the source; a batch has those of its changes, not of later ones, whose new columns
    # would be recorded as if they were known.
    upper = begun.interval.upper
    through = upper.batch if isinstance(upper, LandedPosition) else None
    as_read = table if begun.interval.lower is None else _as_landed(case, table, through)
    step = recovery.finish(as_read, begun, "")
    yield replace(step, how=how(step, table)) if isinstance(step, Recover) else step
    if is_new and isinstance(step, RecordOnly):
        following = _current(case, recovery.recorded(table, begun, step), is_new=True)
        yield replace(following, follows=begun.seq) if isinstance(following, Load | Stopped) else following


def _current(case: StreamCase, table: Case, *, is_new: bool) -> StreamStep:
    position = table.state.position
    is_known = isinstance(position, LandedPosition) and not table.full_refresh
    if is_new or not is_known:
        takes_none = case.spec.snapshot == "never" and not table.full_refresh
        return _joining(table) if takes_none else _snapshot(case, table)
    landed = _as_landed(case, table)
    columns, unsent = columns_of(landed), _unsent(case, table)
    if unsent and table.table.on_schema_change.unsent == "resnapshot":
        step = _snapshot(case, table)
        return replace(step, reason=f"read again: {what(unsent)}") if isinstance(step, Load) else step
    if stop := stop_if_unsent(table, unsent) or refuse_columns(landed, columns):
        return stopped(landed, stop, columns)
    waiting = _changes_waiting(case, table)
    return Advance(
        table=planned_table(table),
        reason=f"{counted(waiting, 'change')} waiting" if waiting else "takes what is new",
        columns=columns,
        waiting=waiting,
        checks=checks.checks(table, check_deletes=False),
        notes=(
            *announced(table, landed),
            *checks.of_nulls(table.table, columns),
            *([what(unsent)] if unsent else []),
            *undelivered_columns(table),
            *unclear_partitions(table, case.spec),
        ),
    )


def _snapshot(case: StreamCase, table: Case) -> StreamStep:
    """A table that is read at the moment from which its changes follow. A target that exists is replaced, or where rows
    stay (soft deletes, histories) compared by key."""
    if (problem := case.seen.no_snapshots) is not None:
        return stopped(table, Stop(f"it has to be read in full, and {problem.what}", problem.repair, "from"))
    if stop := stop_if_appended_again(table):
        return stopped(table, stop)
    exists = table.observed.target is not None
    table = replace(table, resnapshots=exists)
    columns = columns_of(table)
    if stop := refuse_columns(table, columns):
        return stopped(table, stop, columns)
    upper = LandedPosition(case.applied)
    step = working(
        table,
        planned_table(table),
        columns,
        Work(Interval(None, upper), "snapshot, then its changes" if not exists else "read again, then its changes"),
        "stats",
        check_deletes=exists and not table.replaces and table.table.mode != "append",
    )
    if not isinstance(step, Load):
        return step
    return replace(step, how=how(step, table), notes=(*step.notes, *undelivered_columns(table)))


def _joining(table: Case) -> Advance | Stopped:
    """A table that gets nothing but changes from now on (`snapshot: never`)."""
    columns = columns_of(table)
    if stop := refuse_columns(table, columns):
        return stopped(table, stop, columns)
    return Advance(
        table=planned_table(table),
        reason="takes changes from now on (snapshot: never)",
        columns=columns,
        checks=checks.checks(table, check_deletes=False),
        notes=tuple(undelivered_columns(table)),
    )


def _batch(case: StreamCase, table: Case) -> int | None:
    """The batch up to which the table has its changes."""
    return applied(case.seen.state, table.table.id)


def _landed(case: StreamCase, table: Case, through: int | None = None) -> Iterator[LandedTable]:
    """The table's changes that wait, by batch, up to batch ``through``: not those from before its snapshot."""
    object, number = table.observed.source.object if table.observed.source else None, _batch(case, table)
    position = table.state.position
    if object is None or number is None or not isinstance(position, LandedPosition):
        return
    for batch in case.seen.waiting:
        if through is not None and batch.batch > through:
            return
        found = batch.table(object) if batch.batch > number else None
        taken = case.seen.taken.get((batch.batch, position.since))
        if found is not None and (waits := found if taken is None else found.only(taken)):
            yield waits


def _changes_waiting(case: StreamCase, table: Case) -> int:
    return sum(found.changes for found in _landed(case, table))


def _as_landed(case: StreamCase, table: Case, through: int | None = None) -> Case:
    """The table as the batches that wait, up to batch ``through``, have it: as its changes are described, or else as
    before."""
    source = table.observed.source
    assert source is not None
    if shapes := _shapes(case, table, through):
        return with_source_columns(table, columns_of_shapes(shapes, source, table.state.schema))
    return with_source_columns(table, table.state.schema) if table.state.schema else table


def _shapes(case: StreamCase, table: Case, through: int | None = None) -> list[Shape]:
    landed = _landed(case, table, through)
    return [case.seen.shapes[digest] for found in landed for digest in found.shapes.values()]


def _unsent(case: StreamCase, table: Case) -> list[str]:
    """By what the catalog has now, and by what the changes that wait have."""
    source = table.observed.source
    in_turn = columns_in_turn(_shapes(case, table), table.state.schema)
    found = unsent_columns(table, source.columns, source) if source else []
    return list(dict.fromkeys([*found, *unsent_in_shapes(table, in_turn, lambda: source)]))
