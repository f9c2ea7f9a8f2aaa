"""`flowctl plan --effects`: reads and checks every table of a plan as a run would, and shows what its commit would
change.

It takes no lease, writes no state, and leaves nothing in the targets. Rows go through the buffer, which is removed at
the end, or by the next run if this process is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flowctl.engine import cost
from flowctl.errors import AbortRun, FlowctlError, LockedError
from flowctl.model.effects import CountedEffects, Effects, PreventedEffects, UnknownEffects
from flowctl.model.step import Load, Plan, RecordOnly, Recover
from flowctl.observe.world import World
from flowctl.plan.planning import Planned
from flowctl.run import events
from flowctl.run.attempt import RunContext
from flowctl.run.changed_rows import Sampling
from flowctl.run.context import open_context, require_engine
from flowctl.run.effects import count_effects
from flowctl.run.failure import whole_text
from flowctl.run.protocol import new_attempt
from flowctl.run.signals import Interruption, graceful
from flowctl.run.tries import Retries, describe, retry_step
from flowctl.spec.spec import Spec
from flowctl.state.location import flow_url, open_flow
from flowctl.state.runs import get_run, new_run_id, run_ids
from flowctl.storage.buffer import FOLDER, Buffer
from flowctl.storage.urls import local_path, scheme


@dataclass(frozen=True)
class DryRun:
    """``listener`` gets the events of each table, ``say`` plain lines."""

    sampling: Sampling
    listener: events.Listener
    say: Callable[[str], None]
    verbose: bool = False


def with_effects(spec: Spec, planned: Planned, dry_run: DryRun) -> Plan:
    """The plan, with the effects of each step that writes rows. Errors that would end the whole run are raised."""
    plan = planned.plan
    steps = [step for step in plan.steps if isinstance(step, Load | Recover)]
    unknown = {step.key: UnknownEffects(why) for step in steps if (why := _why_unknown(step, plan))}
    todo = [step for step in steps if step.key not in unknown]
    found: dict[tuple[str, int], Effects] = {**unknown, **(_compare(spec, planned, todo, dry_run) if todo else {})}
    return replace(
        plan,
        steps=tuple(
            replace(step, effects=found[step.key]) if isinstance(step, Load | Recover) else step for step in plan.steps
        ),
    )


def _why_unknown(step: Load | Recover, plan: Plan) -> str:
    """Why a step's effects cannot be known before the run; empty if they can."""
    if isinstance(step, Load) and step.follows is not None:
        return f"continues after sequence number {step.follows}, which this run finishes first"
    changed = {other.id for other in plan.runnable if not isinstance(other, RecordOnly)}
    changing = [need for need in step.table.needs if need in changed]
    return f"depends on {', '.join(changing)}, which this run changes" if changing else ""


def _compare(
    spec: Spec, planned: Planned, todo: Sequence[Load | Recover], dry_run: DryRun
) -> dict[tuple[str, int], Effects]:
    require_engine(spec)
    known = run_ids(open_flow(spec))
    interruption, run_id, retries = Interruption(), new_run_id(), Retries()
    with (
        graceful(interruption, lambda text: dry_run.say("stopping")),
        _open_buffer(spec, run_id) as buffer,
        open_context(
            spec, planned, todo, run_id, buffer, interruption, dry_run.listener, dry_run.say, verbose=dry_run.verbose
        ) as run,
        ThreadPoolExecutor(cost.tables_at_once(), thread_name_prefix="table") as pool,
    ):
        dry_run.listener(events.DryRunStarted(len(todo)))
        found = pool.map(lambda step: _of_table(step, planned.world, run, retries, dry_run), todo)
        effects = dict(zip((step.key for step in todo), found, strict=True))
    _refuse_begun(spec, known)
    return effects


@contextmanager
def _open_buffer(spec: Spec, run_id: str) -> Iterator[Buffer]:
    """A buffer that leaves no folders behind if the flow never ran."""
    url = flow_url(spec)
    made: list[Path] = []
    if scheme(url) == "file":
        path = Path(local_path(url)) / FOLDER
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        with Buffer(url, run_id, spec.storage) as buffer:
            yield buffer
    finally:
        for folder in made:
            with suppress(OSError):  # another process may use it by now
                folder.rmdir()


def _of_table(step: Load | Recover, world: World, run: RunContext, retries: Retries, dry_run: DryRun) -> Effects:
    started = time.monotonic()
    attempt = new_attempt(step, world.state, run)
    run.listener(events.TableStarted(step.table, step.rows.value))

    def once() -> CountedEffects:
        try:
            return count_effects(attempt, step, run, world.tables[step.id].target, dry_run.sampling)
        except Exception as cause:
            if lost := run.engine_lost(whole_text(cause)):
                raise lost from cause
            raise describe(cause, step, run) from cause

    effects: Effects
    try:
        effects = retry_step(once, step, run, retries)
    except AbortRun:
        raise
    except FlowctlError as error:
        if run.stopping.is_set():
            raise AbortRun("stopped before the effects of all tables were known", hint="Plan again") from error
        effects = PreventedEffects(attempt.intent.at, error.message, error.hint, error.exit_code)
    run.listener(events.TableCompared(step.id, effects, time.monotonic() - started))
    return effects


def _refuse_begun(spec: Spec, known: frozenset[str]) -> None:
    """Raises :class:`LockedError` if a run with something to do has started in the meantime. It has emptied the buffer,
    so rows may be missing from the counts, and a table may seem to fail that would not."""
    blobs = open_flow(spec)
    for run_id in sorted(run_ids(blobs) - known, reverse=True):
        record = get_run(blobs, run_id)
        if record is None or record.error or record.count("unchanged") < len(record.tables):
            raise LockedError(f"run {run_id} has begun meanwhile", hint="Plan again once it has ended")
